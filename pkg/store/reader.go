package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// ReaderOptions choose what a Reader gives. The zero value gives the application's records that count.
type ReaderOptions struct {
	IncludeControl    bool // PAD, EPOCH, HEARTBEAT, SEAL and GAP records as well
	IncludeSuperseded bool // records that a later epoch replaced as well
	// SyncedOnly holds back what the appender has not synced yet: a power cut takes nothing from the stream that was
	// given.
	SyncedOnly bool
	// Window leaves out what is far from the records of a time: further than the entry of an index before them and the
	// one behind them. What is near comes too, for GAP records have other times than what is missing: Window.Has says
	// what is in it. Which segments are needed is found by their manifests when the reader is opened; of what comes
	// later all is read. Not together with Seek.
	Window Window
	// IsOpenFast leaves out which records are superseded: finding where epochs begin may mean to read the segment that
	// is still written. Only with IncludeSuperseded.
	IsOpenFast bool
}

// Item is a record and where it lies. Its bytes are good until the next call of the reader.
type Item struct {
	record.Record
	Generation   uint64
	Segment      uint64
	Offset       int64
	IsSuperseded bool
}

// Reader goes along one stream, oldest first, across segments, also while an appender in another process writes it:
// then it may give records that are written but not yet synced. It takes no lock and writes nothing. One goroutine at a
// time. Memory: one buffer of 256 KiB or the longest record, and a few words per segment.
type Reader struct {
	store    *Store
	dir      streamDir
	stream   string
	options  ReaderOptions
	base     *Base // nil: the stream begins with its first segment
	segments []readable
	marks    []mark64

	at     int // index in segments
	file   File
	scan   *scanner
	chain  chain
	cutoff cutoff
	last   recordPlace // the last record given
	from   filter
	// seenMark is how far the segment that is still written was synced when it was last read to its end.
	seenMark int64
	// isRechecked: the end of this segment was read again after the next one had begun, so it is the end.
	isRechecked bool
	isParked    bool
	seen        Extent // of segments that are not open any more
}

// readable is what a reader knows of a segment.
type readable struct {
	found
	lowLSN uint64 // least lsn in it
	part   part
}

// mark64 is an epoch's begin with its generation.
type mark64 struct {
	generation uint64
	EpochMark
}

type recordPlace struct {
	generation uint64
	epoch      uint32
	lsn        uint64
	isAny      bool
}

// filter skips what lies before the place that was sought.
type filter struct {
	generation uint64
	lsn        uint64
	ts         uint64
	place      Place
}

// cutoff caches, for one epoch, the lsn from which on its records are superseded.
type cutoff struct {
	generation uint64
	epoch      uint32
	lsn        uint64
}

const neverSuperseded = ^uint64(0)

// OpenReader opens a stream for reading, at its start: where its base manifest says, when it has one. Errors:
// ErrNotFound, ErrCorrupt.
func (s *Store) OpenReader(stream string, options ReaderOptions) (*Reader, error) {
	r := &Reader{store: s, dir: s.streamDir(stream), stream: stream, options: options}
	if err := s.steady(stream, r.loadSegments); err != nil {
		return nil, err
	}
	if !options.Window.isAll() {
		if err := r.loadParts(); err != nil {
			return nil, err
		}
	}
	if options.IsOpenFast {
		return r, nil
	}
	if err := r.loadMarks(); err != nil {
		return nil, err
	}
	return r, nil
}

// loadMarks finds where epochs begin. Headers tell which segments hold such a place; only those are looked into.
func (r *Reader) loadMarks() error {
	for i := range r.segments {
		h := r.segments[i].header
		isLast := i == len(r.segments)-1
		if !isLast && h.PrevEpoch != 0 && r.segments[i+1].header.PrevEpoch == h.PrevEpoch {
			continue
		}
		marks, err := r.marksOf(i)
		if err != nil {
			return err
		}
		for _, m := range marks {
			r.addMark(i, m)
		}
	}
	return nil
}

func (r *Reader) addMark(i int, m EpochMark) {
	s := &r.segments[i]
	s.lowLSN = min(s.lowLSN, m.StartLSN)
	r.marks = append(r.marks, mark64{s.header.Generation, m})
	r.cutoff = cutoff{}
}

// index gives the index of a segment: from its file when it is sealed and the index is beyond doubt, else from the
// records.
func (r *Reader) index(i int) (index, error) {
	s := &r.segments[i]
	m, _, err := loadManifest(r.dir, s.number, r.store.checkSignature)
	if err != nil {
		return rebuildIndex(r.dir, s.number)
	}
	return loadIndex(r.dir, s.header, m.UsedBytes)
}

// Close closes the open segment.
func (r *Reader) Close() error {
	if r.file == nil {
		return nil
	}
	err := wrap("close", r.segments[r.at].name, r.file.Close())
	r.file = nil
	return err
}

// Park closes the open segment until the next call of Next, which goes on where the reader is, and lets go of the
// buffer: for whoever waits in many streams.
func (r *Reader) Park() error {
	if r.file == nil {
		return nil
	}
	r.scan.buf, r.scan.chunk, r.isParked = nil, nil, true
	return r.Close()
}

// unpark opens the segment again.
func (r *Reader) unpark() (err error) {
	r.file, err = r.openSegment(r.segments[r.at])
	if err == nil {
		r.scan.file, r.isParked = r.file, false
	}
	return err
}

// SeekStart goes to the first record of the stream.
func (r *Reader) SeekStart() error {
	r.from, r.last = filter{}, recordPlace{}
	return r.open(0, segmentDataOffset, true)
}

// SeekLSN goes to the record that counts at lsn, in the newest generation, or to the first one after it. An lsn beyond
// the end is waited for. Errors: ErrNotFound when the generation begins after lsn, ErrRemoved.
func (r *Reader) SeekLSN(lsn uint64) error {
	if len(r.segments) == 0 {
		return fmt.Errorf("%w: stream in %s is empty", ErrNotFound, r.dir.path)
	}
	newest := r.segments[len(r.segments)-1].header.Generation
	for i := len(r.segments) - 1; i >= 0 && r.segments[i].header.Generation == newest; i-- {
		if r.segments[i].lowLSN > lsn {
			continue
		}
		x, err := r.index(i)
		if err != nil {
			return err
		}
		r.from, r.last = filter{generation: newest, lsn: lsn}, recordPlace{}
		return r.open(i, x.offsetOfLSN(lsn), false)
	}
	if r.base != nil && r.base.Generation == newest && lsn < r.base.NextLSN {
		return r.base.removedError(r.stream)
	}
	return fmt.Errorf("%w: lsn %d: generation %d in %s begins later", ErrNotFound, lsn, newest, r.dir.path)
}

// SeekTime goes to the first record with a timestamp at or after t. Where the clock was set back, to the first place
// that reaches t.
func (r *Reader) SeekTime(t time.Time) error {
	ts := record.TimestampOf(t)
	first := 0
	for first < len(r.segments)-1 && r.segments[first+1].header.FirstTS < ts {
		first++
	}
	r.from, r.last = filter{ts: ts}, recordPlace{}
	if len(r.segments) == 0 {
		return nil
	}
	x, err := r.index(first)
	if err != nil {
		return err
	}
	if offset, ok := x.offsetOfTime(ts); ok {
		return r.open(first, offset, offset == segmentDataOffset)
	}
	return r.open(first, segmentDataOffset, true)
}

// open goes to an offset in a segment. isStart: there the log continues the segment before.
func (r *Reader) open(i int, offset int64, isStart bool) error {
	if err := r.Close(); err != nil {
		return err
	}
	r.at, r.isRechecked, r.isParked, r.seenMark = i, false, false, 0
	if i >= len(r.segments) {
		return nil
	}
	s := r.segments[i]
	file, err := r.openSegment(s)
	if err != nil {
		return err
	}
	r.seen = r.Seen()
	r.seen.Segments++
	r.file, r.scan, r.chain = file, newScanner(file, s.header.identity(), offset), chain{}
	if isStart {
		r.chain = s.header.start()
	}
	_, err = r.limit(nil)
	return err
}

func (r *Reader) openSegment(s readable) (File, error) {
	file, err := r.dir.fsys.OpenFile(s.name, os.O_RDONLY, 0)
	if isNotExist(err) {
		err = errors.Join(r.checkRemoved(s.number), err)
	}
	return file, wrap("open", s.name, err)
}

// Next gives the next record. io.EOF at the present end of the stream: calling again later gives what came since.
// Errors: ErrCorrupt, or of the file system.
func (r *Reader) Next() (Item, error) {
	for {
		if r.file == nil {
			if err := r.openNext(); err != nil {
				return Item{}, err
			}
		}
		if r.isBehindPart() {
			if err := r.leave(); err != nil {
				return Item{}, err
			}
			continue
		}
		item, err := r.decode()
		if err == nil {
			if r.isWanted(item) {
				return item, nil
			}
			continue
		}
		var failed *readError
		if errors.As(err, &failed) {
			return Item{}, wrap("read", r.segments[r.at].name, err)
		}
		if err := r.atEnd(err); err != nil {
			return Item{}, err
		}
	}
}

// Wait is Next that polls at the end of the stream until there is a record or ctx is done.
func (r *Reader) Wait(ctx context.Context, poll time.Duration) (Item, error) {
	for {
		item, err := r.Next()
		if err != io.EOF {
			return item, err
		}
		select {
		case <-ctx.Done():
			return Item{}, ctx.Err()
		case <-time.After(poll):
		}
	}
}

// openNext opens the segment that the reader was parked in, or the first one, which may not have existed when the
// reader was opened.
func (r *Reader) openNext() error {
	if r.isParked {
		return r.unpark()
	}
	if len(r.segments) == 0 {
		isBegun, err := r.lookFor(r.base.firstSegment())
		if err != nil {
			return err
		}
		if !isBegun {
			return io.EOF
		}
	}
	return r.enter(r.at)
}

// decode takes the next record of the segment into the chain.
func (r *Reader) decode() (Item, error) {
	rec, err := r.scan.next()
	if err != nil {
		return Item{}, err
	}
	if _, err := r.chain.check(&rec.Header); err != nil {
		return Item{}, err
	}
	h := r.segments[r.at].header
	if r.chain.isBegun && rec.Epoch > r.chain.Epoch || !r.chain.isBegun && h.PrevEpoch == 0 {
		r.learnEpoch(rec.Header)
	}
	item := Item{Record: rec, Generation: h.Generation, Segment: h.Number, Offset: r.scan.off}
	item.IsSuperseded = rec.LSN >= r.cutoffOf(h.Generation, rec.Epoch)
	r.chain.advance(&rec.Header, h.Align)
	r.scan.skip(rec)
	return item, nil
}

// learnEpoch takes in an epoch that began after the reader was opened.
func (r *Reader) learnEpoch(h record.Header) {
	generation := r.segments[r.at].header.Generation
	for _, m := range r.marks {
		if m.generation == generation && m.Epoch >= h.Epoch {
			return
		}
	}
	r.addMark(r.at, EpochMark{Epoch: h.Epoch, StartLSN: h.LSN, StartSeq: h.Seq})
}

func (r *Reader) cutoffOf(generation uint64, epoch uint32) uint64 {
	if r.cutoff.generation == generation && r.cutoff.epoch == epoch {
		return r.cutoff.lsn
	}
	r.cutoff = cutoff{generation: generation, epoch: epoch, lsn: neverSuperseded}
	for _, m := range r.marks {
		if m.generation == generation && m.Epoch > epoch {
			r.cutoff.lsn = min(r.cutoff.lsn, m.StartLSN)
		}
	}
	return r.cutoff.lsn
}

func (r *Reader) isWanted(item Item) bool {
	place := recordPlace{item.Generation, item.Epoch, item.LSN, true}
	if r.last.isAny && !r.last.isBefore(place) {
		return false
	}
	if item.Generation == r.from.generation && item.LSN < r.from.lsn || item.TimestampNS < r.from.ts ||
		item.Place().IsBefore(r.from.place) {
		return false
	}
	if item.IsSuperseded && !r.options.IncludeSuperseded {
		return false
	}
	if item.Flags.IsControl() && !r.options.IncludeControl {
		return false
	}
	r.last, r.from = place, filter{}
	return true
}

func (p recordPlace) isBefore(q recordPlace) bool {
	switch {
	case p.generation != q.generation:
		return p.generation < q.generation
	case p.epoch != q.epoch:
		return p.epoch < q.epoch
	}
	return p.lsn < q.lsn
}

// atEnd is called where the segment holds no further record. nil: there is something to read again.
func (r *Reader) atEnd(stop error) error {
	r.scan.forget()
	isLast, isBegun := r.at == len(r.segments)-1, false
	if isLast {
		var err error
		if isBegun, err = r.lookFor(r.segments[r.at].number + 1); err != nil {
			return err
		}
	}
	if isAnew, err := r.beginAnew(); err != nil || isAnew {
		return err
	}
	if isLast {
		isMoved, err := r.limit(stop)
		if err != nil || isMoved && !isBegun {
			return err
		}
		if !isBegun {
			return r.checkSealedEnd(stop, io.EOF)
		}
		r.isRechecked = false // what was held back until now has not been looked at
	}
	if !r.isRechecked {
		r.isRechecked = true
		return nil
	}
	next := r.segments[r.at+1].header
	isSame := next.Generation == r.segments[r.at].header.Generation
	// A chain that is not begun has seen no record of this segment: the next one begins behind one all the same.
	if isSame && (!r.chain.isBegun || next.PrevEpoch > r.chain.Epoch || next.PrevNextLSN > r.chain.LSN) {
		return r.damaged(fmt.Errorf("segment ends (%w), the next one begins after lsn %d", stop, next.PrevNextLSN))
	}
	if !isSame {
		if err := r.checkSealedEnd(stop, nil); err != nil {
			return err
		}
	}
	// A chain that is ahead of the next header has seen records that a failed sync took back; they come again and are
	// skipped.
	return r.enter(r.at + 1)
}

// checkSealedEnd: a sealed segment must end where its manifest says. otherwise is what to return when it does, or is
// not sealed.
func (r *Reader) checkSealedEnd(stop, otherwise error) error {
	m, _, err := loadManifest(r.dir, r.segments[r.at].number, r.store.checkSignature)
	if isNotExist(err) {
		return otherwise
	}
	if err != nil {
		return err
	}
	if r.scan.off < m.UsedBytes {
		if r.scan.end != 0 && r.scan.end < m.UsedBytes { // a power cut took its last mark, and not what it speaks of
			r.scan.end = m.UsedBytes
			return nil
		}
		if !r.isRechecked { // it may have been sealed after it was read
			r.isRechecked = true
			return nil
		}
		return r.damaged(fmt.Errorf("%w; the segment's manifest says %d bytes", stop, m.UsedBytes))
	}
	return otherwise
}

func (r *Reader) damaged(err error) error {
	return &CorruptError{Path: r.segments[r.at].name, LSN: r.chain.LSN, Offset: r.scan.off, Err: err}
}
