package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/farlog/farlog/pkg/internal/sweep"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestSweep_*: every call of a replica into the file systems of both sites is made to fail once, in turn. Whatever
// fails: the second store is a beginning of the first, what the replica says is synced there stays over a power cut,
// the error names the call, and the replica that comes next brings the rest.

const sweepStream = "desk7/orders"

// sweepWorld is two stores: the first is full, of two rings.
type sweepWorld struct {
	disks  [2]*storetest.CrashFS
	faulty [2]*storetest.FaultFS
	place  store.Place // that the replica said is synced
}

func (w *sweepWorld) open(site int, isFaulty bool) (*store.Store, error) {
	options := store.Options{Create: true, FS: w.disks[site], SegmentBytes: store.SegmentBytesMin, IsSynchronous: true}
	if isFaulty {
		options.FS = w.faulty[site]
	}
	return store.Open("/store", options)
}

func newSweepWorld(seed uint64) (*sweepWorld, error) {
	w := &sweepWorld{}
	for i := range w.disks {
		w.disks[i] = storetest.NewCrashFS(seed + uint64(i))
		w.faulty[i] = storetest.NewFaultFS(w.disks[i])
	}
	first, err := w.open(0, false)
	if err != nil {
		return nil, err
	}
	for ringSeed := range uint64(2) {
		ring := storetest.NewRing(sweepStream, ringSeed)
		ring.Append(40, 900)
		app, err := first.OpenStream(ring.Source)
		if err != nil {
			return nil, err
		}
		for _, rec := range ring.Records {
			if _, _, err := app.Append(rec.Raw); err != nil {
				return nil, err
			}
		}
		if err := app.Close(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// copy does what a replica does until there is nothing more, or something fails.
func (w *sweepWorld) copy() (err error) {
	first, err := w.open(0, true)
	if err != nil {
		return err
	}
	second, err := w.open(1, true)
	if err != nil {
		return err
	}
	source := NewStoreSource(first)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := &follower{stream: sweepStream, config: Config{
		Source: stopAtEnd{source, cancel}, Store: second,
		Logger: slog.New(slog.DiscardHandler), pieceBytes: 4 << 10,
	}}
	err = f.follow(ctx)
	w.place = f.progress.Place
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	return errors.Join(err, f.close(), source.Close())
}

// stopAtEnd ends the replica when it has all there is.
type stopAtEnd struct {
	Source
	cancel func()
}

func (s stopAtEnd) Read(ctx context.Context, stream string, from store.Place) (Batch, error) {
	batch, err := s.Source.Read(ctx, stream, from)
	if err == nil && batch.IsEnd {
		s.cancel()
	}
	return batch, err
}

// check compares both stores, and the second with what was said of it.
func (w *sweepWorld) check(isAll bool) error {
	first, err := w.open(0, false)
	if err != nil {
		return err
	}
	second, err := w.open(1, false)
	if err != nil {
		return err
	}
	f := &follower{stream: sweepStream, config: Config{Store: second}}
	if err := f.findPlace(); err != nil {
		return err
	}
	if err := f.close(); err != nil {
		return err
	}
	if f.place.IsBefore(w.place) {
		return fmt.Errorf("the second store ends at %s, the replica said %s is synced", f.place, w.place)
	}
	list, err := store.Compare(context.Background(), first, second, "")
	if err != nil {
		return err
	}
	for _, one := range list {
		if one.Difference != "" || one.OnlyThere != 0 || isAll && (one.OnlyHere != 0 || one.Records < 80) {
			return fmt.Errorf("%+v", one)
		}
	}
	if !isAll {
		return nil
	}
	report, err := second.Verify(context.Background(), store.VerifyOptions{})
	if err == nil && !report.OK() {
		err = errors.New(report.Streams[0].Statement())
	}
	return err
}

// sweepCopy is one run; its error is what is wrong.
func sweepCopy(seed uint64, site int, fault storetest.Fault) ([]storetest.FaultCall, error) {
	w, err := newSweepWorld(seed)
	if err != nil {
		return nil, err
	}
	faulty := w.faulty[site]
	faulty.Plan(fault)
	err = w.copy()
	calls := faulty.Calls()
	if err := faulty.Check(err); err != nil {
		return calls, err
	}
	faulty.Plan(storetest.Fault{Call: -1})
	if seed%4 == 0 {
		w.disks[1].Kill()
	} else {
		w.disks[1].Crash()
	}
	if err := w.check(err == nil); err != nil {
		return calls, err
	}
	if err := w.copy(); err != nil {
		return calls, fmt.Errorf("again: %w", err)
	}
	w.disks[1].Crash()
	return calls, w.check(true)
}

func TestSweep_EachCallOfAReplicaFailsOnce(t *testing.T) {
	for site, name := range []string{"first", "second"} {
		t.Run(name+" site", func(t *testing.T) {
			storetest.Sweep(t, sweep.New(t, 10), func(seed uint64, fault storetest.Fault) ([]storetest.FaultCall,
				error,
			) {
				return sweepCopy(seed, site, fault)
			})
		})
	}
}
