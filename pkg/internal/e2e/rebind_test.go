package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What this proves, and how. A stream is written by a real process; its store's directory is removed from under the
// drain, which says so and releases no more, while acknowledged records lie in the ring; then the drain is killed. The
// stream is bound to another store with the writer going on. Then every acknowledged record that the ring still had is
// in the new store, exactly once, at its place and with its bytes; the command and verify say where that begins, which
// is where the ring's head stood; and the stream can be deleted.
func TestRebind_StoreIsLost(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	a := &arena{T: t, ledger: newLedger(t, "R")}
	a.cluster = testenv.NewCluster(t, testenv.MemoryDir(t), "--store-segment", "1MiB")
	a.uri = a.cluster.CreateStream(streamName, "--size", "16MiB", "--record-len-max", "64KiB", "--level", "visible")
	a.writer = startWriter(t, a.ledger, seed, "--stream", streamName, "--control", a.cluster.ControlAddress, "--window",
		"8")
	testenv.Until(t, "the first store has something", func() (bool, error) { return a.head() > 0, nil })
	rebind := []string{
		"stream", "rebind", streamName, "--drain", drainID(a.cluster), "--reason", "its disk is gone",
		"--control", a.cluster.ControlAddress,
	}
	if _, text, code := testenv.Run(t, "farlog", rebind...); code != 1 ||
		!strings.Contains(text, "reports and writes the one that it has") {
		t.Errorf("its store lives: exit code %d, %s", code, text)
	}
	released := a.loseStore()
	a.waitAcknowledged(500)
	if head := a.head(); head != released {
		t.Errorf("a drain without its store has moved the head from %d to %d", released, head)
	}
	a.cluster.Drain.Kill()

	a.cluster.StoreDir = filepath.Join(a.cluster.Dir, "second")
	a.cluster.StartDrain()
	testenv.Until(t, "the drain reports its other store", func() (bool, error) {
		_, text, code := testenv.Run(t, "farlog", append(rebind, "--dry-run")...)
		return code == 0, errorUnless(code == 0 || strings.Contains(text, "reports") ||
			strings.Contains(text, "a drain has its ring"), text)
	})
	if a.head() != released {
		t.Errorf("the drain of another store has moved the head from %d to %d", released, a.head())
	}
	want := fmt.Sprintf("below lsn %d, seq ", released)
	if text := testenv.MustRun(t, "farlog", rebind...); !strings.Contains(text, want) ||
		!strings.Contains(text, "/second (") {
		t.Errorf("no %q in %s", want, text)
	}
	a.waitAcknowledged(500)
	a.cluster.Drain.Kill() // wherever it is with its first batches
	a.cluster.StartDrain()
	a.waitAcknowledged(500)
	a.writer.finish(t)
	a.waitDrained()
	if text := testenv.MustRun(t, "farlog", "stream", "show", streamName, "--control",
		a.cluster.ControlAddress); !strings.Contains(text, want) || !strings.Contains(text, "its disk is gone") {
		t.Errorf("shown:\n%s", text)
	}
	testenv.Until(t, "it is deleted when its target has seen that nobody writes it", func() (bool, error) {
		_, text, code := testenv.Run(t, "farlog", "stream", "delete", streamName, "--control", a.cluster.ControlAddress)
		return code == 0, errorUnless(code == 0 || strings.Contains(text, "is not deleted: "), text)
	})
	a.cluster.Drain.Stop()
	a.checkRest(released)
}

// loseStore removes the store, waits until the drain has seen that, and gives the head that it has left.
func (a *arena) loseStore() uint64 {
	a.Helper()
	testenv.Until(a, "the store is removed, while files are made in it", func() (bool, error) {
		return os.RemoveAll(a.cluster.StoreDir) == nil, nil
	})
	testenv.Until(a, "the drain says that its store is gone", func() (bool, error) {
		return strings.Contains(a.cluster.Stream(streamName).GetReason(), "store is not in its place any more"), nil
	})
	return a.head()
}

// checkRest wants all in the store that was acknowledged from an lsn on, and nothing from before.
func (a *arena) checkRest(released uint64) {
	a.Helper()
	if text, want := testenv.MustRun(a, "farlog", "verify", a.cluster.StoreDir),
		fmt.Sprintf("this store begins at lsn %d, seq ", released); !strings.Contains(text, want) {
		a.Errorf("no %q in %s", want, text)
	}
	lost := 0
	for at := range a.ledger.acknowledged {
		if at.lsn < released {
			delete(a.ledger.acknowledged, at)
			lost++
		}
	}
	a.Logf("%d acknowledged records were released to the lost store, %d were not", lost, len(a.ledger.acknowledged))
	if lost == 0 || len(a.ledger.acknowledged) < 1000 {
		a.Error("the store was lost before it had anything, or after all was stored")
	}
	if contents := checkStore(a.T, a.cluster.StoreDir, a.ledger); len(contents) < len(a.ledger.acknowledged) {
		a.Errorf("the store has %d records", len(contents))
	}
}

func drainID(c *testenv.Cluster) string { return c.Stream(streamName).GetAssignment().GetDrain() }

func errorUnless(isGood bool, text string) error {
	if isGood {
		return nil
	}
	return fmt.Errorf("%s", text)
}
