package query

import (
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// gapFinder finds the GAP records that stand for records which may be of a window. The time of a GAP record is not that
// of what is missing. A route's GAP record says from when to when that was. In the place of a damaged or refused record
// it does not: then what is missing is of a time between the records before and behind.
type gapFinder struct {
	window store.Window
	found  Gaps

	before   uint64 // time of the last record that is neither a GAP nor a PAD
	isBefore bool
	open     Gaps   // those since then
	last     uint64 // time of the last of them
}

// see takes each record of the stream.
func (f *gapFinder) see(row *Row) {
	switch ts := row.TimestampNS; {
	case row.Flags&record.FlagGap != 0:
		f.seeGap(row)
	case row.Flags.IsPad(): // may be of a drain as well
	default:
		f.end(ts)
		f.before, f.isBefore = ts, true
	}
}

func (f *gapFinder) seeGap(row *Row) {
	one := Gaps{Stream: row.Stream, Count: 1, LSN: row.LSN, First: "it cannot be decoded"}
	gap, err := record.DecodeGapPayload(row.Payload)
	if err == nil {
		one.First = gap.String()
	}
	if err == nil && !gap.IsRefused {
		if f.window.Meets(record.TimestampOf(gap.FromTime), record.TimestampOf(gap.ToTime)) {
			f.found.add(one)
		}
		return
	}
	f.open.add(one)
	f.last = row.TimestampNS
}

// end is called with the time of the record behind GAP records; behind the last ones of a stream, with their own.
func (f *gapFinder) end(ts uint64) {
	if f.open.Count == 0 {
		return
	}
	low, high := min(f.last, ts), ts
	if f.isBefore {
		low, high = min(f.before, ts), max(f.before, ts)
	}
	if f.window.Meets(low, high) {
		f.found.add(f.open)
	}
	f.open = Gaps{}
}

func (g *Gaps) add(more Gaps) {
	count := g.Count + more.Count
	if g.Count == 0 {
		*g = more
	}
	g.Count = count
}
