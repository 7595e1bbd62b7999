package store_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/sweep"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestSweep_*: every call of the store into the file system is made to fail once, in turn, in each scenario, with each
// errno that fits, and, where the call changes something, carried out and its answer lost as well. A scenario that
// gives no error has done its work; one that does says which file and which errno, has lost nothing of what was synced,
// and works when it is done again, by the same process and by the next one, also when the power is cut in between.

// sweepWorld is a disk, and a ring that goes into a store on it.
type sweepWorld struct {
	disk   *storetest.CrashFS
	faulty *storetest.FaultFS
	ring   *storetest.Ring
	given  []storetest.Record // all that the store must hold in the end
	former int                // so many of given are of a ring before
	synced int                // so many of given: the store said so
}

func newSweepWorld(seed uint64) *sweepWorld {
	disk := storetest.NewCrashFS(seed)
	w := &sweepWorld{disk: disk, faulty: storetest.NewFaultFS(disk), ring: storetest.NewRing(testStream, 1)}
	w.append(12)
	return w
}

func (w *sweepWorld) append(count int) {
	w.ring.Append(count, 900)
	w.given = append(w.given[:w.former:w.former], w.ring.Records...)
}

func (w *sweepWorld) open() (*store.Store, error) {
	return store.Open("/store", store.Options{
		Create: true, FS: w.faulty, SegmentBytes: crashSegmentBytes, IsSynchronous: true,
		Now: func() time.Time { return time.Unix(1763700000, 0) },
	})
}

// drain opens the store and puts what it has not into it, as a drain does: after an error it goes on from where the
// appender says it stands, and opens again what is broken. It gives the first error.
func (w *sweepWorld) drain() error {
	var first error
	for range 3 {
		app, err := w.openStream()
		if err == nil {
			if err = w.feed(app, len(w.given)); err != nil && !errors.Is(err, store.ErrBroken) {
				first = cmp.Or(first, err)
				err = w.feed(app, len(w.given))
			}
			err = cmp.Or(err, app.Close())
		}
		if err == nil {
			return first
		}
		first = cmp.Or(first, err)
	}
	return fmt.Errorf("WRONG: does not work when it is done again: %w", first)
}

// drainOnce does so until the first error.
func (w *sweepWorld) drainOnce() error {
	app, err := w.openStream()
	if err != nil {
		return err
	}
	if err := w.feed(app, len(w.given)); err != nil {
		return err
	}
	return app.Close()
}

func (w *sweepWorld) openStream() (*store.Appender, error) {
	opened, err := w.open()
	if err != nil {
		return nil, err
	}
	return opened.OpenStream(w.ring.Source)
}

// feed appends and syncs a few records at a time, until the store has so many.
func (w *sweepWorld) feed(app *store.Appender, until int) error {
	for {
		at, err := w.place(app.Last())
		if err != nil || at >= until {
			return err
		}
		to := min(at+3, until)
		if _, _, err := app.Append(storetest.Batch(w.given[at:to])); err != nil {
			return err
		}
		if err := app.Sync(); err != nil {
			return err
		}
		w.synced = max(w.synced, to)
	}
}

// place is how many of the given records the store holds by its own word.
func (w *sweepWorld) place(last store.Checkpoint) (int, error) {
	at := w.former
	for i, rec := range w.given[w.former:] {
		if last.OK && rec.LSN == last.LSN && rec.Epoch == last.Epoch {
			at = w.former + i + 1
		}
	}
	if at < w.synced || last.OK && at == w.former {
		return 0, fmt.Errorf("WRONG: store stands at %+v, %d records; %d were synced", last, at, w.synced)
	}
	return at, nil
}

// read gives an error unless the store holds at least the first `least` of the given records, whole, in order, and
// nothing else.
func (w *sweepWorld) read(least int) error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	r, err := opened.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return err
	}
	defer r.Close()
	for i := 0; ; i++ {
		item, err := r.Next()
		switch {
		case err == io.EOF && i < least:
			return fmt.Errorf("WRONG: reader ends after %d records, expected %d", i, least)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case i >= len(w.given) || !bytes.Equal(item.Raw, w.given[i].Raw):
			return fmt.Errorf("WRONG: record %d (lsn %d, epoch %d) is not what was appended", i, item.LSN, item.Epoch)
		}
	}
}

func (w *sweepWorld) seek() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	r, err := opened.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return err
	}
	defer r.Close()
	for i := 0; i < len(w.given); i += 7 {
		rec := w.given[i]
		if err := r.SeekLSN(rec.LSN); err != nil {
			return err
		}
		item, err := r.Next()
		if err == io.EOF || err == nil && !bytes.Equal(item.Raw, rec.Raw) {
			return fmt.Errorf("WRONG: lsn %d is not found: %w", rec.LSN, errors.Join(err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *sweepWorld) verify() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	report, err := opened.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		return err
	}
	if len(report.Streams) != 1 || !report.OK() {
		return fmt.Errorf("WRONG: verify finds %d streams and fails: %s", len(report.Streams),
			report.Streams[0].Statement())
	}
	if s := report.Streams[0]; s.Records+s.ControlRecords+s.Superseded != countWithoutPads(w.given) {
		return fmt.Errorf("WRONG: verify counts %d records and %d control records", s.Records, s.ControlRecords)
	}
	return nil
}

func countWithoutPads(records []storetest.Record) (count uint64) {
	for _, rec := range records {
		if !rec.Flags.IsPad() {
			count++
		}
	}
	return count
}

// verifyDamaged gives nil when the damage is reported.
func (w *sweepWorld) verifyDamaged() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	report, err := opened.Verify(context.Background(), store.VerifyOptions{})
	if err == nil && report.OK() {
		return errors.New("WRONG: verify of a damaged store is content")
	}
	return err
}

func (w *sweepWorld) compare() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	other := newSweepWorld(1)
	if err := full(other); err != nil {
		return err
	}
	beside, err := other.open()
	if err != nil {
		return err
	}
	list, err := store.Compare(context.Background(), opened, beside, "")
	if err != nil {
		return err
	}
	if len(list) != 1 || list[0].Difference != "" || list[0].OnlyHere != 0 || list[0].OnlyThere != 0 ||
		list[0].Records != countWithoutPads(w.given) {
		return fmt.Errorf("WRONG: stores with the same records compare as %+v", list)
	}
	return nil
}

// sweepScenario is what a store is when a run begins, and what is done then.
type sweepScenario struct {
	name    string
	arrange func(w *sweepWorld) error
	act     func(w *sweepWorld) error
	// excused: these reads may fail without an error, because the answer comes from elsewhere.
	excused func(call storetest.FaultCall) bool
}

func noCall(storetest.FaultCall) bool { return false }

// anyCall: the damage that the scenario finds is reported whatever else could not be read.
func anyCall(storetest.FaultCall) bool { return true }

// isDerived: what an index says, and the manifest that covers it, is read from the records instead.
func isDerived(call storetest.FaultCall) bool {
	return strings.HasSuffix(call.Name, ".idx") || strings.HasSuffix(call.Name, ".json") &&
		!strings.HasSuffix(call.Name, "store.json")
}

// isOfKey: a segment grows while the key that signs the next one cannot be read.
func isOfKey(call storetest.FaultCall) bool { return strings.HasSuffix(call.Name, ".key") }

func sweepScenarios() []sweepScenario {
	nothing := func(*sweepWorld) error { return nil }
	drained := (*sweepWorld).drain
	readAll := func(w *sweepWorld) error { return w.read(len(w.given)) }
	return []sweepScenario{
		{"make", nothing, drained, noCall},
		{"make and die", nothing, (*sweepWorld).drainOnce, noCall},
		{"append", more, drained, isOfKey},
		{"append and die", more, (*sweepWorld).drainOnce, isOfKey},
		{"recover", leave, drained, isOfKey},
		{"recover and die", leave, (*sweepWorld).drainOnce, isOfKey},
		{"another ring", otherRing, drained, noCall},
		{
			"another ring and die", otherRing, (*sweepWorld).drainOnce,
			noCall,
		},
		{"read", full, readAll, isDerived},
		{"seek", full, (*sweepWorld).seek, isDerived},
		{"verify", full, (*sweepWorld).verify, noCall},
		{"compare", full, (*sweepWorld).compare, noCall},
		{"remove", full, (*sweepWorld).remove, noCall},
		{"read behind a base", removed, (*sweepWorld).readBehind, isDerived},
		{"recover behind a base", removed, drained, isOfKey},
		{"verify what is damaged", damage, (*sweepWorld).verifyDamaged, anyCall},
	}
}

func TestSweep_EachCallOfTheStoreFailsOnce(t *testing.T) {
	for _, scenario := range sweepScenarios() {
		t.Run(scenario.name, func(t *testing.T) { storetest.Sweep(t, sweep.New(t, 5), scenario.run) })
	}
}

// run plays the scenario with a fault; its error is what is wrong.
func (s sweepScenario) run(seed uint64, fault storetest.Fault) ([]storetest.FaultCall, error) {
	w := newSweepWorld(seed)
	if err := s.arrange(w); err != nil {
		return nil, fmt.Errorf("arrange: %w", err)
	}
	w.faulty.Plan(fault)
	err := s.act(w)
	calls := w.faulty.Calls()
	failed, isMet := w.faulty.Failed()
	switch {
	case isMet != (fault.Call >= 0):
		return calls, errors.New("the call did not come: the scenario is not the same twice")
	case err != nil && strings.Contains(err.Error(), "WRONG"):
		return calls, err
	case err == nil && isMet && failed.IsRead() && !s.excused(failed):
		return calls, errors.New("WRONG: no error, although something could not be read")
	}
	if err := w.faulty.Check(err); err != nil {
		return calls, err
	}
	return calls, s.again(w, err == nil, seed)
}

// again ends the process or the power, and does the whole again without a fault: everything is there then.
func (s sweepScenario) again(w *sweepWorld, wasDone bool, seed uint64) error {
	w.faulty.Plan(storetest.Fault{Call: -1})
	if seed%2 == 0 {
		w.disk.Kill()
	} else {
		w.disk.Crash()
	}
	isSound := s.name != "verify what is damaged"
	if wasDone && isSound {
		if err := w.read(len(w.given)); err != nil {
			return fmt.Errorf("no error was given: %w", err)
		}
	}
	if err := s.act(w); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	w.disk.Crash()
	if !isSound {
		return nil
	}
	if err := w.read(len(w.given)); err != nil {
		return fmt.Errorf("afterwards: %w", err)
	}
	return w.verify()
}

// more leaves a store that is closed, and records for two segments in the ring.
func more(w *sweepWorld) error {
	err := w.drain()
	w.append(60)
	return err
}

// full leaves a store with sealed segments and one that is written.
func full(w *sweepWorld) error {
	w.append(25)
	return w.drain()
}

// leave is what a killed drain leaves: a full segment without its manifest, one that is still written, and a torn
// record behind its end.
func leave(w *sweepWorld) error {
	w.append(25)
	twin := newSweepWorld(1)
	twin.append(25)
	if err := twin.drain(); err != nil {
		return err
	}
	seal := slices.IndexFunc(twin.faulty.Calls(), func(c storetest.FaultCall) bool {
		return strings.HasSuffix(c.Name,
			"1.idx.tmp")
	})
	if seal < 0 {
		return errors.New("no segment was sealed: the scenario is none")
	}
	w.faulty.Plan(storetest.Fault{Call: seal, Err: syscall.EIO})
	app, err := w.openStream()
	for at := 3; err == nil && w.synced < len(w.given); at += 3 {
		err = w.feed(app, min(at, len(w.given)))
		if _, isMet := w.faulty.Failed(); isMet {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := w.feed(app, w.synced+3); err != nil {
		return err
	}
	w.disk.Kill()
	return w.disk.Change(streamPath+"0000000002.seg", func(data []byte) []byte {
		end := len(bytes.TrimRight(data, "\x00"))
		copy(data[(end+63)/64*64:], "FLRCtorn")
		return data
	})
}

// remove takes the first segment away and is content when the stream begins with the second.
func (w *sweepWorld) remove() error {
	opened, err := w.open()
	if err != nil {
		return err
	}
	base, err := opened.RemoveBefore(testStream, store.Removal{Before: 2, Policy: "test"})
	if err != nil {
		return err
	}
	w.forget(base)
	return nil
}

// forget leaves out what a base says was removed.
func (w *sweepWorld) forget(base *store.Base) {
	before := len(w.given)
	w.ring.Release(base.LastLSN + 1)
	w.append(0)
	w.synced -= before - len(w.given)
}

func (w *sweepWorld) readBehind() error { return w.read(len(w.given)) }

// removed leaves a store whose first segment was removed, and records for more in the ring.
func removed(w *sweepWorld) error {
	if err := full(w); err != nil {
		return err
	}
	return w.remove()
}

func otherRing(w *sweepWorld) error {
	err := w.drain()
	w.ring = storetest.NewRing(testStream, 2)
	w.former = len(w.given)
	w.append(12)
	return err
}

func damage(w *sweepWorld) error {
	if err := full(w); err != nil {
		return err
	}
	return w.disk.Change(streamPath+"0000000001.seg", func(data []byte) []byte {
		data[5000] ^= 4
		return data
	})
}
