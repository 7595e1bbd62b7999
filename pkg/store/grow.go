package store

import "time"

// A segment's file begins with a small part of its full size and is made twice as large whenever it is full, so that
// thousands of streams that receive little take little space. The blocks are allocated before a batch is written.
const (
	growParts = 64 // the part that a file begins with: 1 MiB of 64 MiB
	// busyWithin: when half of a segment is full within this time after its begin, the next file has its full size.
	busyWithin = 10 * time.Minute
	// surplusParts: while nothing can be signed, a segment grows beyond its full size, each time by this part of it.
	surplusParts = 8
)

func roundUp(size int64) int64 {
	return (size + segmentDataOffset - 1) / segmentDataOffset * segmentDataOffset
}

// firstBytes is the size that a segment's file begins with.
func firstBytes(full int64) int64 {
	return min(max(roundUp(full/growParts), 2*segmentDataOffset), full)
}

// firstBytes is that of this stream. What is derived is allocated in full: it has the same bytes on every rerun.
func (r *rollover) firstBytes() int64 {
	if r.isDerived {
		return r.segmentBytes
	}
	return firstBytes(r.segmentBytes)
}

// fitBytes is the size to which a file has grown when its records end at an offset.
func fitBytes(full, end int64) int64 {
	size := firstBytes(full)
	for size < end && size < full {
		size = min(2*size, full)
	}
	return max(size, roundUp(end))
}

// capacity is up to where the active segment takes records. A file that is larger was begun with another full size, or
// grew while nothing could be signed.
func (a *Appender) capacity() int64 { return max(a.active.size, a.rollover.segmentBytes) }

// growActive makes the active segment's file large enough for a batch.
func (a *Appender) growActive(batchLen int) error {
	need := roundUp(a.accepted.end + int64(batchLen))
	if need <= a.active.size {
		return nil
	}
	most := a.rollover.segmentBytes
	if need > most {
		most = roundUp(need + most/surplusParts)
	}
	size := max(need, min(2*a.active.size, most))
	if err := a.active.file.Allocate(size); err != nil {
		return wrap("grow", a.active.name, err)
	}
	a.active.size = size
	return nil
}

// shrinkActive gives back what a file has beyond its growth: one that was allocated in full size at its begin.
func (a *Appender) shrinkActive(end int64) error {
	fit := fitBytes(a.rollover.segmentBytes, end)
	if fit > a.active.size/2 || a.rollover.isDerived {
		return nil
	}
	if err := a.active.file.Truncate(fit); err != nil {
		return wrap("cut", a.active.name, err)
	}
	a.active.size = fit
	return nil
}

// shrinkSpare does so with a segment that has no record, and no tail of a crash.
func (a *Appender) shrinkSpare() error {
	s, fit := a.rollover.spare, a.rollover.firstBytes()
	if s == nil || s.size <= fit || a.tail.from != a.tail.to {
		return nil
	}
	if err := s.file.Truncate(fit); err != nil {
		return wrap("cut", s.name, err)
	}
	s.size = fit
	return nil
}

// prepareNext begins to make the next segment's file, once for each segment. What fails is tried again when the file is
// needed.
func (a *Appender) prepareNext() {
	r := &a.rollover
	if r.job == nil && r.prepared != r.nextNumber && a.spareBytes() > 0 {
		r.start(a.spareBytes())
	}
}

// spareBytes is the size of the segment that is to be prepared; 0 = none yet: it would take space for nothing.
func (a *Appender) spareBytes() int64 {
	r := &a.rollover
	switch {
	case r.spare != nil:
		return 0
	case r.isDerived:
		return r.segmentBytes
	case a.active != nil && a.accepted.end < r.segmentBytes/2:
		return 0
	case a.active != nil && r.now().Sub(time.Unix(0, int64(a.active.header.CreatedNS))) < busyWithin:
		return r.segmentBytes
	}
	return r.firstBytes()
}
