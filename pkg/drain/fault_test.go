//go:build farlog_fault

package drain

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// What this file proves, and how. The real C writer and reader run on memory that loses, at a power cut, any of the
// 8-byte words that were not flushed; the real store runs on a file system that loses any of the sectors and directory
// entries that were not synced; the real drain is between them. Both are crashed at random points, in the middle of
// writes, together and apart, also while they recover. At the end of each life of a ring the store must have every
// acknowledged record exactly once, whole and in order, and nothing that was not appended. The mutants at the end show
// that the test sees what it claims to see.

var crashTarget = flag.Int("crashes", 10000, "crashes of TestDrain_CrashesLoseNothing")

const (
	faultRingBytes    = 0x3000 + 32<<10
	faultRecordLenMax = 1024
	crashShortPart    = 4 // make test has one in so many of the crashes of make check
	faultSegmentBytes = 24 << 10
	faultBatchBytes   = 4 << 10
	crashesPerLife    = 60
	opensMax          = 200 // attempts to come up again between two crashes
)

// world is one ring, one store and the two processes that use them.
type world struct {
	name   string
	uri    string
	disk   *storetest.CrashFS
	random *rand.Rand
	hook   func(*drainer, farlog.Batch)

	writer  *farlog.Writer
	drainer *drainer

	crashes      int
	isSettling   bool // no more crashes are planned
	nextID       uint64
	aheadCount   int             // steps that read a batch ahead
	superseded   uint64          // stored records that a power cut of the memory undid before they were acknowledged
	submitted    []uint64        // by this writer, not yet flushed
	acknowledged map[uint64]bool // true: acknowledged; false: may be there
}

func newWorld(seed uint64, hook func(*drainer, farlog.Batch), mutant storetest.Mutant) (*world, error) {
	w := &world{
		name:         fmt.Sprintf("drain-%d", seed),
		disk:         storetest.NewCrashFS(seed),
		random:       rand.New(rand.NewPCG(seed, 7)),
		hook:         hook,
		acknowledged: map[uint64]bool{},
	}
	w.disk.Mutant = mutant
	w.uri = fmt.Sprintf("fault:%s?seed=%d", w.name, seed)
	return w, farlog.Format(w.uri, farlog.FormatOptions{
		SizeBytes: faultRingBytes, RecordLenMax: faultRecordLenMax,
		StreamName: "fault/orders",
		StreamID:   1, Salt: seed | 1,
	})
}

// payloadOf is a function of the id alone, so that what comes out can be told from what went in.
func payloadOf(id uint64) []byte {
	random := rand.New(rand.NewPCG(id, 99))
	payload := make([]byte, 8+random.IntN(faultRecordLenMax/2))
	binary.LittleEndian.PutUint64(payload, id)
	for i := 8; i < len(payload); i++ {
		payload[i] = byte(random.Uint32())
	}
	return payload
}

func (w *world) isDown() bool { return farlog.FaultIsDead(w.name) || w.disk.IsCrashed() }

// stop ends both processes. What they still try to write is lost in the dead parts.
func (w *world) stop() {
	if w.writer != nil {
		w.writer.Close()
		w.writer = nil
		w.submitted = nil
	}
	w.stopDrain()
}

func (w *world) stopDrain() {
	if w.drainer != nil {
		w.drainer.close()
		w.drainer = nil
	}
}

// restart cuts the power of what has failed, and by lot of the other part too, or kills the processes alone.
func (w *world) restart() {
	isMemoryDead, isDiskDead := farlog.FaultIsDead(w.name), w.disk.IsCrashed()
	w.crashes++
	defer w.plan()
	if !isMemoryDead && w.random.IntN(2) == 0 {
		w.stopDrain() // the store's machine alone went down: the writer does not notice
		w.crashDisk(isDiskDead)
		return
	}
	if w.random.IntN(4) == 0 && !isDiskDead { // processes die, machines live
		farlog.FaultArm(w.name, 0)
		w.disk.CrashAfter(0)
		w.stop()
		farlog.FaultKill(w.name)
		w.disk.Kill()
		return
	}
	farlog.FaultArm(w.name, 0)
	w.stop()
	farlog.FaultCrash(w.name)
	w.crashDisk(isDiskDead || w.random.IntN(2) == 0)
}

func (w *world) crashDisk(isPowerCut bool) {
	if isPowerCut {
		w.disk.Crash()
		return
	}
	w.disk.Kill()
}

// plan arms the next death at a random later point of the memory or of the disk.
func (w *world) plan() {
	if w.isSettling {
		return
	}
	if w.random.IntN(2) == 0 {
		farlog.FaultArm(w.name, 1+uint64(w.random.IntN(300)))
		return
	}
	w.disk.CrashAfter(w.random.IntN(60))
}

func (w *world) openDrain() error {
	opened, err := store.Open("/store", store.Options{
		Create: true, FS: w.disk, SegmentBytes: faultSegmentBytes,
		IsSynchronous: true,
	})
	if err != nil {
		return err
	}
	w.drainer, err = open(context.Background(), Config{
		RingURI: w.uri, Store: opened, BatchBytes: faultBatchBytes,
		Logger: slog.New(slog.DiscardHandler), afterAppend: w.hook,
	})
	return err
}

func (w *world) openWriter() (err error) {
	w.writer, err = farlog.OpenWriter(w.uri, farlog.WriterOptions{
		Policy: farlog.PolicyReject, CountersDir: "none",
		Deadline: 5 * time.Second,
	})
	return err
}

// comeUp opens what is not open. An error that no planned death explains is a finding.
func (w *world) comeUp() error {
	for range opensMax {
		err := w.tryComeUp()
		if err == nil {
			return nil
		}
		if !w.isDown() {
			return fmt.Errorf("come up after crash %d: %w", w.crashes, err)
		}
		w.restart()
	}
	return fmt.Errorf("did not come up in %d attempts", opensMax)
}

func (w *world) tryComeUp() error {
	if w.drainer == nil {
		if err := w.openDrain(); err != nil {
			w.drainer = nil
			return err
		}
	}
	for w.writer == nil {
		err := w.openWriter()
		if !errors.Is(err, farlog.ErrFull) {
			return err
		}
		w.writer = nil
		if _, err := w.drainer.step(context.Background()); err != nil { // its EPOCH record needs space
			return err
		}
	}
	return nil
}

// append appends one record, or some under one flush, and notes what is said about each.
func (w *world) append() error {
	count := 1 + w.random.IntN(6)
	entries := make([]farlog.Entry, count)
	first := w.nextID
	for i := range entries {
		entries[i] = farlog.Entry{
			Data: payloadOf(first + uint64(i)),
			Key:  []byte(strconv.FormatUint(first+uint64(i), 10)), Class: 1,
		}
	}
	w.nextID += uint64(count)
	done, submitted := 0, 0
	var err error
	if count == 1 {
		_, err = w.writer.Append(entries[0], 0)
		switch {
		case err == nil:
			done, submitted = 1, 1
		case errors.Is(err, farlog.ErrUnknown):
			submitted = 1
		}
	} else {
		done, submitted, err = w.writer.AppendBatch(entries, 0, make([]farlog.Position, count))
	}
	for i := range submitted {
		w.acknowledged[first+uint64(i)] = i < done
	}
	if err == nil { // the flush covered what was submitted before
		for _, id := range w.submitted {
			w.acknowledged[id] = true
		}
		w.submitted = nil
	}
	if err == nil || errors.Is(err, farlog.ErrFull) || w.isDown() {
		return nil
	}
	return fmt.Errorf("append: %w", err)
}

// submit writes a record without a flush: the drain may take it before it is durable.
func (w *world) submit() error {
	id := w.nextID
	w.nextID++
	_, err := w.writer.Submit(farlog.Entry{Data: payloadOf(id), Key: []byte(strconv.FormatUint(id, 10)), Class: 1})
	if err == nil {
		w.acknowledged[id] = false
		w.submitted = append(w.submitted, id)
		return nil
	}
	if errors.Is(err, farlog.ErrFull) || w.isDown() {
		return nil
	}
	return fmt.Errorf("submit: %w", err)
}

// live works until the planned number of crashes has happened.
func (w *world) live(crashes int) error {
	w.plan()
	for w.crashes < crashes {
		if w.isDown() {
			w.restart()
		}
		if err := w.comeUp(); err != nil {
			return err
		}
		var err error
		switch w.random.IntN(5) {
		case 0, 1:
			err = w.append()
		case 2:
			err = w.submit()
		default:
			_, err = w.drainer.step(context.Background())
			if w.drainer.ahead != nil {
				w.aheadCount++
			}
		}
		if err != nil && !w.isDown() {
			return fmt.Errorf("after crash %d: %w", w.crashes, err)
		}
	}
	return w.settle()
}

// settle lets everything run without crashes until the ring is empty, and checks the store.
func (w *world) settle() error {
	w.isSettling = true
	farlog.FaultArm(w.name, ^uint64(0))
	w.disk.CrashAfter(-1)
	if w.isDown() {
		w.restart()
	}
	if err := w.comeUp(); err != nil {
		return err
	}
	for isIdle := false; !isIdle; {
		var err error
		if isIdle, err = w.drainer.step(context.Background()); err != nil {
			return fmt.Errorf("drain the rest: %w", err)
		}
	}
	w.stop()
	return w.check()
}

func (w *world) check() error {
	opened, err := store.Open("/store", store.Options{FS: w.disk})
	if err != nil {
		return err
	}
	report, err := opened.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		return err
	}
	for _, stream := range report.Streams {
		if stream.Failure != nil {
			return errors.New(stream.Statement())
		}
		w.superseded += stream.Superseded
	}
	reader, err := opened.OpenReader("fault/orders", store.ReaderOptions{})
	if err != nil {
		return err
	}
	defer reader.Close()
	return w.checkRecords(reader)
}

func (w *world) checkRecords(reader *store.Reader) error {
	stored := map[uint64]bool{}
	lastID := uint64(0)
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		id := binary.LittleEndian.Uint64(item.Payload)
		_, isAppended := w.acknowledged[id]
		switch {
		case !isAppended:
			return fmt.Errorf("record %d at lsn %d was never appended", id, item.LSN)
		case string(item.Payload) != string(payloadOf(id)) || string(item.Key) != strconv.FormatUint(id, 10):
			return fmt.Errorf("record %d at lsn %d is not what was appended", id, item.LSN)
		case stored[id]:
			return fmt.Errorf("record %d is in the store twice, the second time at lsn %d", id, item.LSN)
		case id < lastID:
			return fmt.Errorf("record %d at lsn %d comes after record %d", id, item.LSN, lastID)
		}
		stored[id], lastID = true, id
	}
	for id, isAcknowledged := range w.acknowledged {
		if isAcknowledged && !stored[id] {
			return fmt.Errorf("acknowledged record %d is not in the store", id)
		}
	}
	return nil
}

// tally sums up lives.
type tally struct {
	lives, crashes, acknowledged int
	aheadCount                   int
	superseded                   uint64
}

func (t *tally) add(other tally) {
	t.lives += other.lives
	t.crashes += other.crashes
	t.acknowledged += other.acknowledged
	t.aheadCount += other.aheadCount
	t.superseded += other.superseded
}

// runLife is one ring and one store from their making to the last check.
func runLife(seed uint64, hook func(*drainer, farlog.Batch), mutant storetest.Mutant) (tally, error) {
	w, err := newWorld(seed, hook, mutant)
	if err != nil {
		return tally{}, err
	}
	defer farlog.FaultDrop(w.name)
	defer w.stop()
	err = w.live(crashesPerLife)
	sum := tally{lives: 1, crashes: w.crashes, aheadCount: w.aheadCount, superseded: w.superseded}
	for _, isAcknowledged := range w.acknowledged {
		if isAcknowledged {
			sum.acknowledged++
		}
	}
	return sum, err
}

func firstSeed(t *testing.T) uint64 {
	t.Helper()
	if text := os.Getenv("FARLOG_TEST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("FARLOG_TEST_SEED %q: expected a number", text)
		}
		return seed
	}
	return uint64(time.Now().UnixNano())
}

func TestDrain_CrashesLoseNothing(t *testing.T) {
	seed := firstSeed(t)
	target := *crashTarget
	if testing.Short() {
		target /= crashShortPart
	}
	t.Logf("first seed %d (FARLOG_TEST_SEED repeats it)", seed)
	const workers = 2
	var group sync.WaitGroup
	var mu sync.Mutex
	var total tally
	for worker := range uint64(workers) {
		group.Add(1)
		go func() {
			defer group.Done()
			for life := seed + worker; ; life += workers {
				one, err := runLife(life, nil, storetest.MutantNone)
				mu.Lock()
				total.add(one)
				isDone := total.crashes >= target || err != nil || t.Failed()
				if err != nil {
					t.Errorf("seed %d: %v", life, err)
				}
				mu.Unlock()
				if isDone {
					return
				}
			}
		}()
	}
	group.Wait()
	t.Logf("%d crashes in %d lives, %d acknowledged records, %d superseded, %d batches read ahead",
		total.crashes, total.lives, total.acknowledged, total.superseded, total.aheadCount)
	if total.aheadCount < total.lives {
		t.Error("hardly a batch was read ahead: the test no longer crashes beside it")
	}
	if total.superseded == 0 && total.lives > 50 && !t.Failed() {
		t.Error("no record was ever superseded: the test no longer cuts the power between the drain and the flush")
	}
}

// The test above is worth something only if it fails when the order of the drain's steps, or a sync, is broken.
func TestDrain_CrashesCatchTheMutants(t *testing.T) {
	for _, c := range []struct {
		name   string
		hook   func(*drainer, farlog.Batch)
		mutant storetest.Mutant
	}{
		{"head released before the store synced", releaseBeforeSync, storetest.MutantNone},
		{"head released up to what was only read ahead", releaseReadAhead, storetest.MutantNone},
		{"store directory not synced", nil, storetest.MutantSkipDirSync},
		{"store data not synced", nil, storetest.MutantSkipDataSync},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const livesMax = 200
			seed := firstSeed(t)
			for life := range uint64(livesMax) {
				one, err := runLife(seed+life<<32, c.hook, c.mutant)
				if err != nil {
					t.Logf("caught after %d crashes: %v", int(life)*crashesPerLife+one.crashes, err)
					return
				}
			}
			t.Errorf("seed %d: not caught in %d lives", seed, livesMax)
		})
	}
}
