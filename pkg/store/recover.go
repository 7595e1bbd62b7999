package store

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/record"
)

// OpenStream takes the stream's lock, recovers what a crash left (docs/reference/format.md section 6), and stands ready
// to append. The stream is made when the store has none of that name. When source names another ring than the last one,
// the stream begins a new generation. Errors: ErrLocked (the text says who holds it), ErrGone, ErrCorrupt, ErrInvalid,
// ErrNoSpace.
func (s *Store) OpenStream(source Source) (*Appender, error) {
	if err := source.validate(s.options.SegmentBytes); err != nil {
		return nil, err
	}
	if err := s.checkPlace(); err != nil {
		return nil, err
	}
	if err := s.CheckKey(); err != nil {
		return nil, err
	}
	dir := s.streamDir(source.StreamName)
	if err := s.fsys.Mkdir(dir.path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, wrap("make stream", dir.path, err)
	}
	if err := s.fsys.SyncDir(path.Dir(dir.path)); err != nil {
		return nil, wrap("sync", path.Dir(dir.path), err)
	}
	lock, err := s.fsys.Lock(path.Join(dir.path, lockName), holderText())
	if errors.Is(err, ErrLocked) {
		return nil, wrap("open stream", source.StreamName, err)
	}
	if err != nil {
		return nil, wrap("lock", path.Join(dir.path, lockName), err)
	}
	a := &Appender{
		store: s, dir: dir, source: source, lock: lock, hash: hasher{isInline: s.options.IsSynchronous},
		rollover: rollover{
			dir: dir, segmentBytes: s.options.SegmentBytes,
			isSynchronous: s.options.IsSynchronous, isDerived: s.options.isDerived, now: s.options.Now,
		},
	}
	a.rollover.sign = a.sign
	if err := a.recover(); err != nil {
		a.abandon()
		return nil, err
	}
	a.begun.Store(a.lastBegun())
	a.begins.Store(a.base)
	a.rollover.start(a.spareBytes())
	return a, nil
}

// noteSigned takes a signature of any key of the store; what comes behind it is signed by no older one.
func (a *Appender) noteSigned(statement, signature []byte) error {
	var number uint64
	err := a.store.checkAndNote(&number)(statement, signature)
	a.raiseSigned(number)
	return err
}

// sign signs with the newest key that is there, which is no older than that of the signature before.
func (a *Appender) sign(statement []byte) ([]byte, error) {
	signature, number, err := a.store.signAtLeast(statement, a.signedBy.Load())
	if err == nil {
		a.raiseSigned(number)
	}
	return signature, err
}

// raiseSigned never lowers: the job that seals signs beside the appender.
func (a *Appender) raiseSigned(number uint64) {
	for {
		before := a.signedBy.Load()
		if number <= before || a.signedBy.CompareAndSwap(before, number) {
			return
		}
	}
}

// abandon closes what a failed opening had opened.
func (a *Appender) abandon() {
	if a.active != nil {
		_ = a.active.file.Close()
	}
	_ = a.rollover.close()
	_ = a.lock.Close()
}

// found is one segment as recovery found it.
type found struct {
	front
	number   uint64
	name     string
	size     int64
	isSealed bool
}

// recover brings the stream's directory into the state that section 6 describes and the appender to its end.
func (a *Appender) recover() error {
	segments, err := a.survey()
	if err != nil {
		return err
	}
	begun, blank := splitBegun(segments)
	if err := a.checkBegun(begun); err != nil {
		return err
	}
	if err := a.resumeBase(begun); err != nil {
		return err
	}
	sealed := 0
	for sealed < len(begun) && begun[sealed].isSealed {
		sealed++
	}
	if sealed > 0 {
		if err := a.resumeSealed(begun[sealed-1]); err != nil {
			return err
		}
	}
	if sealed > 0 && sealed < len(begun) {
		if err := begun[sealed].header.checkBefore(a.rollover.before, true, true); err != nil {
			return &CorruptError{Path: begun[sealed-1].name, Err: err}
		}
	}
	for i := sealed; i < len(begun); i++ {
		if i < len(begun)-1 {
			err = a.sealLeftOver(begun[i], begun[i+1], i == len(begun)-2)
		} else {
			err = a.resumeActive(begun[i])
		}
		if err != nil {
			return err
		}
	}
	if err := a.changeRing(begun); err != nil {
		return err
	}
	return a.resumeSpare(blank)
}

// survey lists the segments with their fronts, removes temporary files, and makes the directory as it is seen durable:
// what a killed process renamed may not be yet.
func (a *Appender) survey() ([]found, error) {
	list, err := a.dir.list()
	if err != nil {
		return nil, err
	}
	for _, name := range list.temporary {
		name = path.Join(a.dir.path, name)
		if err := a.dir.fsys.Remove(name); err != nil {
			return nil, wrap("remove", name, err)
		}
	}
	if err := a.dir.fsys.SyncDir(a.dir.path); err != nil {
		return nil, wrap("sync", a.dir.path, err)
	}
	if a.base, err = a.store.begin(a.dir, list); err != nil {
		return nil, err
	}
	there := list.behind(a.base.firstSegment())
	if err := a.dir.checkNumbers(there, a.base.firstSegment()); err != nil {
		return nil, err
	}
	// What a removal left. It takes space and does no harm: the next removal reports what cannot be taken away.
	_ = a.dir.sweep(list, a.base.firstSegment())
	segments := make([]found, len(there))
	for i, number := range there {
		if segments[i], err = a.dir.look(number); err != nil {
			return nil, err
		}
		segments[i].isSealed = list.manifests[number]
	}
	return segments, nil
}

func (d streamDir) look(number uint64) (found, error) {
	f := found{number: number, name: d.file(number, segmentSuffix)}
	file, err := d.fsys.OpenFile(f.name, os.O_RDONLY, 0)
	if err != nil {
		return f, wrap("open", f.name, err)
	}
	defer file.Close()
	if f.front, err = readFront(file); err != nil {
		return f, wrap("read", f.name, err)
	}
	if f.size, err = file.Size(); err != nil {
		return f, wrap("read", f.name, err)
	}
	return f, nil
}

// splitBegun parts the segments that have a header from the never begun ones behind them.
func splitBegun(segments []found) (begun, blank []found) {
	i := len(segments)
	for i > 0 && segments[i-1].headerErr != nil && segments[i-1].isBlank && !segments[i-1].isSealed {
		i--
	}
	return segments[:i], segments[i:]
}

// checkBegun checks headers, their identity, and that sealed segments come first.
func (a *Appender) checkBegun(begun []found) error {
	for i, f := range begun {
		damaged := func(format string, args ...any) error {
			return &CorruptError{Path: f.name, LSN: f.header.FirstLSN, Err: fmt.Errorf(format, args...)}
		}
		switch {
		case f.headerErr != nil:
			return damaged("%w", f.headerErr)
		case f.header.StoreUUID != a.store.uuid:
			return damaged("segment is of store %s, expected %s", f.header.StoreUUID, a.store.uuid)
		case f.header.Number != f.number:
			return damaged("segment says it is number %d", f.header.Number)
		case f.header.StreamName != a.source.StreamName:
			return damaged("segment is of stream %q, expected %q", f.header.StreamName, a.source.StreamName)
		case f.isSealed && i > 0 && !begun[i-1].isSealed:
			return &CorruptError{
				Path: a.dir.file(begun[i-1].number, manifestSuffix), LSN: begun[i-1].header.FirstLSN,
				Err: fmt.Errorf("manifest of the segment %w: the segment behind it has one", ErrMissing),
			}
		case i > 0 && begun[i-1].header.Version > f.header.Version:
			return damaged("header has version %d, the one before has %d", f.header.Version, begun[i-1].header.Version)
		case f.isSealed: // its manifest speaks for its header
			continue
		}
		if err := f.header.checkSigned(a.noteSigned); err != nil {
			return damaged("%w", err)
		}
	}
	return nil
}

// resumeSealed takes the state from the last manifest and makes good a crash between manifest and cut.
func (a *Appender) resumeSealed(f found) error {
	m, raw, err := loadManifest(a.dir, f.number, a.noteSigned)
	if err != nil {
		return err
	}
	if f.size > m.UsedBytes {
		file, err := a.dir.fsys.OpenFile(f.name, os.O_RDWR, 0)
		if err != nil {
			return wrap("open", f.name, err)
		}
		err = a.rollover.finishSealed(file, m.UsedBytes)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return wrap("cut", f.name, err)
		}
	}
	if _, err := hex.Decode(a.rollover.before[:], []byte(m.SHA256)); err != nil {
		return &CorruptError{Path: a.dir.file(f.number, manifestSuffix), Err: fmt.Errorf("sha256: %w", err)}
	}
	a.rollover.previous = sha256.Sum256(raw)
	a.rollover.sealed.Store(f.number)
	a.ended = endAnchor(f.header, m.end(), m.UsedBytes, a.rollover.before)
	a.resumeAt(f, m.end(), m.LastLSN)
	return nil
}

// resumeAt says that the stream stands at the end of a segment that takes no more records.
func (a *Appender) resumeAt(f found, end chain, lastLSN uint64) {
	a.generation = f.header.Generation
	a.rollover.nextNumber = f.number + 1
	a.accepted = state{chain: end, lastLSN: lastLSN, end: segmentDataOffset}
	a.synced = a.accepted
}

// sealLeftOver seals a segment whose sealing a crash interrupted. Its records were synced before the next one got its
// header, and are what they were then. isNewest: no other segment has a header behind the next; then its sealing may
// wait for the signer.
func (a *Appender) sealLeftOver(f, next found, isNewest bool) error {
	file, w, digest, err := a.walkForAppend(f)
	if err != nil {
		return err
	}
	h := next.header
	isSame := h.RingUUID == f.header.RingUUID && h.Salt == f.header.Salt
	if !isSame {
		_ = file.Close()
		return w.damaged(f.name,
			fmt.Errorf("manifest is missing: %s begins with another ring, before which this segment was sealed",
				path.Base(next.name)))
	}
	if h.PrevNextLSN != w.chain.LSN || h.PrevNextSeq != w.chain.Seq || h.PrevEpoch != w.chain.Epoch {
		_ = file.Close()
		return w.damaged(f.name, fmt.Errorf("segment ends (%w), the next one begins after lsn %d", w.stop,
			h.PrevNextLSN))
	}
	if err := h.checkBefore(digest, false, isNewest); err != nil {
		_ = file.Close()
		return w.damaged(f.name, err)
	}
	last := mark{syncedOffset: w.end, count: w.mark.count + 1}
	if _, err := file.WriteAt(last.encode(f.header.Salt), last.offset()); err != nil {
		_ = file.Close()
		return wrap("mark", f.name, err)
	}
	a.rollover.before = digest
	a.rollover.retired = &retired{
		file: file, name: f.name, header: f.header, sum: w.sum, end: w.chain, used: w.end,
		digest: digest,
	}
	if err := a.rollover.sealNow(); err != nil && !(errors.Is(err, ErrSigning) && isNewest) {
		return err
	}
	a.ended = endAnchor(f.header, w.chain, w.end, digest)
	a.resumeAt(f, w.chain, w.sum.lastLSN)
	return nil
}

// walkForAppend walks an unsealed segment and hashes it. A walk that ends before the mark means that synced bytes are
// gone; a fill that is not zero, that bytes were altered: the appender writes none.
func (a *Appender) walkForAppend(f found) (File, walked, [sha256.Size]byte, error) {
	var digest [sha256.Size]byte
	file, err := a.dir.fsys.OpenFile(f.name, os.O_RDWR, 0)
	if err != nil {
		return nil, walked{}, digest, wrap("open", f.name, err)
	}
	a.hash.begin(f.header.encode())
	w, err := walkSegment(file, f.name, func(rec record.Record, offset int64, _ bool) error {
		_, _ = a.hash.sum.Write(rec.Raw)
		return checkFill(f.name, rec, offset)
	})
	if err == nil && w.end < w.mark.syncedOffset {
		err = w.damaged(f.name, fmt.Errorf("%w; everything below offset %d was synced", w.stop, w.mark.syncedOffset))
	}
	if err != nil {
		_ = file.Close()
		return nil, walked{}, digest, err
	}
	return file, w, a.hash.digest(), nil
}

// resumeActive makes the last segment ready to take the next record: what is kept is made durable. What lies behind it
// stays until the next record comes, so that the caller can compare Last with what the ring has released before any
// byte changes.
func (a *Appender) resumeActive(f found) error {
	file, w, _, err := a.walkForAppend(f)
	if err != nil {
		return err
	}
	err = a.rewriteUnmarked(file, &w)
	if err == nil {
		a.tail, err = findTail(file, f, w.end)
	}
	if err != nil {
		_ = file.Close()
		return wrap("recover", f.name, err)
	}
	if !w.sum.isAny {
		// It has a header and nothing else: as good as a spare. Its header is written again when it is begun.
		a.rollover.spare = &spare{file: file, name: f.name, number: f.number, size: f.size}
		a.rollover.nextNumber = f.number
		return nil
	}
	a.generation = f.header.Generation
	a.rollover.nextNumber = f.number + 1
	a.active = &segment{file: file, name: f.name, header: f.header, size: f.size, mark: w.mark}
	a.accepted = state{chain: w.chain, lastLSN: w.sum.lastLSN, end: w.end, sum: w.sum}
	a.synced = a.accepted
	a.hash.keep()
	if err := a.writeMark(); err != nil {
		return err
	}
	return a.shrinkActive(max(a.tail.to, w.end))
}

// changeRing begins a new generation when the stream's ring is another one than that of its last record.
func (a *Appender) changeRing(begun []found) error {
	last := a.rollover.nextNumber // the segments before it hold records
	var of *found
	for i := range begun {
		if begun[i].number < last {
			of = &begun[i]
		}
	}
	if of == nil {
		return a.changeRingOfBase()
	}
	if of.header.isRing(a.source) {
		return a.checkSameRing(of.header)
	}
	if err := a.checkNotFormer(); err != nil {
		return err
	}
	for _, f := range begun {
		if f.number < last && f.header.isRing(a.source) {
			return fmt.Errorf("%w: stream %s: ring %s was left for ring %s in segment %d and cannot come back",
				ErrInvalid, a.source.StreamName, a.source.RingUUID, of.header.RingUUID, of.number)
		}
	}
	if err := a.moveTail(); err != nil {
		return err
	}
	if err := a.rollover.sealNow(); err != nil {
		return err
	}
	if err := a.retire(); err != nil {
		return err
	}
	if err := a.rollover.sealNow(); err != nil {
		return err
	}
	a.generation++
	a.accepted = state{end: segmentDataOffset}
	a.synced = a.accepted
	return nil
}

// checkSameRing: what a ring is formatted with does not change.
func (a *Appender) checkSameRing(h segmentHeader) error {
	if h.Align != a.source.Align || h.RecordLenMax != a.source.RecordLenMax || h.StreamID != a.source.StreamID {
		return fmt.Errorf("%w: stream %s: ring %s has align %d, record_len_max %d, stream_id %d; the store knows it "+
			"with %d, %d, %d",
			ErrInvalid, a.source.StreamName, a.source.RingUUID, a.source.Align, a.source.RecordLenMax,
			a.source.StreamID, h.Align, h.RecordLenMax, h.StreamID)
	}
	return nil
}

// resumeSpare keeps the first never begun segment as the spare, and removes the others.
func (a *Appender) resumeSpare(blank []found) error {
	a.rollover.nextNumber = cmp.Or(a.rollover.nextNumber, a.base.firstSegment())
	for i := len(blank) - 1; i >= 0; i-- {
		f := blank[i]
		if f.number == a.rollover.nextNumber && a.rollover.spare == nil {
			file, err := a.dir.fsys.OpenFile(f.name, os.O_RDWR, 0)
			if err != nil {
				return wrap("open", f.name, err)
			}
			a.rollover.spare = &spare{file: file, name: f.name, number: f.number, size: f.size}
			continue
		}
		if err := a.dir.fsys.Remove(f.name); err != nil {
			return wrap("remove", f.name, err)
		}
		// One after the other, from the end, so that no crash leaves a hole in the numbers.
		if err := a.dir.fsys.SyncDir(a.dir.path); err != nil {
			return wrap("sync", a.dir.path, err)
		}
	}
	return a.shrinkSpare()
}
