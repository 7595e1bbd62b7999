package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestRemoveBefore_CrashAtEachOperation cuts the power, or kills the process, in the course of each operation of a
// removal, with several subsets of what was not synced. Afterwards a reader, and verify, see the stream from its old
// beginning or from the new one, whole, and never a hole; the next appender takes away what is left and goes on; the
// same removal done again is complete. The mutant shows that the test would notice a base that is not durable before
// the first segment goes.
func TestRemoveBefore_CrashAtEachOperation(t *testing.T) {
	operations := 0
	for ; ; operations++ {
		isDone := false
		for seed := uint64(0); seed < 12; seed++ {
			var err error
			if isDone, err = crashInRemoval(seed, operations, storetest.MutantNone); err != nil {
				t.Fatalf("seed %d, crash in operation %d: %v", seed, operations, err)
			}
		}
		if isDone {
			break
		}
	}
	if operations < 10 {
		t.Fatalf("a removal has %d operations, expected more", operations)
	}
	t.Logf("%d operations", operations)
	for at := range operations {
		for seed := uint64(0); seed < 12; seed++ {
			if _, err := crashInRemoval(seed, at, storetest.MutantSkipDirSync); err != nil {
				t.Logf("without syncs of the directory: %v", err)
				return
			}
		}
	}
	t.Error("a base that is not durable is not noticed")
}

// crashInRemoval fills a store, removes with a crash in the course of an operation, and checks what is there then.
func crashInRemoval(seed uint64, operation int, mutant storetest.Mutant) (isDone bool, err error) {
	w := newSweepWorld(seed)
	w.append(120)
	if err := w.drain(); err != nil {
		return false, err
	}
	w.disk.Mutant = mutant
	w.disk.CrashAfter(operation)
	opened, err := w.open()
	if err == nil {
		_, err = opened.RemoveBefore(testStream, store.Removal{Before: 4, Policy: "test"})
	}
	isDone = err == nil
	if isDone == w.disk.IsCrashed() {
		return isDone, fmt.Errorf("removal gives %w although the crash came: %t", err, w.disk.IsCrashed())
	}
	if seed%3 == 0 {
		w.disk.Kill()
	} else {
		w.disk.Crash()
	}
	w.disk.CrashAfter(-1)
	if err := w.checkBeginning(isDone); err != nil {
		return isDone, err
	}
	w.append(6)
	if err := w.drain(); err != nil {
		return isDone, fmt.Errorf("next appender: %w", err)
	}
	if err := w.checkBeginning(isDone); err != nil {
		return isDone, fmt.Errorf("after the next appender: %w", err)
	}
	if err := w.checkNothingLeft(); err != nil {
		return isDone, err
	}
	if opened, err = w.open(); err != nil {
		return isDone, err
	}
	if _, err := opened.RemoveBefore(testStream, store.Removal{Before: 4, Policy: "test"}); err != nil {
		return isDone, fmt.Errorf("removal again: %w", err)
	}
	return isDone, w.checkBeginning(true)
}

// checkBeginning reads the stream: it is all that was given, or, as it must be when the removal is done, that from
// segment 4 on.
func (w *sweepWorld) checkBeginning(isDone bool) error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	base, err := opened.Base(testStream)
	if err != nil {
		return err
	}
	if isDone && base == nil {
		return errors.New("the removal was done, and there is no base")
	}
	want := w.given
	if base != nil {
		for i, rec := range w.given {
			if rec.LSN == base.LastLSN && rec.Epoch == base.LastEpoch {
				want = w.given[i+1:]
			}
		}
		if base.Segment != 4 || len(want) == len(w.given) {
			return fmt.Errorf("base is %+v", base)
		}
	}
	r, err := opened.OpenReader(testStream, readEverything)
	if err != nil {
		return err
	}
	defer r.Close()
	for i := 0; ; i++ {
		item, err := r.Next()
		if err == io.EOF && i == len(want) {
			break
		}
		if err != nil || i >= len(want) || !bytes.Equal(item.Raw, want[i].Raw) {
			return fmt.Errorf("record %d of %d is another one: %w", i, len(want), err)
		}
	}
	report, err := opened.Verify(context.Background(), store.VerifyOptions{})
	if err != nil || !report.OK() {
		return fmt.Errorf("verify: %s: %w", report.Streams[0].Statement(), err)
	}
	return nil
}

// checkNothingLeft: behind a base there are no files of segments before it.
func (w *sweepWorld) checkNothingLeft() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	base, err := opened.Base(testStream)
	if err != nil || base == nil {
		return err
	}
	names, err := w.disk.ReadDir(strings.TrimSuffix(streamPath, "/"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(name) > 10 && name < fmt.Sprintf("%010d", base.Segment) && !strings.HasSuffix(name, ".base") {
			return fmt.Errorf("%s is still there, the stream begins with segment %d", name, base.Segment)
		}
	}
	return nil
}

// remove takes away the oldest segments of a world whose records have all left the ring, as a drain's daemon may.
func (w *world) remove() error {
	base, err := w.store.Base("desk7/orders")
	if err != nil {
		return err
	}
	r, err := w.store.OpenReader("desk7/orders", store.ReaderOptions{
		IncludeControl: true, IncludeSuperseded: true, IsOpenFast: true, SyncedOnly: true,
	})
	if err != nil {
		return err
	}
	defer r.Close()
	before := uint64(1)
	if base != nil {
		before = base.Segment
	}
	for {
		item, err := r.Next()
		if err == io.EOF || err == nil && len(w.ring.Records) > 0 && w.isOurs(item) &&
			item.LSN >= w.ring.Records[0].LSN {
			break
		}
		if err != nil {
			return err
		}
		before = item.Segment
	}
	_, err = w.app.RemoveBefore(store.Removal{Before: before, Policy: "crash test"})
	if errors.Is(err, store.ErrInvalid) {
		return nil // it is not sealed yet
	}
	return err
}

// isOurs: the record is of the ring that is drained now.
func (w *world) isOurs(item store.Item) bool {
	for _, rec := range w.accepted {
		if bytes.Equal(rec.Raw, item.Raw) {
			return true
		}
	}
	return false
}

// there gives what the stream must hold: what was accepted, from its base on.
func (w *world) there() ([]storetest.Record, error) {
	want := append(w.done[:len(w.done):len(w.done)], w.accepted...)
	base, err := w.store.Base("desk7/orders")
	if err != nil || base == nil {
		return want, err
	}
	for i, rec := range want {
		if rec.LSN == base.LastLSN && rec.Epoch == base.LastEpoch && rec.Seq == base.LastSeq &&
			(i < len(w.done)) == (base.RingUUID != w.ring.Source.RingUUID.String()) {
			return want[i+1:], nil
		}
	}
	return nil, fmt.Errorf("stream begins behind lsn %d, which nobody appended", base.LastLSN)
}
