package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// A writer that was stopped with records under way, and from which several others took over in turn, ends as one that
// is fenced: it does not wait for an outcome that nobody tells it any more, and says nothing of the others' epochs and
// latencies.
func TestFar_StoppedWriterAfterSeveralTakeovers(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	uri := cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", "visible")
	l := newLedger(t, "S")
	args := []string{"--stream", streamName, "--control", cluster.ControlAddress, "--transport", "ofi", "--window", "3"}
	old := openWriter(t, l, args...)
	old.done.Go(func() {
		for old.feedBurst(64) == nil { // without a pause, so that an append is under way at any time
		}
	})
	testenv.Until(t, "records are acknowledged", func() (bool, error) { return old.acks.Load() > 100, nil })
	old.process.Pause()
	old.stopped()
	for range 2 {
		next := startWriter(t, l, seedOf(t), append(args, "--takeover")...)
		testenv.Until(t, "the next writer has taken over", func() (bool, error) { return next.acks.Load() > 500, nil })
		next.finish(t)
	}
	old.process.Signal(syscall.SIGCONT)
	if err := old.process.Wait(); err == nil || old.process.IsKilled() {
		t.Errorf("the fenced writer ended with %v, expected exit code 1", err)
	}
	old.stdin.Close()
	old.done.Wait()
	log := old.process.Log()
	t.Log(log)
	if !strings.Contains(log, "this writer, epoch 1, is fenced") {
		t.Error("the fenced writer does not say that it is fenced")
	}
	for _, foreign := range []string{"append latency", "was not known within"} {
		if strings.Contains(log, foreign) {
			t.Errorf("the fenced writer says %q", foreign)
		}
	}
	waitDrained(t, uri)
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}
