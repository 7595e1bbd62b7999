package store

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/farlog/farlog/pkg/record"
)

// How much of a segment is read at a time: a little at first, then twice as much each time, up to scanChunkLen. A
// longer record makes the buffer grow to its length.
const (
	scanChunkFirst = 16 << 10
	scanChunkLen   = 256 << 10
)

// scanner reads whole, checked records one after the other from a segment. It knows nothing of their order.
type scanner struct {
	file  io.ReaderAt
	id    record.Identity
	off   int64
	end   int64 // nothing from here on is looked at; 0 = the file's end
	buf   []byte
	chunk []byte // unread part of buf, beginning at off
	total int64  // of bytes that were read
}

func newScanner(file io.ReaderAt, id record.Identity, off int64) *scanner {
	return &scanner{file: file, id: id, off: off}
}

// readError is a failed read, as opposed to bytes that hold no record.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// next decodes the record at the scanner's offset without moving. The end of the file reads as record.ErrNothing. The
// record's bytes are good until the next call.
func (s *scanner) next() (record.Record, error) {
	if err := s.fill(record.HeaderLen); err != nil {
		return record.Record{}, err
	}
	if len(s.chunk) == 0 {
		return record.Record{}, record.ErrNothing
	}
	rec, err := record.Decode(s.chunk, s.id)
	if !errors.Is(err, record.ErrShort) || len(s.chunk) < record.HeaderLen {
		return rec, err
	}
	header, err := record.ParseHeader(s.chunk)
	if err != nil {
		return rec, err
	}
	if err := s.fill(int(header.StoredLen(s.id.Align))); err != nil {
		return rec, err
	}
	return record.Decode(s.chunk, s.id)
}

// skip moves over a record that next gave.
func (s *scanner) skip(rec record.Record) {
	s.off += int64(len(rec.Raw))
	s.chunk = s.chunk[len(rec.Raw):]
}

// forget drops what was read, so that the next call sees what a writer did since.
func (s *scanner) forget() { s.chunk = nil }

func (s *scanner) fill(need int) error {
	if len(s.chunk) >= need {
		return nil
	}
	want := max(need, min(max(2*len(s.buf), scanChunkFirst), scanChunkLen))
	if len(s.buf) < want {
		s.buf = make([]byte, want)
	}
	buf := s.buf
	if s.end != 0 {
		buf = buf[:max(0, min(int64(len(buf)), s.end-s.off))]
	}
	n, err := s.file.ReadAt(buf, s.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return &readError{err}
	}
	s.chunk, s.total = s.buf[:n], s.total+int64(n)
	return nil
}

// walked is what a walk over a segment found.
type walked struct {
	front
	sum   summary
	chain chain // after the last record
	end   int64 // offset after the last record
	stop  error // why there is no record at end
}

// walkSegment walks a segment from its header to the first position that holds no record of the log. visit, which may
// be nil, sees every record. Errors: a bad header (*CorruptError), failed reads, those of visit.
func walkSegment(file io.ReaderAt, name string, visit func(rec record.Record, offset int64, isRewind bool) error,
) (walked, error) {
	head, err := readFront(file)
	if err != nil {
		return walked{}, wrap("read", name, err)
	}
	if head.headerErr != nil {
		return walked{}, &CorruptError{Path: name, Err: head.headerErr}
	}
	w := walked{front: head, chain: head.header.start(), end: segmentDataOffset}
	scan := newScanner(file, head.header.identity(), segmentDataOffset)
	for {
		rec, err := scan.next()
		if err != nil {
			var failed *readError
			if errors.As(err, &failed) {
				return walked{}, wrap("read", name, err)
			}
			w.stop = err
			return w, nil
		}
		isRewind, err := w.accept(rec.Header)
		if err != nil {
			w.stop = err
			return w, nil
		}
		if visit != nil {
			if err := visit(rec, scan.off, isRewind); err != nil {
				return w, err
			}
		}
		scan.skip(rec)
		w.end = scan.off
	}
}

// checkFill: the bytes between payload and trailer, which no CRC covers, are zero. The offset told is that of the first
// one that is not.
func checkFill(name string, rec record.Record, offset int64) error {
	from, _ := rec.FillBounds(len(rec.Raw))
	for i, b := range rec.Fill() {
		if b != 0 {
			return &CorruptError{
				Path: name, LSN: rec.LSN, Offset: offset + int64(from+i),
				Err: fmt.Errorf("byte %#02x in the fill between payload and trailer, expected zero", b),
			}
		}
	}
	return nil
}

// accept takes a record into chain and summary, or tells why it does not belong there.
func (w *walked) accept(h record.Header) (isRewind bool, err error) {
	if !w.sum.isAny && (h.LSN != w.header.FirstLSN || h.Seq != w.header.FirstSeq) {
		return false, fmt.Errorf("%w: first record has lsn %d and seq %d, the segment's header says %d and %d",
			record.ErrLSN, h.LSN, h.Seq, w.header.FirstLSN, w.header.FirstSeq)
	}
	isRewind, err = w.chain.check(&h)
	if err != nil {
		return false, err
	}
	w.sum.add(&h, w.end, h.Epoch > w.chain.Epoch)
	w.chain.advance(&h, w.header.Align)
	return isRewind, nil
}

// damaged makes the error for a walk that ended where it should not.
func (w *walked) damaged(name string, reason error) error {
	return &CorruptError{Path: name, LSN: w.chain.LSN, Offset: w.end, Err: reason}
}

// WalkSegment shows the valid records of one segment file to visit, PADs and control records included, up to the first
// position that holds none. Errors: ErrCorrupt for a bad header or a segment that ends below its mark, those of visit,
// or of the file system.
func WalkSegment(fsys FS, name string, visit func(stream string, rec record.Record) error) error {
	file, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return wrap("open", name, err)
	}
	defer file.Close()
	head, err := readFront(file)
	if err != nil {
		return wrap("read", name, err)
	}
	w, err := walkSegment(file, name, func(rec record.Record, _ int64, _ bool) error {
		return visit(head.header.StreamName, rec)
	})
	if err == nil && w.end < w.mark.syncedOffset {
		err = w.damaged(name, fmt.Errorf("%w; everything below offset %d was synced", w.stop, w.mark.syncedOffset))
	}
	return err
}
