package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"path"
	"sync"
	"sync/atomic"

	"github.com/farlog/farlog/pkg/record"
)

// Appender writes one stream. It is used by one goroutine, and by one process: the stream's lock refuses a second one.
//
// Memory: a few hundred bytes per 64 KiB of the segment, and the caller's last batch, which is hashed while the disk
// works.
type Appender struct {
	store  *Store
	dir    streamDir
	source Source
	lock   io.Closer
	base   *Base // as it was when the stream was opened; nil: it begins with its first segment

	begins       atomic.Pointer[Base]  // as it is now
	signedBy     atomic.Uint64         // number of the key of the last signature; also set by the job that seals
	removing     sync.Mutex            // held by a removal, and by a check of the segments
	begun        atomic.Uint64         // the last segment with records
	missing      atomic.Pointer[error] // what a check of the segments found; nil: nothing
	failedChecks int                   // of the segments, in a row; under removing
	generation   uint64
	active       *segment // takes the next batch; nil: the next batch begins one
	ended        Anchor   // of the end of the segment before
	accepted     state    // after the last Append
	synced       state    // after the last Sync
	hash         hasher
	rollover     rollover
	tail         tail // behind the last record that recovery found
	broken       error
	isClosed     bool
}

// segment is the one that is being written.
type segment struct {
	file   File
	name   string
	header segmentHeader
	size   int64
	mark   mark
}

// state is all that an append moves; copying it keeps a place to go back to.
type state struct {
	chain   chain
	lastLSN uint64
	end     int64 // offset after the last record in the active segment
	sum     summary
}

// Checkpoint is where a stream stands: its last record, and what the next one must be.
type Checkpoint struct {
	Epoch   uint32
	LSN     uint64
	NextLSN uint64
	NextSeq uint64
	OK      bool // false: the stream holds nothing of this ring yet
}

// Last is the last record that was accepted. After OpenStream and after Sync everything up to it is synced; a Sync that
// fails takes it back to the last one that did not.
func (a *Appender) Last() Checkpoint {
	c := a.accepted.chain
	return Checkpoint{Epoch: c.Epoch, LSN: a.accepted.lastLSN, NextLSN: c.LSN, NextSeq: c.Seq, OK: c.isBegun}
}

// Append writes a batch of whole records, back to back as a reader of the ring gives them (a PAD as its 64 bytes),
// behind the last record; their fill is written zero. Records at or below the last one by (epoch, lsn) are dropped and
// counted as duplicates; PADs count as neither. CRCs are not checked again. It is durable after Sync. The batch is
// still being hashed when Append returns: its bytes must stay as they are until a later Append has returned without an
// error, or Close has returned.
//
// Errors: ErrOutOfOrder, ErrTooLarge, ErrNoSpace, ErrBroken, ErrClosed, or of the file system. Nothing of the batch is
// accepted then. Where a new segment was begun, a failed sync of the one before has the consequences that Sync states.
func (a *Appender) Append(batch []byte) (stored, duplicates int, err error) {
	if err := a.usable(); err != nil {
		return 0, 0, err
	}
	fresh, duplicates, err := a.dropStored(batch)
	if err != nil {
		return 0, duplicates, err
	}
	if len(fresh) == 0 {
		a.hash.wait() // the caller has its last batch back
		return 0, duplicates, nil
	}
	p, err := a.plan(fresh, a.active == nil || a.accepted.end+int64(len(fresh)) > a.capacity())
	if err != nil {
		return 0, duplicates, err
	}
	if err := a.moveTail(); err != nil {
		return 0, duplicates, err
	}
	if p, err = a.makePlace(p, fresh); err != nil {
		return 0, duplicates, err
	}
	if p.isFillSoiled {
		fresh = a.withZeroFill(fresh)
	}
	if err := a.write(fresh); err != nil {
		return 0, duplicates, err
	}
	a.accepted = p.next
	a.prepareNext()
	return p.stored, duplicates, nil
}

// Sync makes everything accepted durable. On an error the appender goes back to the last Sync that worked: Last says
// so, and what was appended since must be appended again. After ErrGone, too, and not by this appender: what is durable
// is not in the store. Errors: ErrNoSpace, ErrGone, ErrBroken, ErrClosed, or of the file system.
func (a *Appender) Sync() error {
	if err := a.usable(); err != nil {
		return err
	}
	isNew := false
	if a.active != nil {
		isNew = a.accepted.end != a.synced.end
		if err := a.syncActive(); err != nil {
			return err
		}
		if err := a.writeMark(); err != nil {
			return err
		}
	}
	a.sealAgain()
	if err := a.checkPlace(); err != nil {
		return err
	}
	if isNew {
		a.store.noteSynced(a.source.StreamName)
	}
	return nil
}

// Close syncs, waits for work in the background, and gives the lock back. Safe to call twice.
func (a *Appender) Close() error {
	a.removing.Lock()
	defer a.removing.Unlock()
	if a.isClosed {
		return nil
	}
	err := a.broken
	if err == nil {
		err = a.Sync()
	}
	a.isClosed = true
	a.hash.wait()
	a.rollover.collect()
	if a.rollover.retired != nil && err == nil {
		err = a.rollover.sealNow()
	}
	if a.active != nil {
		// The last mark, so that damage to any record of a closed store is told from a torn tail.
		if syncErr := a.active.file.Sync(); err == nil {
			err = wrap("sync", a.active.name, syncErr)
		}
		if closeErr := a.active.file.Close(); err == nil {
			err = wrap("close", a.active.name, closeErr)
		}
	}
	if closeErr := a.rollover.close(); err == nil {
		err = closeErr
	}
	if closeErr := a.lock.Close(); err == nil {
		err = wrap("unlock", path.Join(a.dir.path, lockName), closeErr)
	}
	return err
}

func (a *Appender) usable() error {
	switch {
	case a.isClosed:
		return fmt.Errorf("%w: %s", ErrClosed, a.dir.path)
	case a.broken != nil:
		return fmt.Errorf("%w: %s: %w", ErrBroken, a.dir.path, a.broken)
	}
	return nil
}

// makePlace begins the segment that a batch needs, or makes the active one larger, and gives the plan for that.
func (a *Appender) makePlace(p plan, fresh []byte) (plan, error) {
	if p.isRoll {
		isGrown, err := a.roll(p.first, len(fresh))
		if err != nil {
			return p, err
		}
		if !isGrown { // a segment that was just begun, whose file may be smaller than the batch
			return p, a.growActive(len(fresh))
		}
		if p, err = a.plan(fresh, false); err != nil {
			return p, err
		}
	}
	if err := a.growActive(len(fresh)); err != nil {
		return p, err
	}
	return p, a.renewHeader(p.first)
}

// dropStored cuts the records off the front of a batch that the stream already has.
func (a *Appender) dropStored(batch []byte) (fresh []byte, duplicates int, err error) {
	at := a.accepted.chain
	var h record.Header
	for len(batch) > 0 {
		length, err := a.header(batch, &h)
		if err != nil {
			return nil, duplicates, err
		}
		if !at.isBegun || h.Epoch > at.Epoch || (h.Epoch == at.Epoch && h.LSN >= at.LSN) {
			break
		}
		if !h.Flags.IsPad() {
			duplicates++
		}
		batch = batch[length:]
	}
	return batch, duplicates, nil
}

// header reads the header at the front of a batch and gives the length of its record there.
func (a *Appender) header(batch []byte, h *record.Header) (length uint64, err error) {
	if *h, err = record.ParseHeader(batch); err != nil {
		return 0, fmt.Errorf("%w: %s: after lsn %d: %w", ErrOutOfOrder, a.source.StreamName, a.accepted.lastLSN, err)
	}
	length = h.StoredLen(a.source.Align)
	if length > uint64(len(batch)) {
		return 0, fmt.Errorf("%w: %s: record at lsn %d has %d bytes, the batch ends after %d",
			ErrOutOfOrder, a.source.StreamName, h.LSN, length, len(batch))
	}
	return length, nil
}

// plan is what one walk over the headers of a batch tells.
type plan struct {
	isRoll       bool // the batch begins a segment
	next         state
	first        record.Header
	stored       int
	isFillSoiled bool // some fill is not zero
}

// plan computes the state after a batch, without touching anything.
func (a *Appender) plan(fresh []byte, isRoll bool) (plan, error) {
	p := plan{isRoll: isRoll, next: a.accepted}
	if isRoll {
		p.next.sum, p.next.end = summary{}, segmentDataOffset
	}
	var h record.Header
	for isFirst := true; len(fresh) > 0; isFirst = false {
		length, err := a.header(fresh, &h)
		if err != nil {
			return p, err
		}
		if _, err := p.next.chain.check(&h); err != nil {
			return p, fmt.Errorf("%w: %s: record at lsn %d, seq %d, epoch %d: %w",
				ErrOutOfOrder, a.source.StreamName, h.LSN, h.Seq, h.Epoch, err)
		}
		if isFirst {
			p.first = h
		}
		p.next.sum.add(&h, p.next.end, h.Epoch > p.next.chain.Epoch)
		p.next.chain.advance(&h, a.source.Align)
		p.next.lastLSN = h.LSN
		p.next.end += int64(length)
		if !h.Flags.IsPad() {
			p.stored++
		}
		from, to := h.FillBounds(int(length))
		p.isFillSoiled = p.isFillSoiled || !isZero(fresh[from:to])
		fresh = fresh[length:]
	}
	return p, nil
}

// write puts the bytes behind the last record; on failure the place is zero again.
func (a *Appender) write(fresh []byte) error {
	if _, err := a.active.file.WriteAt(fresh, a.accepted.end); err != nil {
		return a.takeBack(a.accepted, a.accepted.end+int64(len(fresh)), wrap("append to", a.active.name, err))
	}
	a.hash.write(fresh) // after the file: the hash of the batch before may take until here
	return nil
}

// withZeroFill gives a copy of a batch whose fill is zero, as verifying demands. The CRC does not cover the fill, so a
// ring gives sound records around stale bytes when a power cut, or a look at a record that was just being written,
// caught the body but not all of the fill.
func (a *Appender) withZeroFill(batch []byte) []byte {
	batch = bytes.Clone(batch)
	var h record.Header
	for rest := batch; len(rest) > 0; {
		length, err := a.header(rest, &h)
		if err != nil {
			return batch // plan walked it: cannot be
		}
		from, to := h.FillBounds(int(length))
		clear(rest[from:to])
		rest = rest[length:]
	}
	return batch
}

// takeBack returns to a state and zeroes what was written to the active segment beyond it, up to dirtyEnd. The hash
// goes back to the last sync and takes in what the state holds beyond that.
func (a *Appender) takeBack(to state, dirtyEnd int64, cause error) error {
	a.accepted = to
	if err := a.active.file.Zero(to.end, dirtyEnd-to.end); err != nil {
		a.broken = wrap("take back an append to", a.active.name, err)
		return cause
	}
	if err := a.hash.restore(a.active.file, a.synced.end, to.end); err != nil {
		a.broken = wrap("read", a.active.name, err)
	}
	return cause
}

func (a *Appender) syncActive() error {
	if a.accepted.end == a.synced.end {
		return nil
	}
	if err := a.active.file.Sync(); err != nil {
		return a.takeBack(a.synced, a.accepted.end, wrap("sync", a.active.name, err))
	}
	a.hash.keep()
	a.synced = a.accepted
	return nil
}

// writeMark says in the segment how far it is synced. The next sync makes the mark itself durable; until then it serves
// after a crash of the process.
func (a *Appender) writeMark() error {
	if a.active.mark.syncedOffset == a.synced.end || a.synced.end == segmentDataOffset {
		return nil
	}
	m := mark{syncedOffset: a.synced.end, count: a.active.mark.count + 1}
	if _, err := a.active.file.WriteAt(m.encode(a.active.header.Salt), m.offset()); err != nil {
		return wrap("mark", a.active.name, err)
	}
	a.active.mark = m
	return nil
}

// hasher makes the SHA-256 of a segment while the disk works: a batch is hashed in the background, one at a time. Only
// what needs the result waits for it: the write after this one, restore, digest.
type hasher struct {
	isInline  bool
	sum       hash.Hash
	kept      hash.Hash // as of the last sync, but for isKeepDue
	isKeepDue bool      // a sync has covered what is being hashed
	busy      chan struct{}
}

// write takes in a batch, whose bytes must stay as they are until the next wait.
func (x *hasher) write(fresh []byte) {
	x.wait()
	if x.isInline {
		_, _ = x.sum.Write(fresh)
		return
	}
	x.busy = make(chan struct{})
	go func(done chan struct{}) {
		_, _ = x.sum.Write(fresh)
		close(done)
	}(x.busy)
}

func (x *hasher) wait() {
	if x.busy != nil {
		<-x.busy
		x.busy = nil
	}
	if x.isKeepDue {
		x.kept, x.isKeepDue = cloneHash(x.sum), false
	}
}

// keep remembers the hash of what is synced, once it is made: the sync does not wait for it.
func (x *hasher) keep() { x.isKeepDue = true }

// restore goes back to the last sync and takes in the bytes of the file from there to end.
func (x *hasher) restore(file io.ReaderAt, from, end int64) error {
	x.wait()
	x.sum = cloneHash(x.kept)
	_, err := io.Copy(x.sum, io.NewSectionReader(file, from, end-from))
	return err
}

func (x *hasher) begin(header []byte) {
	x.wait()
	sum := sha256.New()
	_, _ = sum.Write(header)
	x.sum, x.kept = sum, cloneHash(sum)
}

func (x *hasher) digest() [sha256.Size]byte {
	x.wait()
	return [sha256.Size]byte(x.sum.Sum(nil))
}

// cloneHash copies the state of a SHA-256, which always can be cloned.
func cloneHash(sum hash.Hash) hash.Hash {
	copied, err := sum.(hash.Cloner).Clone()
	if err != nil {
		panic(fmt.Sprintf("clone SHA-256: %v", err))
	}
	return copied
}
