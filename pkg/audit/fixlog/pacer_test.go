package fixlog

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Any seed gives the published shape: each ten seconds hold the mean, one millisecond of them the peak, and none,
// wherever it begins, more than the peak.
func TestPacer_HasThePublishedShape(t *testing.T) {
	seeds := []uint64{1, 2, rand.Uint64(), rand.Uint64()}
	for _, seed := range seeds {
		pacer := NewPacer(seed)
		var window []time.Duration
		last, busiest := time.Duration(-1), 0
		for i := range 3 * countPerPeriod {
			due := pacer.Next()
			if due < last {
				t.Fatalf("seed %d: message %d is due at %v, after one at %v", seed, i, due, last)
			}
			if got, want := int(due/(periodSeconds*time.Second)), i/countPerPeriod; got != want {
				t.Fatalf("seed %d: message %d is due in period %d, expected %d", seed, i, got, want)
			}
			last = due
			window = append(window, due)
			for due-window[0] >= time.Millisecond {
				window = window[1:]
			}
			busiest = max(busiest, len(window))
		}
		if busiest != PeakPerMillisecond {
			t.Errorf("seed %d: the busiest millisecond holds %d messages, expected %d", seed, busiest,
				PeakPerMillisecond)
		}
	}
}

func TestPacer_SameSeedGivesTheSameSchedule(t *testing.T) {
	one, other, third := NewPacer(7), NewPacer(7), NewPacer(8)
	isSame := true
	for range 2 * countPerPeriod {
		due := one.Next()
		if got := other.Next(); got != due {
			t.Fatalf("seed 7 gives %v and %v", due, got)
		}
		isSame = isSame && third.Next() == due
	}
	if isSame {
		t.Fatal("seeds 7 and 8 give the same schedule")
	}
}

func BenchmarkPacer(b *testing.B) {
	pacer := NewPacer(1)
	for b.Loop() {
		pacer.Next()
	}
}
