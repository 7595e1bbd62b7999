package vm

import (
	"sync"
	"time"
)

const (
	tscInterval = 50 * time.Millisecond
	tscLooks    = 20 // at either end of it
)

// readTSC is this machine's time stamp counter, which guests under TCG read, too.
func readTSC() uint64

// tscKHz is the rate of the time stamp counter. A guest whose emulator waits for a processor while its kernel compares
// the counter with a timer takes it for several times slower than it is; then all of its clock runs so much too fast,
// and every deadline in it is so much too near: so it is told.
var tscKHz = sync.OnceValue(func() uint64 {
	began, from := lookAtTSC()
	time.Sleep(tscInterval)
	ended, to := lookAtTSC()
	return (to - from) * uint64(time.Millisecond) / uint64(ended.Sub(began))
})

// lookAtTSC reads clock and counter as close to each other as they can be: of several looks the one that took the
// least.
func lookAtTSC() (at time.Time, counter uint64) {
	least := time.Hour
	for range tscLooks {
		before := time.Now()
		count := readTSC()
		if took := time.Since(before); took < least {
			least, at, counter = took, before, count
		}
	}
	return at, counter
}
