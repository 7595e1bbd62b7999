package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Comparison is what comparing one stream of two stores found. Two stores agree when the records of one are the first
// of the other: one that follows the other is behind it, not different.
type Comparison struct {
	Stream     string `json:"stream"`
	Records    uint64 `json:"records"` // the same in both, superseded and control records included, PADs left out
	OnlyHere   uint64 `json:"only_here"`
	OnlyThere  uint64 `json:"only_there"`
	Difference string `json:"difference,omitempty"` // the first one
}

// Compare compares all streams of two stores, or one, record for record: place, bytes, ring. The files may be cut
// differently. Each may be written meanwhile: what is synced counts. Errors are for what could not be read:
// ErrNotFound, ErrCorrupt, or of a file system.
func Compare(ctx context.Context, here, there *Store, stream string) ([]Comparison, error) {
	names := []string{stream}
	if stream == "" {
		ours, err := here.Streams()
		if err != nil {
			return nil, err
		}
		theirs, err := there.Streams()
		if err != nil {
			return nil, err
		}
		names = append(ours, theirs...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	list := make([]Comparison, 0, len(names))
	for _, name := range names {
		one, err := compareStream(ctx, here, there, name)
		if err != nil {
			return list, err
		}
		list = append(list, one)
	}
	return list, nil
}

// side is one of the two.
type side struct {
	dir    string
	reader *Reader // nil: the store has no such stream
	item   Item
	isEnd  bool
}

func openSide(s *Store, stream string) (*side, error) {
	one := &side{dir: s.dir}
	reader, err := s.OpenReader(stream, ReaderOptions{
		IncludeControl: true, IncludeSuperseded: true, SyncedOnly: true,
		IsOpenFast: true,
	})
	if errors.Is(err, ErrNotFound) {
		one.isEnd = true
		return one, nil
	}
	one.reader = reader
	return one, err
}

func (s *side) next() error {
	if s.isEnd {
		return nil
	}
	item, err := s.reader.Next()
	if errors.Is(err, io.EOF) {
		s.isEnd = true
		return nil
	}
	s.item = item
	return err
}

func (s *side) close() {
	if s.reader != nil {
		_ = s.reader.Close() // only read
	}
}

// rest counts the records from the present one to the end.
func (s *side) rest(ctx context.Context) (count uint64, err error) {
	for !s.isEnd && err == nil && ctx.Err() == nil {
		if !s.item.Flags.IsPad() {
			count++
		}
		err = s.next()
	}
	return count, errors.Join(err, ctx.Err())
}

func compareStream(ctx context.Context, here, there *Store, stream string) (Comparison, error) {
	result := Comparison{Stream: stream}
	a, err := openSide(here, stream)
	if err != nil {
		return result, err
	}
	defer a.close()
	b, err := openSide(there, stream)
	if err != nil {
		return result, err
	}
	defer b.close()
	if a.reader == nil && b.reader == nil {
		return result, fmt.Errorf("%w: neither store has a stream %q", ErrNotFound, stream)
	}
	for ctx.Err() == nil {
		if err := errors.Join(a.next(), b.next()); err != nil {
			return result, err
		}
		if a.isEnd || b.isEnd {
			break
		}
		if result.Difference = a.differs(b); result.Difference != "" {
			return result, nil
		}
		if !a.item.Flags.IsPad() {
			result.Records++
		}
	}
	if result.OnlyHere, err = a.rest(ctx); err == nil {
		result.OnlyThere, err = b.rest(ctx)
	}
	return result, err
}

// differs says how the present records of both sides differ.
func (s *side) differs(other *side) string {
	p, q := s.item.Place(), other.item.Place()
	switch {
	case p.IsBefore(q):
		return fmt.Sprintf("%s (seq %d) is in %s and not in %s, which goes on with %s", p, s.item.Seq, s.dir, other.dir,
			q)
	case q.IsBefore(p):
		return fmt.Sprintf("%s (seq %d) is in %s and not in %s, which goes on with %s", q, other.item.Seq, other.dir,
			s.dir, p)
	case !bytes.Equal(s.item.Raw, other.item.Raw):
		at := 0
		for at < min(len(s.item.Raw), len(other.item.Raw)) && s.item.Raw[at] == other.item.Raw[at] {
			at++
		}
		return fmt.Sprintf("%s (seq %d): byte %d of the record is another in %s (%s) than in %s (%s)", p, s.item.Seq,
			at, s.dir, s.segment(), other.dir, other.segment())
	}
	if ours, theirs := s.ring(), other.ring(); ours != theirs {
		return fmt.Sprintf("%s: the ring is %s in %s and %s in %s", p, ours, s.dir, theirs, other.dir)
	}
	return ""
}

func (s *side) segment() string {
	return fmt.Sprintf("segment %010d%s, offset %d", s.item.Segment, segmentSuffix, s.item.Offset)
}

func (s *side) ring() string {
	h := s.reader.segments[s.reader.at].header
	return h.RingUUID.String()
}

// StreamBytes is how many bytes of records of a stream were synced, the removed ones included: the same number in every
// store that got the same records. Errors: ErrNotFound.
func (s *Store) StreamBytes(stream string) (total int64, err error) {
	return s.NewMeter(stream).Bytes()
}

// listedBytes looks at all segments: newest is the first one that can change, or the last, and before is what the ones
// before it have.
func (s *Store) listedBytes(dir streamDir, list listing) (newest uint64, before, total int64, err error) {
	base, err := s.begin(dir, list)
	if err != nil {
		return 0, 0, 0, err
	}
	if base != nil {
		total = base.RemovedBytes
	}
	isFinal := true // the segments so far do not change any more
	for _, number := range list.behind(base.firstSegment()) {
		f, err := dir.look(number)
		if err != nil {
			return 0, 0, 0, err
		}
		if f.headerErr != nil {
			continue
		}
		bytes, isSealed, err := s.syncedBytes(dir, f)
		if err != nil {
			return 0, 0, 0, err
		}
		if isFinal {
			newest, before = number, total
		}
		isFinal = isFinal && isSealed
		total += bytes
	}
	return newest, before, total, nil
}
