package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// retired is a full, synced segment that waits for its manifest.
type retired struct {
	file   File
	name   string
	header segmentHeader
	sum    summary
	end    chain
	used   int64
	digest [sha256.Size]byte
}

// spare is a segment file that nothing was written to.
type spare struct {
	file   File
	name   string
	number uint64
	size   int64
}

// rollover prepares the next segment and seals the last one beside the appends. At most one job is under way; what
// fails in the background is tried again in the foreground when the result is needed, and only then returned.
type rollover struct {
	dir           streamDir
	sign          func([]byte) ([]byte, error)
	segmentBytes  int64
	isSynchronous bool
	isDerived     bool
	now           func() time.Time

	retired    *retired
	spare      *spare
	previous   [sha256.Size]byte // of the last manifest's file
	sealed     atomic.Uint64     // the segment of that manifest
	before     [sha256.Size]byte // of the last segment that takes no more records
	nextNumber uint64            // of the segment to prepare when there is no spare
	prepared   uint64            // the last number that a job was to prepare
	isUnsigned bool              // the last attempt to seal got no signature
	job        chan outcome
}

type outcome struct {
	isSealed bool
	err      error // why it is not
	previous [sha256.Size]byte
	spare    *spare
}

// start begins what there is to do: sealing first, because it frees disk space; then a spare of that size, 0 = none.
func (r *rollover) start(spareBytes int64) {
	r.collect()
	todo, previous, number := r.retired, r.previous, r.nextNumber
	needsSpare := spareBytes > 0 && r.spare == nil
	if needsSpare {
		r.prepared = number
	}
	job := func() outcome {
		var done outcome
		if todo != nil {
			done.previous, done.err = r.seal(todo, previous)
			done.isSealed = done.err == nil
		}
		if needsSpare {
			// An error comes back from take, which tries again.
			done.spare, _ = r.prepare(number, spareBytes)
		}
		return done
	}
	if r.isSynchronous {
		r.merge(job())
		return
	}
	r.job = make(chan outcome, 1)
	go func(result chan<- outcome) { result <- job() }(r.job)
}

// collect waits for the job under way and takes its results.
func (r *rollover) collect() {
	if r.job != nil {
		r.merge(<-r.job)
		r.job = nil
	}
}

func (r *rollover) merge(done outcome) {
	r.isUnsigned = errors.Is(done.err, ErrSigning)
	if done.isSealed {
		r.sealed.Store(r.retired.header.Number)
		r.previous = done.previous
		r.retired = nil
	}
	if done.spare != nil {
		r.spare = done.spare
	}
}

// sealNow seals in the foreground what the background could not. Call collect first.
func (r *rollover) sealNow() error {
	if r.retired == nil {
		return nil
	}
	digest, err := r.seal(r.retired, r.previous)
	r.merge(outcome{isSealed: err == nil, previous: digest, err: err})
	return err
}

// take gives the spare segment, prepared now if the background could not.
func (r *rollover) take() (*spare, error) {
	if r.spare == nil {
		prepared, err := r.prepare(r.nextNumber, r.firstBytes())
		if err != nil {
			return nil, err
		}
		r.spare = prepared
	}
	return r.spare, nil
}

func (r *rollover) close() error {
	err := r.closeSpare()
	if r.retired != nil {
		if closeErr := r.retired.file.Close(); err == nil {
			err = wrap("close", r.retired.name, closeErr)
		}
		r.retired = nil
	}
	return err
}

func (r *rollover) closeSpare() error {
	if r.spare == nil {
		return nil
	}
	err := wrap("close", r.spare.name, r.spare.file.Close())
	r.spare = nil
	return err
}

// prepare makes a segment file and makes it durable, directory entry included.
func (r *rollover) prepare(number uint64, size int64) (*spare, error) {
	name := r.dir.file(number, segmentSuffix)
	tmp := name + tmpSuffix
	file, err := r.dir.fsys.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o640)
	if err != nil {
		return nil, wrap("prepare", tmp, err)
	}
	err = file.Allocate(size)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = r.dir.fsys.Rename(tmp, name)
	}
	if err == nil {
		err = r.dir.fsys.SyncDir(r.dir.path)
	}
	if err != nil {
		_ = file.Close()
		// What is left under the temporary name takes space; the next appender would remove it as well.
		_ = r.dir.fsys.Remove(tmp)
		return nil, wrap("prepare", name, err)
	}
	return &spare{file: file, name: name, number: number, size: size}, nil
}

// seal writes index and manifest of a segment, makes them durable, and cuts the file to what is used.
func (r *rollover) seal(s *retired, previous [sha256.Size]byte) (digest [sha256.Size]byte, err error) {
	raw, err := encodeManifest(newManifest(s.header, s.sum, s.end, s.used, s.digest, previous, r.now()), r.sign)
	if err != nil {
		return digest, err
	}
	x := index{entries: s.sum.entries(), marks: s.sum.marks}
	indexName := r.dir.file(s.header.Number, indexSuffix)
	if err := writeFile(r.dir.fsys, indexName, x.encode(s.header, s.used), 0o640); err != nil {
		return digest, err
	}
	if err := writeFile(r.dir.fsys, r.dir.file(s.header.Number, manifestSuffix), raw, 0o440); err != nil {
		return digest, err
	}
	if err := r.dir.fsys.SyncDir(r.dir.path); err != nil {
		return digest, wrap("sync", r.dir.path, err)
	}
	// The segment is sealed. What follows only tidies up; a failure is made good by the next appender that opens.
	_ = r.finishSealed(s.file, s.used)
	_ = s.file.Close()
	return sha256.Sum256(raw), nil
}

// finishSealed cuts a sealed segment to its used bytes and makes it read-only: in this order, because a crash that
// takes the cut and leaves the mode would leave a file that only root can open to cut it. A derived segment stays
// writable: where its manifest is taken away first, or comes later, it is one that takes records.
func (r *rollover) finishSealed(file File, used int64) error {
	if err := file.Truncate(used); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if r.isDerived {
		return nil
	}
	return file.SetReadOnly()
}

// sealAgain starts the sealing that waits for a signature, when it is time to ask for one again.
func (a *Appender) sealAgain() {
	r := &a.rollover
	select {
	case done := <-r.job: // never of none
		r.merge(done)
		r.job = nil
	default:
	}
	if r.retired != nil && r.job == nil && r.isUnsigned && a.store.signing.resting() == nil {
		r.start(a.spareBytes())
	}
}

// roll begins a new segment whose first record is the given one. The one before is synced first and sealed in the
// background. The new header is signed before that: while nothing can be signed, the active segment grows instead.
func (a *Appender) roll(first record.Header, batchLen int) (isGrown bool, err error) {
	if capacity := a.rollover.segmentBytes - segmentDataOffset; int64(batchLen) > capacity {
		return false, fmt.Errorf("%w: %s: %d bytes, expected at most %d", ErrTooLarge, a.source.StreamName, batchLen,
			capacity)
	}
	a.rollover.collect()
	err = a.rollover.sealNow()
	var header segmentHeader
	if err == nil {
		header, err = a.nextHeader(first)
	}
	// What is derived has the same bytes on every rerun: it waits.
	if errors.Is(err, ErrSigning) && a.active != nil && !a.rollover.isDerived {
		if growErr := a.growActive(batchLen); growErr != nil {
			return true, fmt.Errorf("%w; %w", err, growErr)
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := a.retire(); err != nil {
		return false, err
	}
	next, err := a.rollover.take()
	if err != nil {
		a.rollover.start(a.spareBytes())
		return false, err
	}
	if err := a.begin(next, header); err != nil {
		return false, err
	}
	a.rollover.spare = nil
	a.rollover.nextNumber = next.number + 1
	a.rollover.start(a.spareBytes())
	return false, nil
}

// retire syncs the active segment and hands it over for sealing.
func (a *Appender) retire() error {
	if a.active == nil {
		return nil
	}
	if err := a.syncActive(); err != nil {
		return err
	}
	// With its last mark a segment tells by itself where it ends.
	if err := a.writeMark(); err != nil {
		return err
	}
	a.rollover.before = a.hash.digest()
	a.rollover.retired = &retired{
		file: a.active.file, name: a.active.name, header: a.active.header, sum: a.accepted.sum, end: a.accepted.chain,
		used: a.accepted.end, digest: a.rollover.before,
	}
	a.ended = endAnchor(a.active.header, a.accepted.chain, a.accepted.end, a.rollover.before)
	a.active = nil
	a.accepted.end, a.accepted.sum = segmentDataOffset, summary{}
	a.synced = a.accepted
	return nil
}

// begin makes a spare the active segment. Its header is durable before the first record is written.
func (a *Appender) begin(next *spare, header segmentHeader) error {
	if err := writeHeader(next.file, next.name, header); err != nil {
		return err
	}
	a.active = &segment{file: next.file, name: next.name, header: header, size: next.size}
	a.begun.Store(next.number)
	a.accepted.end, a.accepted.sum = segmentDataOffset, summary{}
	a.synced = a.accepted
	a.hash.begin(header.encode())
	return nil
}

func writeHeader(file File, name string, header segmentHeader) error {
	if _, err := file.WriteAt(header.encode(), 0); err != nil {
		return wrap("begin", name, err)
	}
	return wrap("begin", name, file.Sync())
}

// renewHeader writes the header of the active segment again when its first batch was taken back and another one comes
// first.
func (a *Appender) renewHeader(first record.Header) error {
	if a.accepted.end != segmentDataOffset {
		return nil
	}
	header := a.newHeader(a.active.header.Number, first, a.active.header.CreatedNS)
	header.Signature = a.active.header.Signature
	if header == a.active.header {
		return nil
	}
	header, err := header.sign(a.rollover.sign)
	if err != nil {
		return err
	}
	if err := writeHeader(a.active.file, a.active.name, header); err != nil {
		return err
	}
	a.active.header = header
	a.hash.begin(header.encode())
	return nil
}

// nextHeader makes the header of the segment behind the active one, as that is now.
func (a *Appender) nextHeader(first record.Header) (segmentHeader, error) {
	header := a.newHeader(a.rollover.nextNumber, first, uint64(a.rollover.now().UnixNano()))
	if a.active != nil {
		header.PrevSHA256 = a.hash.digest()
	}
	return header.sign(a.rollover.sign)
}

func (a *Appender) newHeader(number uint64, first record.Header, createdNS uint64) segmentHeader {
	header := segmentHeader{
		Version: segmentVersion, PrevSHA256: a.rollover.before,
		StoreUUID: a.store.uuid, RingUUID: a.source.RingUUID, Salt: a.source.Salt, Align: a.source.Align,
		RecordLenMax: a.source.RecordLenMax, Number: number, Generation: a.generation,
		FirstLSN: first.LSN, FirstSeq: first.Seq, FirstTS: first.TimestampNS,
		StreamID: a.source.StreamID, StreamName: a.source.StreamName, CreatedNS: createdNS,
	}
	if at := a.accepted.chain; at.isBegun {
		header.PrevNextLSN, header.PrevNextSeq, header.PrevEpoch = at.LSN, at.Seq, at.Epoch
	}
	return header
}
