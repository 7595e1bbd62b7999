package drain

import (
	"testing"
	"time"
)

func TestPauses_GrowWhenTheRingStaysIdle(t *testing.T) {
	for _, c := range []struct {
		name    string
		longest time.Duration
		first   time.Duration
		quiet   time.Duration
	}{
		{"by default", PollIntervalDefault, pollIntervalMin, 5 * time.Millisecond},
		{"when asked for less than the shortest", 20 * time.Microsecond, 20 * time.Microsecond, 100 * time.Microsecond},
		{"when asked for a little more", 2 * time.Millisecond, pollIntervalMin, 5 * time.Millisecond},
		{"when asked for more than the quiet pause", time.Second, pollIntervalMin, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPauses(c.longest, 1)
			if got := p.next(); got != c.first {
				t.Errorf("first pause is %v, expected %v", got, c.first)
			}
			last := c.first
			for total := c.first; total < quietAfter; total += last {
				pause := p.next()
				if pause < last || pause > c.longest {
					t.Fatalf("after %v without a record the pause is %v, expected %v to %v", total, pause, last,
						c.longest)
				}
				last = pause
			}
			for range 20 {
				last = p.next()
			}
			if last != c.quiet {
				t.Errorf("pause is %v in the end, expected %v", last, c.quiet)
			}
			if p = newPauses(c.longest, 1); p.next() != c.first {
				t.Error("a record does not make the pause short again")
			}
		})
	}
}

// TestPauses_OfManyDrainsAreLonger: all drains of a process together look no more often than so many times a second.
func TestPauses_OfManyDrainsAreLonger(t *testing.T) {
	for drains, want := range map[int64]time.Duration{
		1: 5 * time.Millisecond, 100: 5 * time.Millisecond, 1_000: 10 * time.Millisecond,
		10_000: 100 * time.Millisecond,
	} {
		p := newPauses(PollIntervalDefault, drains)
		last := time.Duration(0)
		for range 500 {
			last = p.next()
		}
		if last != want {
			t.Errorf("one of %d drains pauses for %v in the end, expected %v", drains, last, want)
		}
	}
}
