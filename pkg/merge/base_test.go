package merge_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// TestBase_OrderOfStreamsWhoseBeginWasRemoved: verify compares what is left, byte for byte, the reader gives that, the
// merge goes on, and nothing makes the order again from less than it was made from.
func TestBase_OrderOfStreamsWhoseBeginWasRemoved(t *testing.T) {
	w := start(t, 2)
	for ms := range 400 {
		w.feeds[ms%2].put(at(ms+1), 0, string(make([]byte, 200)))
		for range 3 { // what is removed ends with records that are in no order
			w.feeds[ms%2].put(at(ms+1), record.FlagHeartbeat, "")
		}
		if ms%50 == 0 {
			w.in(t)
		}
	}
	w.in(t)
	base, err := w.feeds[0].app.RemoveBefore(store.Removal{Before: 3, Policy: "test"})
	must(t, err)
	verify := func() *merge.Report {
		t.Helper()
		report, err := merge.Verify(context.Background(), w.store, nil)
		must(t, err)
		if report.Failure != nil {
			t.Fatal(report.Statement())
		}
		return report
	}
	if report := verify(); report.Removed == 0 || report.Entries == 0 || report.Entries >= 350 {
		t.Fatalf("%d entries removed, %d compared", report.Removed, report.Entries)
	}
	w.feeds[1].put(at(900), 0, "y")
	w.feeds[0].put(at(901), record.FlagHeartbeat, "")
	for _, f := range w.feeds {
		must(t, f.drain(w.store, true))
	}
	must(t, w.settle())
	verify()

	r, err := merge.OpenReader(w.store)
	must(t, err)
	defer r.Close()
	count, fromBase := map[string]int{}, uint64(0)
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if count[item.Stream]++; item.Stream == w.feeds[0].name && fromBase == 0 {
			fromBase = item.LSN
		}
	}
	if fromBase < base.NextLSN || fromBase > base.NextLSN+3*64 ||
		count[w.feeds[1].name] != 202 || count[w.feeds[0].name] == 0 {
		t.Errorf("reader gives %v, the first stream from lsn %d on, expected %d", count, fromBase, base.NextLSN)
	}

	must(t, w.merger.Close())
	_, err = merge.Rebuild(context.Background(), w.store,
		merge.Options{Now: func() time.Time { return w.now }}, merge.UntilNow)
	if !errors.Is(err, store.ErrRemoved) {
		t.Errorf("order is made again from less: %v", err)
	}
	if err := merge.Remove(w.store); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("order that cannot be made again is removed: %v", err)
	}
	must(t, w.openMerge())
}

// TestBase_MergeThatHadNotPassedSaysSo: records that were never ordered are gone.
func TestBase_MergeThatHadNotPassedSaysSo(t *testing.T) {
	w := start(t, 1)
	w.in(t)
	must(t, w.merger.Close())
	for ms := range 300 {
		w.feeds[0].put(at(ms+1), 0, string(make([]byte, 200)))
	}
	must(t, w.feeds[0].drain(w.store, true))
	_, err := w.feeds[0].app.RemoveBefore(store.Removal{Before: 3, Policy: "test"})
	must(t, err)
	if err := w.openMerge(); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("merge goes on behind a hole: %v", err)
	}
}
