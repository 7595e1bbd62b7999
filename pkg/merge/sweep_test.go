package merge_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/sweep"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestSweep_*: every call of a merge into the file system is made to fail once, in turn. Whatever fails: what readers
// were given of the order stays as it is, also over a power cut, the error names the call, and the merge that comes
// next puts every record into the order once.

// sweepWorld makes a world of drained streams, with a record that comes late in the one that is merged second.
func sweepWorld(seed uint64) (*world, *storetest.FaultFS, error) {
	w, err := newWorld(seed, 3)
	if err != nil {
		return nil, nil, err
	}
	for i, f := range w.feeds {
		f.put(begin, record.FlagEpoch, "")
		for n := range 30 {
			f.put(begin+uint64(n*10+i)*uint64(time.Millisecond), 0, fmt.Sprintf("%0200d", n))
		}
		if err := f.drain(w.store, true); err != nil {
			return nil, nil, err
		}
	}
	return w, storetest.NewFaultFS(w.fs), nil
}

// merge opens the order, brings it up to date, and again with records that have come too late meanwhile.
func (w *world) merge(faulty *storetest.FaultFS) error {
	opened, err := store.Open("/store", store.Options{
		FS: faulty, SegmentBytes: store.SegmentBytesMin,
		IsSynchronous: true, Now: func() time.Time { return w.now },
	})
	if err != nil {
		return err
	}
	plain := w.store
	w.store = opened
	err = w.openMerge()
	w.store = plain
	if err != nil {
		return err
	}
	err = w.mergeLate()
	if err == nil {
		err = w.merger.Finish(context.Background())
	}
	if closeErr := w.merger.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (w *world) mergeLate() error {
	if err := w.settle(); err != nil {
		return err
	}
	w.pass(2 * time.Second)
	if err := w.settle(); err != nil {
		return err
	}
	if err := w.look(); err != nil {
		return err
	}
	late := w.feeds[1]
	if len(late.ring) < 32 {
		late.put(begin+uint64(5*time.Millisecond), 0, "late")
		if err := late.drain(w.store, true); err != nil {
			return err
		}
	}
	w.pass(300 * time.Millisecond)
	return w.settle()
}

// sweepMerge is one run; its error is what is wrong.
func sweepMerge(seed uint64, fault storetest.Fault) ([]storetest.FaultCall, error) {
	w, faulty, err := sweepWorld(seed)
	if err != nil {
		return nil, err
	}
	faulty.Plan(fault)
	err = w.merge(faulty)
	calls := faulty.Calls()
	if err := faulty.Check(err); err != nil {
		return calls, err
	}
	if call, isMet := faulty.Failed(); isMet && call.IsRead() && err == nil {
		return calls, errors.New("no error, although something could not be read")
	}
	faulty.Plan(storetest.Fault{Call: -1})
	for _, f := range w.feeds {
		if err := f.app.Close(); err != nil {
			return calls, err
		}
		f.app = nil
	}
	if err := w.look(); err != nil {
		return calls, fmt.Errorf("what was given: %w", err)
	}
	if seed%4 == 0 {
		w.fs.Kill()
	} else {
		w.fs.Crash()
	}
	if err := w.openStore(); err != nil {
		return calls, err
	}
	if err := w.merge(faulty); err != nil {
		return calls, fmt.Errorf("again: %w", err)
	}
	if err := w.look(); err != nil {
		return calls, err
	}
	return calls, w.checkWhole()
}

// sweepAnew is one run of making the order again, which would be shorter now: the streams that were given up are waited
// for.
func sweepAnew(seed uint64, fault storetest.Fault) ([]storetest.FaultCall, error) {
	w, faulty, err := sweepWorld(seed)
	if err != nil {
		return nil, err
	}
	if err := w.merge(faulty); err != nil {
		return nil, err
	}
	w.feeds[0].put(begin+uint64(time.Second), 0, "alone")
	if err := errors.Join(w.feeds[0].drain(w.store, true), w.openMerge(), w.merger.Finish(context.Background()),
		w.merger.Close(), w.look()); err != nil {
		return nil, err
	}
	faulty.Plan(fault)
	opened, err := store.Open("/store", store.Options{
		FS: faulty, SegmentBytes: store.SegmentBytesMin,
		IsSynchronous: true, Now: func() time.Time { return w.now },
	})
	if err == nil {
		_, err = merge.Rebuild(context.Background(), opened,
			merge.Options{LateLimit: time.Second, Now: func() time.Time { return w.now }}, merge.UntilNow)
	}
	calls := faulty.Calls()
	switch {
	case err == nil:
		return calls, errors.New("it is done, although the order is shorter than the one before")
	case !errors.Is(err, merge.ErrShort):
		if err := faulty.Check(err); err != nil {
			return calls, err
		}
	}
	if err := w.look(); err != nil {
		return calls, err
	}
	w.fs.Crash()
	if err := errors.Join(w.openStore(), w.openMerge(), w.merger.Finish(context.Background()),
		w.merger.Close()); err != nil {
		return calls, err
	}
	return calls, w.look()
}

func TestSweep_EachCallOfAMergeFailsOnce(t *testing.T) { sweepAll(t, sweepMerge) }

func TestSweep_EachCallOfMakingTheOrderAgainFailsOnce(t *testing.T) { sweepAll(t, sweepAnew) }

func sweepAll(t *testing.T, run func(uint64, storetest.Fault) ([]storetest.FaultCall, error)) {
	t.Helper()
	storetest.Sweep(t, sweep.New(t, 5), run)
}
