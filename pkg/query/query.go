// Package query finds records of stores by stream, time, class, key and an expression, and writes them as JSON Lines,
// CSV or Parquet. It only reads, needs no daemon, and reads a store through pkg/store alone, whatever file system that
// is on.
package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const (
	mergedStreamsMax = 512     // bounds the files and buffers that are open at once
	readAgainMax     = 1 << 20 // bytes at the ends of segments that are read twice
)

// Request says which records are wanted. The zero value is all of the application's records that count.
type Request struct {
	Streams   []string // patterns; none: all streams
	Window    store.Window
	Classes   []uint16 // none: all
	Keys      []string // none: all
	Filter    *Filter  // nil: all
	IsMerged  bool     // in one order by time, that of each stream kept; else stream by stream
	Limit     uint64   // of rows; 0 = none
	ReadLimit int64    // of bytes that may be read; 0 = none
	// Observe is given each record that is read, in the order of its stream, farlog's own and those that are not wanted
	// too.
	Observe func(*Row) error
	// Decrypter has the keys of encrypted records; nil: none, and the first one is an error
	Decrypter *record.Decrypter
}

// Row is a record that was found. Its bytes are good until the next one.
type Row struct {
	Store  string
	Stream string
	store.Item
}

// Progress is how far a query has come.
type Progress struct {
	Rows    uint64
	Records uint64 // that were looked at
	Bytes   int64  // that were read
	Total   int64  // that will be
}

// Gaps are the GAP records of a stream that stand for records which may be of the window.
type Gaps struct {
	Stream string
	Count  int
	LSN    uint64 // of the first
	First  string // what it says
}

// Query is one question, with the streams that it reads. One goroutine at a time.
type Query struct {
	request Request
	sources []*source
	extent  store.Extent
	known   int // segments of all the streams
	records uint64
	rows    uint64
}

// Open finds the streams, and what has to be read of them. Errors: *NoStreamError, *CostError, store.ErrCorrupt, or of
// the file system.
func Open(stores []*store.Store, request Request) (*Query, error) {
	selected, err := selectStreams(stores, request.Streams)
	if err != nil {
		return nil, err
	}
	if request.Decrypter == nil {
		request.Decrypter = record.NewDecrypter(nil)
	}
	if request.IsMerged && len(selected) > mergedStreamsMax {
		return nil, fmt.Errorf("%d streams in one order: expected at most %d: narrow the pattern, or ask stream by "+
			"stream", len(selected), mergedStreamsMax)
	}
	q := &Query{request: request}
	for _, one := range selected {
		reader, err := one.store.OpenReader(one.stream, store.ReaderOptions{
			IncludeControl: true, SyncedOnly: true, Window: request.Window, // control: GAP records are told
		})
		if err != nil {
			q.Close()
			return nil, fmt.Errorf("stream %s: %w", one.stream, err)
		}
		extent := reader.Extent()
		q.extent.Segments += extent.Segments
		q.extent.Bytes += extent.Bytes
		q.known += reader.Segments()
		q.sources = append(q.sources, &source{
			query: q, reader: reader, base: reader.Base(), row: Row{Store: one.store.Dir(), Stream: one.stream},
			gaps: gapFinder{window: request.Window},
		})
	}
	if err := q.checkCost(q.extent.Bytes); err != nil {
		q.Close()
		return nil, err
	}
	return q, nil
}

// CostError is a query that would read more than it may.
type CostError struct{ Bytes, Limit int64 }

func (e *CostError) Error() string {
	return fmt.Sprintf("the query has to read %d bytes of the store, expected at most %d (--read-limit): narrow the "+
		"streams or the time, or raise the limit", e.Bytes, e.Limit)
}

func (q *Query) checkCost(bytes int64) error {
	if q.request.ReadLimit > 0 && bytes > q.request.ReadLimit {
		return &CostError{bytes, q.request.ReadLimit}
	}
	return nil
}

// Streams counts the streams that are asked.
func (q *Query) Streams() int { return len(q.sources) }

// Extent is how much has to be read, of how many segments.
func (q *Query) Extent() (extent store.Extent, segments int) { return q.extent, q.known }

// Bases are those of the streams of which records were removed that may have been in the window.
func (q *Query) Bases() (bases []*store.Base) {
	for _, s := range q.sources {
		if s.base.HasRemovedTime(q.request.Window.From) {
			bases = append(bases, s.base)
		}
	}
	return bases
}

// Gaps are those that were met.
func (q *Query) Gaps() (gaps []Gaps) {
	for _, s := range q.sources {
		if s.gaps.found.Count > 0 {
			gaps = append(gaps, s.gaps.found)
		}
	}
	return gaps
}

// Progress is how far the query has come.
func (q *Query) Progress() Progress {
	p := Progress{Rows: q.rows, Records: q.records, Total: q.extent.Bytes}
	for _, s := range q.sources {
		p.Bytes += s.bytes()
	}
	return p
}

// Close closes what is open; nothing can be lost by its errors.
func (q *Query) Close() {
	for _, s := range q.sources {
		_ = s.close()
	}
}

// Run gives the rows. look is called now and then. isLimited: there may be more rows than Limit. Errors: of ctx, those
// of each and of the filter, *CostError when the store grew meanwhile, store.ErrCorrupt with the place, or of the file
// system: rows behind it are not given.
func (q *Query) Run(ctx context.Context, each func(*Row) error, look func(Progress)) (isLimited bool, err error) {
	next := q.byStream()
	if q.request.IsMerged {
		if next, err = q.merged(ctx, look); err != nil {
			return false, err
		}
	}
	for {
		row, err := next(ctx, look)
		if row == nil || err != nil {
			return false, err
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if q.request.Limit > 0 && q.rows >= q.request.Limit {
			return true, nil
		}
		q.rows++
		if err := each(row); err != nil {
			return false, err
		}
	}
}

// lookEvery is after how many records it is looked whether to go on.
const lookEvery = 1 << 12

// step is called for each record.
func (q *Query) step(ctx context.Context, look func(Progress)) error {
	if q.records++; q.records%lookEvery != 0 {
		return nil
	}
	p := q.Progress()
	if look != nil {
		look(p)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return q.checkCost(p.Bytes - readAgainMax)
}

// Wants compares a record with the classes, the keys and the filter that are asked for, cheap things first. What cannot
// be evaluated is an error, and never a record that is left out.
func (r *Request) Wants(ctx context.Context, row *Row) (bool, error) {
	if len(r.Classes) > 0 && !slices.Contains(r.Classes, row.Class) ||
		len(r.Keys) > 0 && !slices.Contains(r.Keys, string(row.Key)) {
		return false, nil
	}
	if r.Filter == nil {
		return true, nil
	}
	return r.Filter.Matches(ctx, row)
}
