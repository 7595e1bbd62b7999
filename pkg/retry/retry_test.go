package retry

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Pauses double up to the longest, each within a quarter of that, and begin again after Reset.
func TestDelays_GrowAndDiffer(t *testing.T) {
	t.Parallel()
	const shortest, longest = 100 * time.Millisecond, time.Second
	delays := New(shortest, longest)
	seen := map[time.Duration]bool{}
	for range 50 {
		want := shortest
		for range 8 {
			pause := delays.NextBackOff()
			if low, high := want-want/4, want+want/4+1; pause < low || pause > high {
				t.Fatalf("a pause of %s, expected %s to %s", pause, low, high)
			}
			seen[pause] = true
			want = min(2*want, longest)
		}
		delays.Reset()
	}
	if len(seen) < 300 {
		t.Errorf("%d different pauses of 400: expected them to differ", len(seen))
	}
}

func TestWait_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(time.Hour, time.Hour).Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := New(time.Nanosecond, time.Nanosecond).Wait(t.Context()); err != nil {
		t.Errorf("got %v", err)
	}
}
