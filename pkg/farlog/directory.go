package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
*/
import "C"

import "time"

// RingState says what a directory's entry shows.
type RingState uint32

// States of a ring in a directory.
const (
	RingReady   RingState = 1
	RingBlank   RingState = 2 // formatting it again was cut short
	RingDamaged RingState = 3
)

func (s RingState) String() string {
	switch s {
	case RingReady:
		return "ready"
	case RingBlank:
		return "blank"
	}
	return "damaged"
}

// RegionRing is one ring of a region with a directory.
type RegionRing struct {
	Name        string
	OffsetBytes uint64
	SizeBytes   uint64
	Created     time.Time
	State       RingState
}

// RegionStatus is what a directory holds, and what is free beside it.
type RegionStatus struct {
	SizeBytes        uint64
	FreeBytes        uint64
	LargestFreeBytes uint64 // the largest ring that can be made
	Rings            []RegionRing
}

// ListRegion reads the directory of a region, beside whoever uses its rings. Errors: ErrNotFound (no such region, or a
// blank one), ErrExists (it is one ring), ErrNotARing, ErrCorrupt, ErrIO.
//
// Implements: int farlog_region_list(const char *uri, struct farlog_region_status *, struct farlog_region_ring *,
// uint32_t room, struct farlog_error *)
func ListRegion(uri string) (RegionStatus, error) {
	var status C.struct_farlog_region_status
	rings := make([]C.struct_farlog_region_ring, regionRingCountMax)
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_region_list(text, &status, &rings[0], C.uint32_t(len(rings)), failure)
	})
	if err != nil {
		return RegionStatus{}, err
	}
	listed := RegionStatus{
		SizeBytes: uint64(status.size_bytes), FreeBytes: uint64(status.free_bytes),
		LargestFreeBytes: uint64(status.largest_free_bytes),
	}
	for _, ring := range rings[:min(int(status.ring_count), len(rings))] {
		listed.Rings = append(listed.Rings, RegionRing{
			Name:        cArray(ring.name[:]),
			OffsetBytes: uint64(ring.offset_bytes), SizeBytes: uint64(ring.size_bytes),
			Created: timeOf(ring.created_ns), State: RingState(ring.state),
		})
	}
	return listed, nil
}

const regionRingCountMax = 511 // docs/reference/format.md

// RemoveRing takes a ring (?ring=) out of its directory, or removes the file that is all its own. Errors: ErrNotFound,
// ErrHeld, ErrExists (records are not drained, and it is not forced), ErrCorrupt, ErrIO.
//
// Implements: int farlog_ring_remove(const char *uri, int is_forced, struct farlog_error *)
func RemoveRing(uri string, isForced bool) error {
	var forced C.int
	if isForced {
		forced = 1
	}
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_remove(text, forced, failure)
	})
}
