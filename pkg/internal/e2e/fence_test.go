package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// A writer that is fenced ends with exit code 1 and says which epoch fenced it; what it acknowledged stays.
func TestFence_WriterStopsAndNamesTheEpoch(t *testing.T) {
	for _, window := range []string{"1", "32"} {
		t.Run("window "+window, func(t *testing.T) {
			uri := "mem:" + filepath.Join(testenv.MemoryDir(t), "orders.ring")
			testenv.MustRun(t, "farlog", "ring", "format", uri, "--size", "64MiB", "--stream", streamName)
			l := newLedger(t, "E")
			w := startWriter(t, l, seedOf(t), "--ring", uri, "--level", "visible", "--window", window)
			testenv.Until(t, "records are acknowledged", func() (bool, error) { return l.count() > 100, nil })
			testenv.MustRun(t, "farlog", "ring", "fence", uri, "--epoch-min", "7")
			if err := w.process.Wait(); err == nil || w.process.IsKilled() {
				t.Errorf("the fenced writer ended with %v, expected exit code 1", err)
			}
			w.done.Wait()
			if log := w.process.Log(); !strings.Contains(log, "epoch 1, is fenced: at least epoch 7 is demanded") {
				t.Errorf("the fenced writer said %q", log)
			}
			stored := strings.Count(testenv.MustRun(t, "farlog", "tail", "--ring", uri, "--format", "raw"), "8=FIX")
			if stored < l.count() {
				t.Errorf("%d records are in the ring, %d were acknowledged", stored, l.count())
			}
		})
	}
}
