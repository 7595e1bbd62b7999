package query

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/store"
)

// selected is a stream that is asked.
type selected struct {
	store  *store.Store
	stream string
}

// NoStreamError is a pattern that no stream matches.
type NoStreamError struct {
	Pattern string
	Known   []string // streams that there are
}

const namedMax = 5 // streams in an error

func (e *NoStreamError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("stream %q: the store has no stream at all", e.Pattern)
	}
	more := ""
	if len(e.Known) > namedMax {
		more = fmt.Sprintf(" and %d more", len(e.Known)-namedMax)
	}
	return fmt.Sprintf(
		"stream %q: no stream matches: expected a name, or a pattern such as desk7/**, of %s%s",
		e.Pattern,
		strings.Join(e.Known[:min(namedMax, len(e.Known))], ", "),
		more,
	)
}

// selectStreams gives the streams that a pattern matches, by name. Each pattern matches some.
func selectStreams(stores []*store.Store, patterns []string) (list []selected, err error) {
	isMet := map[string]bool{}
	var known []string
	for _, one := range stores {
		streams, err := one.Streams()
		if err != nil {
			return nil, err
		}
		known = append(known, streams...)
		for _, stream := range streams {
			isWanted := len(patterns) == 0
			for _, wanted := range patterns {
				if pattern.Covers([]string{wanted}, stream) {
					isWanted, isMet[wanted] = true, true
				}
			}
			if isWanted {
				list = append(list, selected{one, stream})
			}
		}
	}
	slices.Sort(known)
	for _, wanted := range patterns {
		if !isMet[wanted] {
			return nil, &NoStreamError{wanted, slices.Compact(known)}
		}
	}
	slices.SortStableFunc(list, func(a, b selected) int { return strings.Compare(a.stream, b.stream) })
	return list, nil
}

// Streams gives the names of the streams of a store that one of the patterns matches; without patterns all. Errors:
// *NoStreamError, or of the file system.
func Streams(one *store.Store, patterns []string) (names []string, err error) {
	list, err := selectStreams([]*store.Store{one}, patterns)
	for _, s := range list {
		names = append(names, s.stream)
	}
	return names, err
}

// source gives the rows of one stream.
type source struct {
	query  *Query
	base   *store.Base
	reader *store.Reader // nil: it was read to its end
	read   int64         // bytes, then
	row    Row
	gaps   gapFinder
}

func (s *source) bytes() int64 {
	if s.reader == nil {
		return s.read
	}
	return s.reader.Seen().Bytes
}

// close gives the buffers back as well.
func (s *source) close() error {
	if s.reader == nil {
		return nil
	}
	s.read = s.bytes()
	err := s.reader.Close()
	s.reader = nil
	return err
}

// next gives the next row that is wanted; nil: there is none.
func (s *source) next(ctx context.Context, look func(Progress)) (*Row, error) {
	for {
		item, err := s.reader.Next()
		if errors.Is(err, io.EOF) {
			s.gaps.end(s.gaps.last)
			return nil, s.close()
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", s.row.Stream, err)
		}
		if err := s.query.step(ctx, look); err != nil {
			return nil, err
		}
		s.row.Item = item
		s.gaps.see(&s.row)
		if observe := s.query.request.Observe; observe != nil {
			if err := observe(&s.row); err != nil {
				return nil, err
			}
		}
		if item.Flags.IsControl() || !s.query.request.Window.Has(item.TimestampNS) {
			continue
		}
		if s.row.Record, err = s.query.request.Decrypter.Decrypt(item.Record); err != nil {
			return nil, fmt.Errorf("stream %s: %w", s.row.Stream, err)
		}
		isWanted, err := s.query.request.Wants(ctx, &s.row)
		if err != nil {
			return nil, fmt.Errorf("stream %s, lsn %d: %w", s.row.Stream, item.LSN, err)
		}
		if isWanted {
			return &s.row, nil
		}
	}
}

type nextRow func(ctx context.Context, look func(Progress)) (*Row, error)

// byStream goes through one stream after the other.
func (q *Query) byStream() nextRow {
	at := 0
	return func(ctx context.Context, look func(Progress)) (*Row, error) {
		for ; at < len(q.sources); at++ {
			if row, err := q.sources[at].next(ctx, look); row != nil || err != nil {
				return row, err
			}
		}
		return nil, nil
	}
}

// heads are the streams with a row, that of the oldest first; of the same time by name, and by the order of the stores.
type heads []*source

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	a, b := &h[i].row, &h[j].row
	switch {
	case a.TimestampNS != b.TimestampNS:
		return a.TimestampNS < b.TimestampNS
	case a.Stream != b.Stream:
		return a.Stream < b.Stream
	}
	return a.Store < b.Store
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(s any)   { *h = append(*h, s.(*source)) }
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// merged goes through all streams at once. A stream whose clock was set back keeps its own order.
func (q *Query) merged(ctx context.Context, look func(Progress)) (nextRow, error) {
	var h heads
	for _, s := range q.sources {
		row, err := s.next(ctx, look)
		if err != nil {
			return nil, err
		}
		if row != nil {
			h = append(h, s)
		}
	}
	heap.Init(&h)
	isGiven := false // the row of the first one
	return func(ctx context.Context, look func(Progress)) (*Row, error) {
		if isGiven {
			row, err := h[0].next(ctx, look)
			if err != nil {
				return nil, err
			}
			if row == nil {
				heap.Pop(&h)
			} else {
				heap.Fix(&h, 0)
			}
		}
		if isGiven = len(h) > 0; !isGiven {
			return nil, nil
		}
		return &h[0].row, nil
	}, nil
}
