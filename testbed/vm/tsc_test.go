package vm

import (
	"math"
	"testing"
	"time"
)

// TestTSC_GoesAsFastAsWeSay: a quarter of a second of the counter is that of the clock.
func TestTSC_GoesAsFastAsWeSay(t *testing.T) {
	khz := tscKHz()
	began, from := lookAtTSC()
	time.Sleep(5 * tscInterval)
	ended, to := lookAtTSC()
	want := float64(ended.Sub(began).Milliseconds())
	if got := float64(to-from) / float64(khz); math.Abs(got-want) > want/100+1 {
		t.Errorf("at %d kHz the counter says %.1f ms have passed, the clock %.1f", khz, got, want)
	}
}
