package store_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestCrash_* prove the order of syncs in docs/reference/format.md section 6. A drain feeds a store on a file system
// that at a crash loses any subset of what was not synced. After each crash the store is opened again and must hold
// exactly a prefix of what it had accepted, not shorter than what it had synced: nothing lost, torn, twice or invented.
// Then the drain goes on from there, sometimes after the ring lost its unacknowledged end as well, sometimes with
// another ring. The mutants show that the test would notice.
var (
	crashRounds = flag.Int("crash.rounds", 3000, "crash and reopen rounds of the random crash test")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the random crash test; 0 = from the clock")
)

const crashSegmentBytes = 16 << 10

// world is a ring, a drain and a store that crash together or apart.
type world struct {
	fs    *storetest.CrashFS
	rng   *rand.Rand
	ring  *storetest.Ring
	store *store.Store
	app   *store.Appender
	// isAsync: segments are prepared and sealed in the background, so that a seed does not say everything.
	isAsync bool
	// accepted is what the store must hold of this generation, in order; the first `synced` of them must survive.
	accepted []storetest.Record
	synced   int
	done     []storetest.Record // of former generations
	rings    uint64
	anchors  []store.Anchor // given out so far: each must hold for ever
	age      time.Duration  // of the world: how fast segments fill decides how large the next one is made
}

func newWorld(seed uint64) *world {
	w := &world{fs: storetest.NewCrashFS(seed), rng: rand.New(rand.NewPCG(seed, 3))}
	w.newRing()
	return w
}

func (w *world) newRing() {
	w.rings++
	w.ring = storetest.NewRing("desk7/orders", w.rng.Uint64())
	w.done = append(w.done, w.accepted...)
	w.accepted, w.synced = nil, 0
}

func (w *world) open() error {
	var err error
	w.store, err = store.Open("/store", store.Options{
		Create: true, FS: w.fs, SegmentBytes: crashSegmentBytes, IsSynchronous: !w.isAsync,
		Now: func() time.Time { return time.Unix(1763700000, 0).Add(w.age) },
	})
	if err == nil {
		w.app, err = w.store.OpenStream(w.ring.Source)
	}
	return err
}

// checkOpened compares what the store holds after opening with what it had accepted, and forgets what it lost.
func (w *world) checkOpened() error {
	if err := w.goBackToLast(); err != nil {
		return err
	}
	w.synced = len(w.accepted)
	return w.checkContent()
}

// checkContent reads the whole stream and compares it byte for byte.
func (w *world) checkContent() error {
	r, err := w.store.OpenReader("desk7/orders", store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return fmt.Errorf("open reader: %w", err)
	}
	defer r.Close()
	want, err := w.there()
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		item, err := r.Next()
		if err == io.EOF {
			if i != len(want) {
				return fmt.Errorf("reader ends after %d records, expected %d", i, len(want))
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read record %d: %w", i, err)
		}
		if i >= len(want) || !bytes.Equal(item.Raw, want[i].Raw) {
			return fmt.Errorf("record %d of %d (lsn %d, epoch %d) is not what was appended", i, len(want), item.LSN,
				item.Epoch)
		}
	}
}

// feed appends what the ring has beyond the store's end, with some records before it again.
func (w *world) feed() error {
	w.ring.Append(w.rng.IntN(12), 1500)
	last := w.app.Last()
	from := 0
	for from < len(w.ring.Records) && last.OK && w.isStored(w.ring.Records[from], last) {
		from++
	}
	until := from + w.rng.IntN(len(w.ring.Records)-from+1)
	fresh := w.ring.Records[from:until]
	again := w.rng.IntN(min(from, 4) + 1)
	batch := storetest.Batch(w.ring.Records[from-again : until])
	for len(batch) > crashSegmentBytes/2 && until > from {
		until--
		fresh = w.ring.Records[from:until]
		batch = storetest.Batch(w.ring.Records[from-again : until])
	}
	_, _, err := w.app.Append(batch)
	if err != nil && !w.fs.IsCrashed() {
		return err
	}
	// A failed append may still be found after the crash: its bytes were on their way.
	w.accepted = append(w.accepted, fresh...)
	return nil
}

func (w *world) isStored(rec storetest.Record, last store.Checkpoint) bool {
	return rec.Epoch < last.Epoch || rec.Epoch == last.Epoch && rec.LSN <= last.LSN
}

func (w *world) sync() error {
	err := w.app.Sync()
	if err != nil {
		if w.fs.IsCrashed() {
			return nil
		}
		return err
	}
	w.synced = len(w.accepted)
	if anchor, ok := w.app.Anchor(); ok {
		if n := len(w.anchors); n > 0 {
			if err := anchor.CheckAfter(w.anchors[n-1]); err != nil {
				return err
			}
		}
		w.anchors = append(w.anchors, anchor)
	}
	if w.synced == 0 || w.rng.IntN(3) == 0 {
		return nil // the drain did not come to move the head
	}
	// What is synced may leave the ring, if it is still what the ring holds.
	last := w.accepted[w.synced-1]
	for _, rec := range w.ring.Records {
		if rec.LSN == last.LSN && rec.Epoch == last.Epoch {
			w.ring.Release(last.LSN)
			break
		}
	}
	return nil
}

// loseRingEnd lets the region lose records that were not acknowledged, back to a random record that is not released.
func (w *world) loseRingEnd() {
	if len(w.ring.Records) < 2 {
		w.ring.OpenEpoch()
		return
	}
	at := 1 + w.rng.IntN(len(w.ring.Records)-1)
	w.ring.OpenEpochAt(w.ring.Records[at].LSN)
}

// life opens the store, feeds it, and ends in a crash, a kill or a proper close.
func (w *world) life() error {
	if w.rng.IntN(8) > 0 {
		w.fs.CrashAfter(w.rng.IntN(120))
	}
	err := w.open()
	if err == nil {
		if err := w.checkOpened(); err != nil && !w.fs.IsCrashed() {
			return err
		}
	} else if !w.fs.IsCrashed() {
		return fmt.Errorf("open: %w", err)
	}
	for steps := 5 + w.rng.IntN(30); steps > 0 && !w.fs.IsCrashed(); steps-- {
		if !w.isAsync { // else a job may be asking
			w.age += time.Duration(w.rng.IntN(3)) * time.Minute
		}
		switch {
		case w.rng.IntN(40) == 0:
			w.fs.FailNextSync(syscall.EIO)
			if err := w.failingSync(); err != nil {
				return err
			}
		case w.rng.IntN(12) == 0:
			if err = w.remove(); w.fs.IsCrashed() {
				err = nil
			}
		case w.rng.IntN(3) == 0:
			err = w.sync()
		default:
			err = w.feed()
		}
		if err != nil {
			return err
		}
	}
	return w.end()
}

// failingSync expects the appender to be back at the last sync after a sync that failed.
func (w *world) failingSync() error {
	err := w.app.Sync()
	w.fs.FailNextSync(nil)
	if w.fs.IsCrashed() {
		return nil
	}
	if err == nil {
		w.synced = len(w.accepted)
		return nil
	}
	if !errors.Is(err, syscall.EIO) {
		return err
	}
	// It may stand further on than the last Sync: beginning a segment syncs the one before.
	return w.goBackToLast()
}

// goBackToLast forgets what the appender no longer stands behind, which must not have been synced.
func (w *world) goBackToLast() error {
	last, kept := w.app.Last(), 0
	for i, rec := range w.accepted {
		if last.OK && rec.LSN == last.LSN && rec.Epoch == last.Epoch {
			kept = i + 1
		}
	}
	switch {
	case last.OK && kept == 0:
		return fmt.Errorf("store stands at lsn %d of epoch %d, which nobody appended", last.LSN, last.Epoch)
	case kept < w.synced:
		return fmt.Errorf("store holds %d records, %d were synced", kept, w.synced)
	}
	w.accepted = w.accepted[:kept:kept]
	return nil
}

func (w *world) end() error {
	if w.isAsync && w.app != nil {
		w.fs.CrashAfter(0)
		_ = w.app.Close() // its work in the background must end before the next life
	}
	switch {
	case w.fs.IsCrashed() && w.rng.IntN(4) == 0:
		w.fs.Kill() // the process died, the page cache lives
	case w.fs.IsCrashed() || w.rng.IntN(3) == 0:
		w.fs.Crash()
	case w.rng.IntN(2) == 0:
		w.fs.Kill()
	default:
		err := w.app.Close()
		if w.fs.IsCrashed() {
			w.fs.Crash()
			break
		}
		if err != nil {
			return fmt.Errorf("close: %w", err)
		}
		w.synced = len(w.accepted)
		if w.rng.IntN(2) == 0 {
			w.fs.Crash()
		}
		if w.rng.IntN(12) == 0 {
			w.newRing()
			return nil
		}
	}
	if w.rng.IntN(4) == 0 {
		w.loseRingEnd()
	}
	return nil
}

// runWorlds plays crash rounds until one fails or enough are played; it returns the rounds and the failure.
func runWorlds(seed uint64, rounds int, mutant storetest.Mutant, isAsync bool) (int, error) {
	played := 0
	for world := uint64(0); played < rounds; world++ {
		w := newWorld(seed + world)
		w.fs.Mutant, w.isAsync = mutant, isAsync
		for range 25 {
			played++
			if err := w.life(); err != nil {
				return played, fmt.Errorf("seed %d: round %d: %w", seed+world, played, err)
			}
		}
		if err := w.verify(); err != nil {
			return played, fmt.Errorf("seed %d: round %d: %w", seed+world, played, err)
		}
	}
	return played, nil
}

func seedOf(t *testing.T) uint64 {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (again with -crash.seed)", seed)
	return seed
}

func TestCrash_NothingSyncedIsLostTornTwiceOrInvented(t *testing.T) {
	rounds := *crashRounds
	if testing.Short() { // under the race detector, which slows one goroutine down and finds nothing there
		rounds /= 10
	}
	played, err := runWorlds(seedOf(t), rounds, storetest.MutantNone, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crash rounds", played)
}

func TestCrash_WithWorkInTheBackground(t *testing.T) {
	if _, err := runWorlds(seedOf(t), *crashRounds/10, storetest.MutantNone, true); err != nil {
		t.Fatal(err)
	}
}

// TestCrash_AfterAFailedSyncTheTailIsWrittenAgain: a process dies after a sync failed and before it could take its
// append back. The kernel then shows the bytes as if they were on the disk. The next appender must not believe that.
func TestCrash_AfterAFailedSyncTheTailIsWrittenAgain(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(10, 300)
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records)); err != nil {
		t.Fatal(err)
	}
	f.fs.FailNextSync(syscall.EIO)
	f.fs.CrashAfter(1)
	if err := f.app.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.fs.Kill()
	f.open()
	stood := f.app.Last()
	if stood.NextLSN != f.ring.NextLSN() {
		t.Fatalf("opened at %+v, expected next lsn %d", stood, f.ring.NextLSN())
	}
	f.fs.Crash()
	f.open()
	if f.app.Last() != stood {
		t.Fatalf("opening said %+v; after the crash it stands at %+v", stood, f.app.Last())
	}
}

// TestCrash_WhatAKilledProcessRenamedIsNotYetDurable: a process dies at each step of opening a new stream; the next one
// finds the disk full but for a segment that the first one prepared, uses it, and syncs. The directory entry must be
// durable by then.
func TestCrash_WhatAKilledProcessRenamedIsNotYetDurable(t *testing.T) {
	isUsed := false
	for step := range 30 {
		f := &fixture{t: t, fs: storetest.NewCrashFS(uint64(step)), ring: storetest.NewRing(testStream, 1)}
		var err error
		if f.store, err = store.Open("/store", f.options()); err != nil {
			t.Fatal(err)
		}
		f.fs.CrashAfter(step)
		_, _ = f.store.OpenStream(f.ring.Source)
		f.fs.Kill()
		f.fs.LimitSpace(crashSegmentBytes + 4096)
		f.open()
		_, _, err = f.app.Append(f.ring.Records[0].Raw)
		if errors.Is(err, store.ErrNoSpace) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := f.app.Sync(); err != nil {
			t.Fatal(err)
		}
		isUsed = true
		for range 4 { // what survives is drawn
			f.fs.Crash()
			f.open()
			if last := f.app.Last(); !last.OK {
				t.Fatalf("step %d: a synced record is gone", step)
			}
		}
	}
	if !isUsed {
		t.Fatal("no step left a prepared segment: the test proves nothing")
	}
}

// TestCrash_StoreOfAKilledMakerIsNotYetDurable: a process dies at each step of making a store; the next one finds it
// whole in the page cache, appends and syncs. The store's own directory entries must be durable by then.
func TestCrash_StoreOfAKilledMakerIsNotYetDurable(t *testing.T) {
	for step := range 30 {
		f := &fixture{t: t, fs: storetest.NewCrashFS(uint64(step)), ring: storetest.NewRing(testStream, 1)}
		f.fs.CrashAfter(step)
		_, _ = store.Open("/store", f.options())
		f.fs.Kill()
		f.fs.CrashAfter(-1)
		var err error
		if f.store, err = store.Open("/store", f.options()); err != nil {
			t.Fatal(err)
		}
		f.open()
		if _, _, err = f.app.Append(f.ring.Records[0].Raw); err != nil {
			t.Fatal(err)
		}
		if err := f.app.Sync(); err != nil {
			t.Fatal(err)
		}
		for range 4 { // what survives is drawn
			f.fs.Crash()
			if f.store, err = store.Open("/store", f.options()); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			f.open()
			if last := f.app.Last(); !last.OK {
				t.Fatalf("step %d: a synced record is gone", step)
			}
		}
	}
}

func TestCrash_MutantsAreCaught(t *testing.T) {
	for _, c := range []struct {
		name   string
		mutant storetest.Mutant
	}{
		{"data is never synced", storetest.MutantSkipDataSync},
		{"directories are never synced", storetest.MutantSkipDirSync},
	} {
		t.Run(c.name, func(t *testing.T) {
			played, err := runWorlds(seedOf(t), 2000, c.mutant, false)
			if err == nil {
				t.Fatalf("not caught in %d rounds", played)
			}
			t.Logf("caught: %v", err)
		})
	}
}
