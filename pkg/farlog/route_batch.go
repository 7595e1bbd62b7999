package farlog

/*
#include "farlog/route.h"
*/
import "C"

import (
	"errors"
	"runtime"
	"time"
	"unsafe"
)

// routeBatch is what AppendBatch gives to C, reused by the next one.
type routeBatch struct {
	entries []C.struct_farlog_entry
	placed  []C.struct_farlog_route_position
	pinner  runtime.Pinner
}

// AppendBatch appends the entries in their order, in groups of at most 256, each one flush for each leg. criticalities:
// of each entry; nil: 0 of all. deadline: for all of them; 0 = each leg's own, for each group. positions must be as
// long as entries; positions[:done] are acknowledged, each as by Append. An entry that no leg takes counts as that;
// both its masks are 0. ErrUnknown: legs may have some of positions[done:submitted]; Resolve each. Any other error:
// entries[submitted] was refused and is nowhere, nor is any behind it. ErrInvalid: positions or criticalities are too
// short.
//
// Implements: int farlog_route_append_batch(farlog_route *, const struct farlog_entry *, const uint32_t *, size_t,
// uint64_t, struct farlog_route_position *, size_t *, size_t *)
func (r *Route) AppendBatch(entries []Entry, criticalities []uint32, deadline time.Duration, positions []RoutePosition,
) (done, submitted int, err error) {
	if r.handle == nil {
		return 0, 0, ErrClosed
	}
	if len(positions) < len(entries) || criticalities != nil && len(criticalities) < len(entries) {
		return 0, 0, ErrInvalid
	}
	if len(entries) == 0 {
		return 0, 0, nil
	}
	b := &r.batch
	if cap(b.entries) < len(entries) {
		b.entries, b.placed = make([]C.struct_farlog_entry, len(entries)),
			make([]C.struct_farlog_route_position, len(entries))
	}
	asked, placed := b.entries[:len(entries)], b.placed[:len(entries)]
	defer clear(asked) // a smaller batch after this one must not carry pointers that are no longer pinned
	defer b.pinner.Unpin()
	for i := range entries {
		if err := checkEntry(&entries[i]); err != nil {
			return 0, 0, err
		}
		withEntry(&b.pinner, &entries[i], &asked[i])
	}
	var doneCount, submittedCount C.size_t
	result := C.farlog_route_append_batch(r.handle, unsafe.SliceData(asked),
		(*C.uint32_t)(unsafe.SliceData(criticalities)), C.size_t(len(asked)), deadlineOf(deadline),
		unsafe.SliceData(placed), &doneCount, &submittedCount)
	for i := range min(int(submittedCount)+1, len(entries)) { // with the one that was refused
		positions[i] = r.positionOf(&placed[i])
	}
	return int(doneCount), int(submittedCount), hotError(result)
}

// placedOf is what C knew of a record; what is wrong with a leg only as far as Resolve looks at it.
func (r *Route) placedOf(position *RoutePosition) *C.struct_farlog_route_position {
	c := &r.placed
	*c = C.struct_farlog_route_position{
		required: C.uint32_t(position.Required),
		optional: C.uint32_t(position.Optional), dropped: C.uint32_t(position.Dropped),
	}
	for i := range r.legs {
		leg := &position.Legs[i]
		said := &c.legs[i]
		said.position = C.struct_farlog_position{
			lsn: C.uint64_t(leg.Position.LSN), seq: C.uint64_t(leg.Position.Seq),
			epoch: C.uint32_t(leg.Position.Epoch),
			level: C.uint8_t(leg.Position.Level), copies: C.uint8_t(leg.Position.Copies),
			end_lsn: C.uint64_t(leg.Position.EndLSN),
		}
		if leg.IsBuffered {
			said.is_buffered = 1
		}
		switch {
		case errors.Is(leg.Err, ErrUnknown):
			said.result = C.FARLOG_UNKNOWN
		case leg.Err != nil:
			said.result = C.FARLOG_NOT_FOUND
		}
	}
	return c
}
