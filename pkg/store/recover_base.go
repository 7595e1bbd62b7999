package store

import (
	"fmt"
	"slices"
)

// resumeBase stands where the base manifest says that what was removed ended; without one, before everything. The
// first segment must fit it.
func (a *Appender) resumeBase(begun []found) error {
	a.generation = 1
	a.accepted.end = segmentDataOffset
	if a.base != nil {
		a.generation = a.base.Generation
		a.rollover.before, a.rollover.previous = a.base.digests()
		a.rollover.sealed.Store(a.base.Segment - 1)
		a.rollover.nextNumber = a.base.Segment
		a.accepted = state{chain: a.base.end(), lastLSN: a.base.LastLSN, end: segmentDataOffset}
	}
	a.synced = a.accepted
	if a.base == nil || len(begun) == 0 {
		return a.base.checkThere(a.dir, len(begun))
	}
	if err := a.base.checkFit(begun[0].header); err != nil {
		return &CorruptError{Path: begun[0].name, LSN: a.base.NextLSN, Err: err}
	}
	return nil
}

// changeRingOfBase begins a new generation when nothing is there but the base, and that is of another ring.
func (a *Appender) changeRingOfBase() error {
	if a.base == nil || a.base.RingUUID == a.source.RingUUID.String() {
		return nil
	}
	if err := a.checkNotFormer(); err != nil {
		return err
	}
	a.generation++
	a.accepted = state{end: segmentDataOffset}
	a.synced = a.accepted
	return nil
}

// checkNotFormer refuses a ring that the stream has left and whose records were removed.
func (a *Appender) checkNotFormer() error {
	if a.base == nil || !slices.Contains(a.base.FormerRings, a.source.RingUUID.String()) {
		return nil
	}
	return fmt.Errorf("%w: stream %s: ring %s was left before or in segment %d and cannot come back", ErrInvalid,
		a.source.StreamName, a.source.RingUUID, a.base.Segment)
}
