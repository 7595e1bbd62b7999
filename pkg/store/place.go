package store

import (
	"fmt"

	"github.com/farlog/farlog/pkg/record"
)

// Place names a record of a stream: it is the same in every store that holds the stream from the same rings. Along a
// stream places grow.
type Place struct {
	Generation uint64 // which ring of the stream, from 1; 0 = before everything
	Epoch      uint32
	LSN        uint64
}

// IsBefore compares two places of one stream.
func (p Place) IsBefore(q Place) bool {
	switch {
	case p.Generation != q.Generation:
		return p.Generation < q.Generation
	case p.Epoch != q.Epoch:
		return p.Epoch < q.Epoch
	}
	return p.LSN < q.LSN
}

// Place is where the item stands in its stream.
func (i Item) Place() Place { return Place{i.Generation, i.Epoch, i.LSN} }

// SeekPlace goes to the first record at or behind a place, superseded ones included where they are asked for. A place
// beyond the end is waited for. Blocks for the walk to it, along one segment. Errors: ErrRemoved, when records at or
// behind the place were.
func (r *Reader) SeekPlace(p Place) error {
	if err := r.checkSought(p); err != nil {
		return err
	}
	at := 0
	for i := range r.segments {
		h := r.segments[i].header
		start := Place{h.Generation, h.PrevEpoch, h.PrevNextLSN}
		if h.PrevEpoch == 0 {
			start = Place{Generation: h.Generation}
		}
		if !p.IsBefore(start) {
			at = i
		}
	}
	r.from, r.last = filter{place: p}, recordPlace{}
	return r.open(at, segmentDataOffset, true)
}

// Generation is what the store knows of one ring of a stream.
type Generation struct {
	Number uint64
	Source
}

// Generations lists the rings that a stream came from, oldest first, as far as they have begun when the reader was
// opened or has read.
func (r *Reader) Generations() []Generation {
	var list []Generation
	for _, s := range r.segments {
		h := s.header
		if n := len(list); n > 0 && list[n-1].Number == h.Generation {
			continue
		}
		list = append(list, Generation{h.Generation, Source{
			StreamName: h.StreamName, StreamID: h.StreamID, RingUUID: h.RingUUID, Salt: h.Salt, Align: h.Align,
			RecordLenMax: h.RecordLenMax,
		}})
	}
	return list
}

// beginAnew looks where a reader waits at the start of a segment whether that has got another header: the batch that it
// was begun for did not come into it, and then the stream got another ring. isAnew: read again, by the new header. It
// is asked after the look for the next segment, which begins behind records of this one.
func (r *Reader) beginAnew() (isAnew bool, err error) {
	s := &r.segments[r.at]
	if r.scan.off != segmentDataOffset {
		return false, nil
	}
	front, err := readFront(r.file)
	if err != nil {
		return false, wrap("read", s.name, err)
	}
	// an unsound one may just be being written; where it is not, limit says so
	if front.headerErr != nil || front.header == s.header {
		return false, nil
	}
	s.front, s.lowLSN = front, front.header.FirstLSN
	return true, r.open(r.at, segmentDataOffset, true)
}

// limit looks how far the segment that is still written was synced. It keeps a reader of synced records from what lies
// behind, and every reader from taking synced bytes that are gone for the end of the stream. isMoved: look again.
func (r *Reader) limit(stop error) (isMoved bool, err error) {
	before := r.scan.end
	r.scan.end = 0
	if r.at < len(r.segments)-1 {
		return r.options.SyncedOnly, nil
	}
	if stop == nil && !r.options.SyncedOnly {
		return false, nil
	}
	s := r.segments[r.at]
	front, err := readFront(r.file)
	switch {
	case err != nil:
		return false, wrap("read", s.name, err)
	case front.headerErr != nil && stop != nil:
		return false, nil // it is just being written
	case front.headerErr != nil:
		return false, &CorruptError{Path: s.name, Err: front.headerErr}
	}
	synced := max(front.mark.syncedOffset, segmentDataOffset)
	isShort, isSeen := stop != nil && synced > r.scan.off, synced == before
	if r.options.SyncedOnly {
		r.scan.end = synced
	} else {
		isSeen, r.seenMark = synced == r.seenMark, synced // it may have come after the bytes were read
	}
	if isShort && isSeen {
		return false, r.damaged(fmt.Errorf("%w; everything below offset %d was synced", stop, synced))
	}
	return synced > r.scan.off && (isShort || r.options.SyncedOnly), nil
}

// FS is the file system that the store lies in, for what is derived from it and kept beside it.
func (s *Store) FS() FS { return s.fsys }

// Identity is what the records of a generation are checked against.
func (g Generation) Identity() record.Identity { return g.identity() }

func (p Place) String() string {
	return fmt.Sprintf("generation %d, epoch %d, lsn %d", p.Generation, p.Epoch, p.LSN)
}
