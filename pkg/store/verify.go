package store

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/record"
)

// VerifyOptions choose what Verify looks at.
type VerifyOptions struct {
	Stream string // "" = all streams
	// PublicKeys are to be trusted instead of the store's own: a signature of another key of the store fails.
	PublicKeys []ed25519.PublicKey
	Anchors    []Anchor // kept elsewhere: a store that is behind one of them, or other, fails
	Progress   func(VerifyProgress)
	IsExcerpt  bool // the store is an excerpt: of sealed segments the records may be left out
}

// VerifyProgress is told after every few megabytes.
type VerifyProgress struct {
	Stream  string
	Segment uint64
	Bytes   int64
	Records uint64
}

// Verify reads a store from its first byte to its last and checks segment headers, the CRC of every record, the lsn,
// seq and epoch chains, that the fill of every record is zero, and the manifests: hash, chain and signature. It may run
// beside an appender and then speaks of what had been synced when it came by. Damage is in the report; the error is for
// what could not be read. Errors: ErrNotFound.
func (s *Store) Verify(ctx context.Context, options VerifyOptions) (Report, error) {
	report := Report{StoreUUID: s.uuid.String()}
	streams, err := s.Streams()
	if err != nil {
		return report, err
	}
	if options.Stream != "" {
		isThere := false
		for _, name := range streams {
			isThere = isThere || name == options.Stream
		}
		if !isThere {
			return report, fmt.Errorf("%w: store %s has no stream %q", ErrNotFound, s.dir, options.Stream)
		}
		streams = []string{options.Stream}
	}
	if err := s.checkPublicKey(&report); err != nil {
		return report, err
	}
	for _, stream := range streams {
		one, err := s.verifyStream(ctx, stream, options)
		if err != nil {
			return report, err
		}
		report.Streams = append(report.Streams, one)
	}
	s.addMissingStreams(&report, options)
	return report, nil
}

// checkPublicKey compares the public key that people take elsewhere, to verify with it, with the one that verifies
// here.
func (s *Store) checkPublicKey(report *Report) error {
	name := path.Join(s.dir, publicKeyName)
	raw, err := readFile(s.fsys, name, 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		report.IsKeyMissing = true
		return nil
	}
	if err != nil {
		return wrap("read public key", name, err)
	}
	public, err := ParsePublicKey(raw)
	switch {
	case err != nil:
		report.KeyFailure = fmt.Sprintf("%s: %s: expected the public key that %s has", publicKeyName, err, identityName)
	case !s.key.Equal(public):
		report.KeyFailure = fmt.Sprintf("%s has public key %x, and %s has %x: expected the same: one of them was "+
			"replaced", publicKeyName, []byte(public), identityName, []byte(s.key))
	}
	return nil
}

// VerifySegment checks one segment file by itself: header, CRCs, fill and chains of its records. Its place among others
// and its manifest need the store.
func VerifySegment(ctx context.Context, fsys FS, name string, progress func(VerifyProgress)) (StreamReport, error) {
	v := &verifier{
		ctx: ctx, dir: streamDir{fsys: fsys, path: path.Dir(name)},
		options: VerifyOptions{Progress: progress},
	}
	file, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return v.report, wrap("open", name, err)
	}
	defer file.Close()
	head, err := readFront(file)
	if err != nil {
		return v.report, wrap("read", name, err)
	}
	if head.headerErr != nil {
		return v.report, fmt.Errorf("%w: %s: %w", ErrNotAStore, name, head.headerErr)
	}
	f := found{front: head, number: head.header.Number, name: name}
	v.begun = []found{f}
	v.report.Stream, v.report.StreamID = head.header.StreamName, head.header.StreamID
	v.enter(head.header)
	if _, err := v.walk(f); err != nil {
		if !v.isFailure(err) {
			return v.report, err
		}
		return v.report, nil
	}
	v.report.Segments = 1
	return v.report, v.noteTail(f)
}

// verifier goes along one stream.
type verifier struct {
	ctx     context.Context
	store   *Store
	dir     streamDir
	options VerifyOptions
	report  StreamReport

	list     listing
	base     *Base // nil: the stream begins with its first segment
	begun    []found
	at       chain // after the last record of the segments before
	marks    []EpochMark
	previous [sha256.Size]byte // of the last manifest's file
	before   [sha256.Size]byte // of the segment before
	told     int64             // bytes at the last progress
	lastWalk walked
	sealed   uint64 // the last segment with a manifest
	anchors  anchorCheck
	// cutGeneration is that of the last segment of which an excerpt has no records; 0: none.
	cutGeneration uint64

	headerKey, manifestKey, baseKey uint64 // numbers of the keys of the last signature of each kind
}

// failed is a Failure on its way up.
type failed struct{ failure Failure }

func (f *failed) Error() string { return f.failure.String() }

func fail(name string, lsn uint64, offset int64, format string, args ...any) error {
	return &failed{Failure{
		Segment: path.Base(name), LSN: lsn, Offset: offset,
		Reason: fmt.Errorf(format, args...).Error(),
	}}
}

// isFailure puts damage into the report.
func (v *verifier) isFailure(err error) bool {
	var f *failed
	if errors.As(err, &f) {
		v.report.Failure = &f.failure
		return true
	}
	var c *CorruptError
	if errors.As(err, &c) {
		v.report.Failure = &Failure{Segment: path.Base(c.Path), LSN: c.LSN, Offset: c.Offset, Reason: c.Err.Error()}
		return true
	}
	return false
}

func (v *verifier) run() error {
	if err := v.survey(); err != nil {
		if v.isFailure(err) {
			return nil
		}
		return err
	}
	for i := range v.begun {
		if err := v.segment(i); err != nil {
			if v.isFailure(err) {
				return nil
			}
			return err
		}
		v.report.Segments++
	}
	if err := v.checkAnchoredEnd(); err != nil {
		_ = v.isFailure(err)
	}
	return nil
}

// survey finds the segments and what is missing among them.
func (v *verifier) survey() (err error) {
	if v.list, err = v.dir.list(); err != nil {
		return err
	}
	v.report.MovedTails = v.list.tails
	if err := v.checkBases(); err != nil {
		return err
	}
	there := v.list.behind(v.base.firstSegment())
	if err := v.dir.checkNumbers(there, v.base.firstSegment()); err != nil {
		return err
	}
	for number := range v.list.manifests {
		if number >= v.base.firstSegment()+uint64(len(there)) {
			return fail(v.dir.file(number, segmentSuffix), 0, 0, "segment is missing: its manifest is there")
		}
	}
	var segments []found
	for _, number := range there {
		f, err := v.dir.look(number)
		if err != nil {
			return err
		}
		f.isSealed = v.list.manifests[number]
		segments = append(segments, f)
	}
	v.begun, _ = splitBegun(segments)
	if err := v.base.checkThere(v.dir, len(v.begun)); err != nil {
		return err
	}
	if err := v.checkAnchoredStore(); err != nil {
		return err
	}
	return v.checkAnchoredBase()
}

// segment checks one segment and its place.
func (v *verifier) segment(i int) error {
	f := v.begun[i]
	if err := v.checkPlace(i); err != nil {
		return err
	}
	if v.isCut(f) {
		return v.cutSegment(f)
	}
	digest, err := v.walk(f)
	if err != nil {
		return err
	}
	if f.isSealed {
		if err := v.checkManifest(f, digest); err != nil {
			return err
		}
		if err := v.checkIndex(f); err != nil {
			return err
		}
		v.report.SealedSegments++
	} else if i < len(v.begun)-2 {
		return fail(f.name, f.header.FirstLSN, 0, "manifest is missing: expected %s",
			path.Base(v.dir.file(f.number, manifestSuffix)))
	} else {
		v.noteUnsealed(f)
		if err := v.noteTail(f); err != nil {
			return err
		}
	}
	v.at, v.before = v.lastWalk.chain, digest
	return v.checkAnchoredSegment(f, digest)
}

// checkPlace checks a header against the segment before.
func (v *verifier) checkPlace(i int) error {
	f := v.begun[i]
	if f.headerErr != nil {
		return fail(f.name, v.at.LSN, 0, "%w", f.headerErr)
	}
	h := f.header
	v.report.StreamID = h.StreamID
	switch {
	case h.Number != f.number:
		return fail(f.name, h.FirstLSN, 0, "header says segment %d", h.Number)
	case h.StoreUUID != v.store.uuid:
		return fail(f.name, h.FirstLSN, 0, "segment is of store %s, expected %s", h.StoreUUID, v.store.uuid)
	case h.StreamName != v.report.Stream:
		return fail(f.name, h.FirstLSN, 0, "segment is of stream %q, expected %q", h.StreamName, v.report.Stream)
	}
	if err := h.checkSigned(v.signedAfter(&v.headerKey)); err != nil {
		return fail(f.name, h.FirstLSN, 0, "%w", err)
	}
	v.noteKey(h)
	if i == 0 && v.base != nil {
		return v.enterBehindBase(f)
	}
	if i == 0 {
		if h.Generation != 1 || h.PrevEpoch != 0 {
			return fail(f.name, h.FirstLSN, 0,
				"first segment has generation %d and continues epoch %d, expected 1 and 0", h.Generation, h.PrevEpoch)
		}
		v.enter(h)
		return nil
	}
	before := v.begun[i-1]
	if h.Version < before.header.Version {
		return fail(f.name, h.FirstLSN, 0, "header has version %d, the one before has %d", h.Version,
			before.header.Version)
	}
	if err := h.checkBefore(v.before, before.isSealed, i == len(v.begun)-1); err != nil {
		return fail(before.name, v.at.LSN, segmentDataOffset, "%w", err)
	}
	isSameRing := h.RingUUID == before.header.RingUUID && h.Salt == before.header.Salt
	switch {
	case h.Generation == before.header.Generation && isSameRing:
		if start := h.start(); start != v.at {
			return fail(before.name, v.at.LSN, v.lastWalk.end, "%w; %s begins after lsn %d, seq %d, epoch %d",
				v.lastWalk.stop, path.Base(f.name), start.LSN, start.Seq, start.Epoch)
		}
	case h.Generation == before.header.Generation+1 && !isSameRing && h.PrevEpoch == 0:
		v.enter(h)
	default:
		return fail(f.name, h.FirstLSN, 0, "generation %d of ring %s after generation %d of ring %s",
			h.Generation, h.RingUUID, before.header.Generation, before.header.RingUUID)
	}
	return nil
}

// enter begins a generation in the report.
func (v *verifier) enter(h segmentHeader) {
	v.at, v.marks = chain{}, nil
	v.report.Generations = append(v.report.Generations, GenerationReport{
		Generation: h.Generation, RingUUID: h.RingUUID.String(),
		FirstLSN: h.FirstLSN, NextLSN: h.FirstLSN, FirstSeq: h.FirstSeq, NextSeq: h.FirstSeq,
	})
}

// walk checks the records of a segment.
func (v *verifier) walk(f found) (digest [sha256.Size]byte, err error) {
	file, err := v.dir.fsys.OpenFile(f.name, os.O_RDONLY, 0)
	if err != nil {
		return digest, wrap("open", f.name, err)
	}
	defer file.Close()
	sum := sha256.New()
	_, _ = sum.Write(f.header.encode())
	w, err := walkSegment(file, f.name, func(rec record.Record, offset int64, isRewind bool) error {
		return v.visit(f, sum, rec, offset, isRewind)
	})
	v.lastWalk = w
	if err != nil {
		return digest, err
	}
	if w.end < w.mark.syncedOffset || (f.isSealed && !errors.Is(w.stop, record.ErrNothing)) {
		v.countDuplicate(file, w)
		return digest, fail(f.name, w.chain.LSN, w.end, "%w", w.stop)
	}
	if f.isSealed {
		if err := v.checkBehind(file, f, w.end); err != nil {
			return digest, err
		}
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}

// visit takes one record into the report.
func (v *verifier) visit(f found, sum hash.Hash, rec record.Record, offset int64, isRewind bool) error {
	if err := v.ctx.Err(); err != nil {
		return err
	}
	if err := checkFill(f.name, rec, offset); err != nil {
		return err
	}
	_, _ = sum.Write(rec.Raw)
	if isRewind {
		if err := v.rewind(f, rec, offset); err != nil {
			return err
		}
	}
	if n := len(v.marks); n == 0 || rec.Epoch > v.marks[n-1].Epoch {
		v.marks = append(v.marks, EpochMark{Epoch: rec.Epoch, StartLSN: rec.LSN, StartSeq: rec.Seq})
	}
	r := &v.report
	switch {
	case rec.Flags.IsPad():
	case rec.Flags.IsControl():
		r.ControlRecords++
	default:
		r.Records++
	}
	r.Bytes += int64(len(rec.Raw))
	if t := rec.Time(); r.FirstTime.IsZero() {
		r.FirstTime, r.LastTime = t, t
	} else if t.After(r.LastTime) {
		r.LastTime = t
	}
	g := &r.Generations[len(r.Generations)-1]
	g.NextLSN, g.LastEpoch = rec.LSN+rec.Extent(f.header.Align), rec.Epoch
	if g.NextSeq = rec.Seq; !rec.Flags.IsPad() {
		g.NextSeq++
	}
	v.tell(f)
	return v.checkAnchorsAt(f, sum, offset+int64(len(rec.Raw)))
}

const progressBytes = 4 << 20

func (v *verifier) tell(f found) {
	if v.options.Progress == nil || v.report.Bytes-v.told < progressBytes {
		return
	}
	v.told = v.report.Bytes
	v.options.Progress(VerifyProgress{
		Stream: v.report.Stream, Segment: f.number, Bytes: v.report.Bytes,
		Records: v.report.Records,
	})
}

var errStopWalk = errors.New("walk far enough")

// rewind checks that an epoch which goes back begins where a record that counted began, with its seq, and moves what it
// replaces from the counts to the superseded. It walks the segments concerned again; that is rare and keeps memory
// small.
func (v *verifier) rewind(at found, first record.Record, offset int64) error {
	isFound, isAnyBefore, replaced, control := false, false, uint64(0), uint64(0)
	for _, f := range v.begun {
		if f.header.Generation != at.header.Generation || f.number > at.number {
			continue
		}
		file, err := v.dir.fsys.OpenFile(f.name, os.O_RDONLY, 0)
		if err != nil {
			return wrap("open", f.name, err)
		}
		_, err = walkSegment(file, f.name, func(rec record.Record, off int64, _ bool) error {
			if f.number == at.number && off >= offset {
				return errStopWalk
			}
			if v.isReplaced(rec.Header) {
				return nil
			}
			isAnyBefore = isAnyBefore || rec.LSN <= first.LSN
			if rec.LSN < first.LSN {
				return nil
			}
			isFound = isFound || rec.LSN == first.LSN && rec.Seq == first.Seq
			switch {
			case rec.Flags.IsPad():
			case rec.Flags.IsControl():
				control++
			default:
				replaced++
			}
			return nil
		})
		_ = file.Close()
		if err != nil && !errors.Is(err, errStopWalk) {
			return err
		}
	}
	if !isFound && !v.isInCut(at.header.Generation) && (isAnyBefore || !v.isBeforeBase(at, first)) {
		return fail(at.name, first.LSN, offset,
			"epoch %d goes back to lsn %d with seq %d, where no record with that seq begins",
			first.Epoch, first.LSN, first.Seq)
	}
	v.report.Records -= replaced
	v.report.ControlRecords -= control
	v.report.Superseded += replaced + control
	v.noteBack(at, first.Header)
	return nil
}

func (v *verifier) isReplaced(h record.Header) bool {
	for _, m := range v.marks {
		if m.Epoch > h.Epoch && m.StartLSN <= h.LSN {
			return true
		}
	}
	return false
}

// countDuplicate looks whether a walk stopped at a valid record that was there before.
func (v *verifier) countDuplicate(file io.ReaderAt, w walked) {
	rec, err := newScanner(file, w.header.identity(), w.end).next()
	if err != nil || !w.chain.isBegun {
		return
	}
	if rec.Epoch < w.chain.Epoch || rec.Epoch == w.chain.Epoch && rec.LSN < w.chain.LSN {
		v.report.Duplicates++
	}
}
