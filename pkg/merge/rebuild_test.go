package merge_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// ordered makes a world whose order has several files, late ones, and a stream that has more than is ordered.
func ordered(t *testing.T) *world {
	t.Helper()
	w := start(t, 2)
	for ms := 1; ms < 150; ms++ {
		w.feeds[0].put(at(ms), 0, "x")
		w.feeds[1].put(at(ms), 0, "y")
	}
	w.feeds[0].put(at(200), 0, "x")
	w.in(t)
	w.pass(1100 * time.Millisecond)
	w.in(t)
	w.feeds[1].put(at(150), 0, "late")
	w.pass(time.Second)
	w.in(t)
	must(t, w.merger.Finish(context.Background()))
	must(t, w.look())
	must(t, w.merger.Close())
	return w
}

func anewOf(w *world, until merge.Until) error {
	_, err := merge.Rebuild(context.Background(), w.store,
		merge.Options{LateLimit: time.Second, Now: func() time.Time { return w.now }}, until)
	return err
}

// grow brings more than a segment of the order, and merges nothing.
func (w *world) grow(t *testing.T) {
	t.Helper()
	for ms := 300; ms < 400; ms++ {
		w.feeds[0].put(at(ms), 0, "more")
	}
	must(t, w.feeds[0].drain(w.store, true))
}

// Whatever operation meets a power cut or a kill: every entry that was in the order is in it at once, before anybody
// merges again, verify finds it whole, and a merge goes on with it. The one that is made goes further.
func TestAnew_CrashLeavesTheOrderWhole(t *testing.T) {
	for _, isPowerCut := range []bool{false, true} {
		for operations, isDone := 0, false; !isDone; operations++ {
			if operations%8 != 0 && operations < 56 {
				continue // until then it only makes the other one
			}
			w := ordered(t)
			w.grow(t)
			w.fs.CrashAfter(operations)
			err := anewOf(w, merge.UntilEnd)
			isDone = err == nil && !w.fs.IsCrashed()
			if err != nil && !errors.Is(err, storetest.ErrCrashed) {
				t.Fatalf("after %d operations: %v", operations, err)
			}
			if isPowerCut {
				w.fs.Crash()
			} else {
				w.fs.Kill()
			}
			must(t, w.openStore())
			if err := w.look(); err != nil {
				t.Fatalf("after %d operations, power cut %v: %v", operations, isPowerCut, err)
			}
			report, err := merge.Verify(context.Background(), w.store, nil)
			must(t, err)
			if report.Failure != nil || report.Entries != uint64(len(w.seen)) {
				t.Fatalf("after %d operations, power cut %v: %s", operations, isPowerCut, report.Statement())
			}
			if operations%4 == 0 || isDone {
				must(t, w.openMerge())
				must(t, w.checkRerun2(t))
			}
			if operations > 1000 {
				t.Fatal("making the order again takes more than 1000 operations")
			}
		}
	}
}

// One that is damaged is made whole, whatever crashed on the way.
func TestAnew_CrashOverADamagedOrderIsMadeGood(t *testing.T) {
	for operations, isDone := 0, false; !isDone; operations += 3 {
		w := ordered(t)
		must(t, w.fs.Change(orderDir+"/0000000002.seg",
			func(data []byte) []byte { data[4096+130] ^= 1; return data }))
		w.fs.CrashAfter(operations)
		isDone = anewOf(w, merge.UntilEnd) == nil && !w.fs.IsCrashed()
		w.fs.Crash()
		must(t, w.openStore())
		must(t, anewOf(w, merge.UntilEnd))
		must(t, w.openMerge())
		must(t, w.look())
		must(t, w.checkRerun2(t))
	}
}

// With UntilAsFar the order that is there stays until as much has come; then what follows goes behind it.
func TestAnew_WaitsUntilItGoesAsFar(t *testing.T) {
	w := start(t, 2)
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	must(t, w.merger.Finish(context.Background())) // nobody waits for the second stream
	must(t, w.look())
	must(t, w.merger.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := merge.Rebuild(ctx, w.store, merge.Options{Now: func() time.Time { return w.now }},
		merge.UntilAsFar); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v, expected %v", err, context.DeadlineExceeded)
	}
	must(t, w.look())
	w.feeds[1].put(at(20), record.FlagHeartbeat, "")
	must(t, w.feeds[1].drain(w.store, true))
	must(t, anewOf(w, merge.UntilAsFar))
	must(t, w.openMerge())
	w.feeds[0].put(at(30), 0, "b")
	w.in(t)
	must(t, w.checkRerun2(t))
	expect(t, w, "0+10 0+30")
}

// Whatever operation of taking the order away meets a power cut: what is left of it is read without an error, and a
// merge makes it whole.
func TestRemove_CrashLeavesNoHole(t *testing.T) {
	for operations, isDone := 0, false; !isDone; operations++ {
		w := ordered(t)
		w.fs.CrashAfter(operations)
		err := merge.Remove(w.store)
		isDone = err == nil && !w.fs.IsCrashed()
		if err != nil && !errors.Is(err, storetest.ErrCrashed) {
			t.Fatalf("after %d operations: %v", operations, err)
		}
		w.fs.Crash()
		must(t, w.openStore())
		if _, err := w.entries(); err != nil {
			t.Fatalf("after %d operations: %v", operations, err)
		}
		must(t, w.openMerge())
		must(t, w.merger.Finish(context.Background()))
		must(t, w.look())
		must(t, w.merger.Close())
	}
}
