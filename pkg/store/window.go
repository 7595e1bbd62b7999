package store

import (
	"math"
)

// Window is a span of the times of records, in nanoseconds since 1970. The zero value is all time.
type Window struct {
	From uint64
	To   uint64 // the first time that is not in it; 0 = no end
}

func (w Window) isAll() bool { return w == Window{} }

// Has reports whether a time is in it.
func (w Window) Has(ts uint64) bool { return w.Meets(ts, ts) }

// Meets reports whether a time from low to high is in it.
func (w Window) Meets(low, high uint64) bool { return high >= w.From && (w.To == 0 || low < w.To) }

// times are those of the records of a segment, or of an entry of its index.
type times struct {
	low, high uint64
	isSigned  bool // by a manifest
}

// isNear reports whether a time in the window lies among those of one of a list and a neighbor, or between them. A GAP
// record has not the time of the record that it stands for, but that of the record before, or of the drain. What it
// stands for is of a time between that of the record before and that of the record behind.
func (w Window) isNear(list []times, i int) bool {
	for _, near := range list[max(i-1, 0):min(i+2, len(list))] {
		if w.Meets(min(list[i].low, near.low), max(list[i].high, near.high)) {
			return true
		}
	}
	return false
}

// part is what of a segment may hold records of a window, or GAP records in their place. The zero value is all of it.
type part struct {
	isEmpty  bool
	from, to int64 // offsets; 0 = its begin, its end
}

// Extent is how much of a stream is read.
type Extent struct {
	Segments int
	Bytes    int64 // of records
}

// Extent is how much a reader that was just opened will read of what is there: of sealed segments only what has records
// near the window, by their signed manifests and their indexes.
func (r *Reader) Extent() (e Extent) {
	for _, s := range r.segments {
		end := s.part.to
		if end == 0 {
			end = s.used()
		}
		if !s.part.isEmpty && end > segmentDataOffset {
			e.Segments++
			e.Bytes += end - max(s.part.from, segmentDataOffset)
		}
	}
	return e
}

// Segments counts the segments that the reader knows.
func (r *Reader) Segments() int { return len(r.segments) }

// Seen is how much the reader has read. Bytes that are read ahead count.
func (r *Reader) Seen() Extent {
	seen := r.seen
	if r.scan != nil {
		seen.Bytes += r.scan.total
	}
	return seen
}

// used is where the records of a segment end, as far as is known without a walk.
func (s *readable) used() int64 {
	if s.isSealed {
		return s.size
	}
	return s.mark.syncedOffset
}

// loadParts finds out which parts of the segments may hold records of the window.
func (r *Reader) loadParts() error {
	list, err := r.loadTimes(r.store.checkSignature)
	if err != nil {
		return err
	}
	return inParallel(len(list), func(i int) (err error) {
		r.segments[i].part, err = r.partOf(list, i)
		return err
	})
}

// partOf needs an index that agrees with the manifest: without them all of the segment is read.
func (r *Reader) partOf(list []times, i int) (part, error) {
	s := &r.segments[i]
	if !list[i].isSigned {
		return part{}, nil
	}
	if !r.options.Window.isNear(list, i) {
		return part{isEmpty: true}, nil
	}
	raw, err := readFile(r.dir.fsys, r.dir.file(s.number, indexSuffix), indexBytesMax)
	if err != nil && !isNotExist(err) {
		return part{}, wrap("read", r.dir.file(s.number, indexSuffix), err)
	}
	x, err := decodeIndex(raw, s.header, s.size)
	if err != nil || !x.agrees(list[i]) {
		return part{}, nil
	}
	return x.partOf(r.options.Window, list[max(i-1, 0):i], list[i+1:min(i+2, len(list))]), nil
}

// agrees reports whether an index may be of all records of a segment, as far as the manifest says. Nobody signs an
// index: Verify compares it with the records.
func (x index) agrees(signed times) bool {
	low, high := uint64(math.MaxUint64), uint64(0)
	for i, e := range x.entries {
		low, high = min(low, e.minTS), max(high, e.maxTS)
		isNext := i == 0 && e.offset == segmentDataOffset || i > 0 && e.offset > x.entries[i-1].offset
		if !isNext || e.minTS > e.maxTS {
			return false
		}
	}
	return low == signed.low && high == signed.high
}

// partOf is from the first entry with records near the window to the last. before and behind are the segments there.
func (x index) partOf(w Window, before, behind []times) part {
	list := append(make([]times, 0, len(x.entries)+2), before...)
	for _, e := range x.entries {
		list = append(list, times{low: e.minTS, high: e.maxTS})
	}
	list = append(list, behind...)
	p := part{isEmpty: true}
	for i, e := range x.entries {
		if !w.isNear(list, len(before)+i) {
			continue
		}
		if p.isEmpty {
			p = part{from: e.offset}
		}
		if p.to = 0; i < len(x.entries)-1 {
			p.to = x.entries[i+1].offset
		}
	}
	return p
}

// isBehindPart reports whether the rest of the open segment has no record near the window.
func (r *Reader) isBehindPart() bool {
	p := r.segments[r.at].part
	return p.to != 0 && r.scan.off >= p.to
}

// enter opens a segment where the window begins in it, or the next one that has some of it. Behind all of them it
// stands at the end of the last one.
func (r *Reader) enter(i int) error {
	for i < len(r.segments)-1 && r.segments[i].part.isEmpty {
		i++
	}
	p := r.segments[i].part
	if p.isEmpty {
		return r.openEnd(i)
	}
	err := r.open(i, max(p.from, segmentDataOffset), p.from <= segmentDataOffset)
	if err == nil && p.to != 0 {
		r.scan.end = p.to // nothing is read ahead of it
	}
	return err
}

// leave goes from the open segment, whose rest has nothing of the window, to the next one.
func (r *Reader) leave() error {
	if r.at < len(r.segments)-1 {
		return r.enter(r.at + 1)
	}
	return r.openEnd(r.at)
}

// openEnd goes to the end of a sealed segment, where the log goes on in the next one.
func (r *Reader) openEnd(i int) error {
	s := &r.segments[i]
	m, _, err := r.store.ReadManifest(r.stream, s.number)
	if err != nil {
		return err
	}
	s.part = part{}
	if err := r.open(i, m.UsedBytes, false); err != nil {
		return err
	}
	r.chain = m.end()
	return nil
}
