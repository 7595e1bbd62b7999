package keeper

import (
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
)

const (
	chronyKept = "A29FC801,162.159.200.1,4,1795367425.199130453,-0.000012500,0.000010100,0.000020000," +
		"-12.345,0.001,0.034,0.000080000,0.000040000,64.2,Normal"
	patience = 30 * time.Second
)

// Who looks never waits for the program: the reading is there for one who looks later. A reading that is too old is
// none, and a keeper that is silent leaves the one before until then.
func TestWatch_NobodyWaits(t *testing.T) {
	var isAway atomic.Bool
	goOn := make(chan struct{})
	w := NewWatch(func(name string, _ ...string) (string, error) {
		<-goOn
		if name != "chronyc" || isAway.Load() {
			return "", exec.ErrNotFound
		}
		return chronyKept, nil
	})
	if _, isKnown := w.Newest(); isKnown {
		t.Error("a reading before anybody was asked")
	}
	close(goOn)
	w.untilAsked(t)
	if got, isKnown := w.Newest(); !isKnown || got.Keeper != "chrony" || got.Offset != 12.5e-6 || got.Bound < 92.4e-6 ||
		got.Bound > 92.6e-6 {
		t.Errorf("read %+v, %v", got, isKnown)
	}
	isAway.Store(true)
	w.asked = time.Now().Add(-againAfter)
	w.Newest()
	w.untilAsked(t)
	if _, isKnown := w.Newest(); !isKnown {
		t.Error("a keeper that is silent once takes the reading away")
	}
	w.read = time.Now().Add(-knownMost)
	if got, isKnown := w.Newest(); isKnown {
		t.Errorf("an old reading: %+v", got)
	}
}

func (w *Watch) untilAsked(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		w.mutex.Lock()
		isAsking := w.isAsking
		w.mutex.Unlock()
		if !isAsking {
			return
		}
	}
	t.Fatal("nobody was asked")
}
