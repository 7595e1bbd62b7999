//go:build farlog_fault

package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const (
	mergedLanesMax = 5
	mergedActsMax  = 220
	mergedLate     = time.Second
	mergedTick     = 10 * time.Millisecond // coarse, so that many records have equal times
	mergedSkewMax  = 4                     // ticks that a host's clock is off, at most
	mergedRelook   = 200 * time.Millisecond
	mergedRelist   = time.Second
)

// mergedWorld is a store, the hosts that write to it, and their time.
type mergedWorld struct {
	disk   *storetest.CrashFS
	random *rand.Rand
	now    time.Time
	lanes  []*lane
	seed   uint64

	store  *store.Store // what its host runs: the drains of the lanes, and these
	merger *merge.Merger
	reader *merge.Reader
	seen   []merge.Entry // what readers have been given of the order: it may only grow

	isSettling bool // nothing dies any more
	tally      mergedTally
}

// lane is one stream on its way: a host, a ring, a drain.
type lane struct {
	name, memory, uri string
	number            uint64
	skew              time.Duration // of its host's clock
	writer            *farlog.Writer
	drainer           *drainer
	isStalled         bool // nobody drains it

	granted   uint32
	epochs    map[uint32]bool // that were opened
	records   map[uint64]*offered
	acked     map[uint64]uint64 // id by lsn
	submitted []uint64          // by this writer, not yet flushed

	broughtAt time.Time // when the store last got something of it
	mayBeLate bool      // it brought nothing for so long that it needs not be waited for
}

// offered is a record that was given to a writer.
type offered struct {
	at       time.Time // by the clock of the world
	isAcked  bool
	position farlog.Position
	isMerged bool
}

func playMergedRun(seed uint64) (mergedTally, error) {
	w := &mergedWorld{
		disk: storetest.NewCrashFS(seed), random: rand.New(rand.NewPCG(seed, 11)), seed: seed,
		now: time.Unix(1763700000, 0),
	}
	w.tally.Runs = 1
	defer func() {
		w.stopStore()
		for _, l := range w.lanes {
			l.stopWriter()
			farlog.FaultDrop(l.memory)
		}
	}()
	for range 1 + w.random.IntN(2) {
		if err := w.addLane(); err != nil {
			return w.tally, err
		}
	}
	return w.tally, w.play()
}

func (w *mergedWorld) addLane() error {
	number := uint64(len(w.lanes))
	letter := (number*2 + w.seed) % mergedLanesMax // a stream that comes later may have a name that goes before
	l := &lane{
		name: fmt.Sprintf("desk%d/orders", letter), memory: fmt.Sprintf("merged-%d-%d", w.seed, number),
		number: number, broughtAt: w.now, mayBeLate: true,
		epochs: map[uint32]bool{}, records: map[uint64]*offered{}, acked: map[uint64]uint64{},
	}
	l.uri = fmt.Sprintf("fault:%s?seed=%d", l.memory, w.seed+number)
	l.skew = w.drawSkew()
	w.lanes = append(w.lanes, l)
	return farlog.Format(l.uri, farlog.FormatOptions{
		SizeBytes: faultRingBytes, RecordLenMax: faultRecordLenMax,
		StreamName: l.name, StreamID: uint32(number + 1), Salt: (w.seed + number) | 1,
	})
}

func (w *mergedWorld) drawSkew() time.Duration {
	return time.Duration(w.random.IntN(2*mergedSkewMax+1)-mergedSkewMax) * mergedTick
}

func (w *mergedWorld) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, l := range w.lanes {
		if w.now.Sub(l.broughtAt) >= mergedLate {
			l.mayBeLate = true
		}
	}
}

// ---- what dies, and what comes up again

func (w *mergedWorld) isDown() bool {
	for _, l := range w.lanes {
		if farlog.FaultIsDead(l.memory) {
			return true
		}
	}
	return w.disk.IsCrashed()
}

// plan arms the next death.
func (w *mergedWorld) plan() {
	switch {
	case w.isSettling:
	case w.random.IntN(2) == 0:
		farlog.FaultArm(w.lanes[w.random.IntN(len(w.lanes))].memory, 1+uint64(w.random.IntN(200)))
	default:
		w.disk.CrashAfter(w.random.IntN(60))
	}
}

func (l *lane) stopWriter() {
	if l.writer != nil {
		l.writer.Close()
	}
	l.writer, l.submitted = nil, nil
}

func (l *lane) stopDrain() {
	if l.drainer != nil {
		l.drainer.close()
	}
	l.drainer = nil
}

// stopStore ends what runs on the store's host.
func (w *mergedWorld) stopStore() {
	for _, l := range w.lanes {
		l.stopDrain()
	}
	if w.reader != nil {
		w.reader.Close()
	}
	if w.merger != nil {
		w.merger.Close()
	}
	w.store, w.merger, w.reader = nil, nil, nil
}

// restart buries what has died: of a ring's host with or without its memory, of the store's with or without what was
// not synced.
func (w *mergedWorld) restart() {
	w.tally.Crashes++
	for _, l := range w.lanes {
		if !farlog.FaultIsDead(l.memory) {
			continue
		}
		l.stopWriter()
		l.stopDrain()
		if w.random.IntN(3) == 0 {
			farlog.FaultKill(l.memory)
			continue
		}
		farlog.FaultCrash(l.memory)
	}
	if w.disk.IsCrashed() {
		w.stopStore()
		if w.random.IntN(2) == 0 {
			w.disk.Kill()
		} else {
			w.disk.Crash()
		}
	}
	w.plan()
}

func (w *mergedWorld) comeUp() error {
	for range opensMax {
		if w.isDown() {
			w.restart()
		}
		err := w.tryComeUp()
		if err == nil && !w.isDown() {
			return nil
		}
		if !w.isDown() {
			return fmt.Errorf("come up after crash %d: %w", w.tally.Crashes, err)
		}
	}
	return fmt.Errorf("did not come up in %d attempts", opensMax)
}

func (w *mergedWorld) tryComeUp() (err error) {
	clock := func() time.Time { return w.now }
	if w.store == nil {
		if w.store, err = store.Open("/store", store.Options{
			Create: true, FS: w.disk, SegmentBytes: faultSegmentBytes,
			IsSynchronous: true, Now: clock,
		}); err != nil {
			w.store = nil
			return err
		}
	}
	for _, l := range w.lanes {
		if err := w.openLane(l); err != nil {
			return fmt.Errorf("%s: %w", l, err)
		}
	}
	if w.merger == nil {
		if w.merger, err = merge.Open(w.store, merge.Options{
			LateLimit: mergedLate, SegmentBytes: store.SegmentBytesMin,
			Now: clock,
		}); err != nil {
			w.merger = nil
			return fmt.Errorf("open merge: %w", err)
		}
	}
	return nil
}

func (w *mergedWorld) openLane(l *lane) (err error) {
	if l.drainer == nil && !l.isStalled {
		l.drainer, err = open(context.Background(), Config{
			RingURI: l.uri, Store: w.store, BatchBytes: faultBatchBytes,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			l.drainer = nil
			return err
		}
	}
	for l.writer == nil {
		err := w.openWriter(l, 0)
		if !errors.Is(err, farlog.ErrFull) {
			return err
		}
		if l.isStalled {
			l.isStalled = false // its EPOCH record needs space
			return w.openLane(l)
		}
		if err := w.drain(l); err != nil {
			return err
		}
	}
	return nil
}

func (w *mergedWorld) openWriter(l *lane, epoch uint32) error {
	farlog.FaultSetUTC(w.now.Add(l.skew))
	writer, err := farlog.OpenWriter(l.uri, farlog.WriterOptions{
		Policy: farlog.PolicyReject, CountersDir: "none",
		Deadline: 5 * time.Second, Epoch: epoch,
	})
	if err != nil {
		return err
	}
	cursors := writer.Cursors()
	if l.epochs[cursors.Epoch] || epoch != 0 && cursors.Epoch != epoch {
		writer.Close()
		return fmt.Errorf("epoch %d was asked for, %d was opened: expected one that was never opened", epoch,
			cursors.Epoch)
	}
	l.writer, l.epochs[cursors.Epoch], l.granted = writer, true, max(l.granted, cursors.Epoch)
	w.tally.Openings++
	return nil
}

// takeOver fences the writer and has another host follow it, with a clock of its own.
func (w *mergedWorld) takeOver(l *lane) error {
	former := l.writer
	l.writer, l.submitted = nil, nil
	l.stopDrain()
	defer former.Close()
	l.granted += 1 + uint32(w.random.IntN(2))
	if err := farlog.Fence(l.uri, l.granted); err != nil {
		return err
	}
	farlog.FaultKill(l.memory) // its connections are torn down
	l.skew = w.drawSkew()
	if err := w.openWriter(l, l.granted); err != nil {
		if errors.Is(err, farlog.ErrFull) {
			return nil // the drain makes space first
		}
		return err
	}
	w.tally.Takeovers++
	if position, err := former.Append(farlog.Entry{Data: []byte("fenced")}, time.Millisecond); err == nil {
		return fmt.Errorf("fenced writer of epoch %d got an acknowledgement at lsn %d", position.Epoch, position.LSN)
	}
	return nil
}

// ---- what the hosts do

// append appends a record, or some under one flush, or submits one without, and notes what is said of each.
func (w *mergedWorld) append(l *lane) error {
	farlog.FaultSetUTC(w.now.Add(l.skew))
	count := 1 + w.random.IntN(3)
	entries, positions := make([]farlog.Entry, count), make([]farlog.Position, count)
	ids := make([]uint64, count)
	for i := range entries {
		ids[i] = l.number<<32 | uint64(len(l.records)+i)
		entries[i] = farlog.Entry{Data: payloadOf(ids[i]), Class: 1}
	}
	done, submitted := 0, 0
	var err error
	if w.random.IntN(5) == 0 {
		ids = ids[:1]
		if _, err = l.writer.Submit(entries[0]); err == nil {
			l.submitted = append(l.submitted, ids[0])
		}
		submitted = 1
	} else {
		done, submitted, err = l.writer.AppendBatch(entries, 0, positions)
	}
	for _, id := range ids {
		l.records[id] = &offered{at: w.now}
	}
	for i := range min(done, submitted) {
		if err := w.acknowledge(l, ids[i], positions[i]); err != nil {
			return err
		}
	}
	if err == nil || errors.Is(err, farlog.ErrFull) || w.isDown() {
		return nil
	}
	return fmt.Errorf("append: %w", err)
}

func (w *mergedWorld) acknowledge(l *lane, id uint64, position farlog.Position) error {
	if other, isTaken := l.acked[position.LSN]; isTaken {
		return fmt.Errorf("lsn %d is acknowledged for record %#x and for %#x", position.LSN, other, id)
	}
	l.acked[position.LSN] = id
	l.records[id].isAcked, l.records[id].position = true, position
	w.tally.Acknowledged++
	return nil
}

func (w *mergedWorld) heartbeat(l *lane) error {
	farlog.FaultSetUTC(w.now.Add(l.skew))
	_, err := l.writer.Heartbeat(0)
	if err == nil || errors.Is(err, farlog.ErrFull) || w.isDown() {
		return nil
	}
	return fmt.Errorf("heartbeat: %w", err)
}

func (w *mergedWorld) drain(l *lane) error {
	isIdle, err := l.drainer.step(context.Background())
	if err == nil && !isIdle {
		l.broughtAt = w.now
	}
	return err
}

func (w *mergedWorld) drainAll(l *lane) error {
	for range 100 {
		isIdle, err := l.drainer.step(context.Background())
		if err != nil || isIdle {
			return err
		}
		l.broughtAt = w.now
	}
	return errors.New("a ring that nobody appends to was not empty after 100 batches")
}

// merge steps the merge, and looks at what a reader is given.
func (w *mergedWorld) merge(steps int) error {
	for range steps {
		isMoved, err := w.merger.Step()
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		if !isMoved {
			break
		}
	}
	return w.look()
}

// act does one thing.
func (w *mergedWorld) act() error {
	l := w.lanes[w.random.IntN(len(w.lanes))]
	switch act := w.random.IntN(64); {
	case act < 16:
		return w.append(l)
	case act < 22:
		return w.heartbeat(l)
	case act < 38:
		if !l.isStalled {
			return w.drain(l)
		}
	case act < 50:
		return w.merge(1 + w.random.IntN(3))
	case act < 58:
		w.pass(time.Duration(w.random.IntN(12)) * mergedTick)
	case act < 59:
		l.isStalled = !l.isStalled
		l.stopDrain()
	case act < 60:
		w.pass(time.Duration(w.random.IntN(150)) * mergedTick)
	case act < 61:
		return w.takeOver(l)
	case act < 62:
		w.disk.CrashAfter(w.random.IntN(8))
		return w.merge(4)
	case act < 63:
		if len(w.lanes) < mergedLanesMax {
			return w.addLane()
		}
	default:
		return w.calm()
	}
	return nil
}

func (w *mergedWorld) play() error {
	if err := w.comeUp(); err != nil {
		return err
	}
	w.plan()
	for range mergedActsMax {
		err := w.act()
		if err != nil && !w.isDown() {
			return fmt.Errorf("after crash %d: %w", w.tally.Crashes, err)
		}
		if err := w.comeUp(); err != nil {
			return err
		}
	}
	return w.settle()
}
