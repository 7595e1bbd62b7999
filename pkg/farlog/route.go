package farlog

/*
#include <stdlib.h>
#include "farlog/route_end.h"
*/
import "C"

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// Route appends one record to several streams, chosen by class and criticality; docs/explanation/routes.md. Append,
// Resolve, CatchUp and Close are used by one goroutine at a time, Stats by any.
type Route struct {
	closing sync.RWMutex // held for reading by Stats: Close must not free what it uses
	handle  *C.farlog_route
	last    []LegStats // when it is closed
	legs    int
	entry   C.struct_farlog_entry
	placed  C.struct_farlog_route_position
	pinner  runtime.Pinner
	batch   routeBatch
}

// RoutePolicy says what becomes of a record that a leg's ring cannot take.
type RoutePolicy uint32

// RouteFail lets the result say so (of an optional leg it is RouteDrop); RouteSpill keeps it in a ring on this host and
// carries it later; RouteDrop counts it, and a GAP record says so. The last two: farlog/route.h.
const (
	RouteFail  RoutePolicy = C.FARLOG_ROUTE_FAIL
	RouteSpill RoutePolicy = C.FARLOG_ROUTE_SPILL
	RouteDrop  RoutePolicy = C.FARLOG_ROUTE_DROP
)

// LegsMax is how many legs a route may have.
const LegsMax = C.FARLOG_ROUTE_LEG_COUNT_MAX

// ClassRange is First to Last, both included.
type ClassRange struct{ First, Last uint16 }

// RouteLeg is one stream of a route. Either URI or Writer is set; Writer, which the route takes over when it opens,
// only of a required leg with RouteFail.
type RouteLeg struct {
	Name           string // of its own in the route; the spill bears it
	URI            string
	Writer         *Writer
	Classes        []ClassRange // none: every class
	CriticalityMin uint32
	Required       bool
	Policy         RoutePolicy
	SpillURI       string // of RouteSpill: "mem:/path", made where there is none
	SpillLevel     Level  // 0: persistent
	BufferBytes    uint64 // of a new spill, 0: 64 MiB; of RouteDrop, 0: 4 MiB
	Options        WriterOptions
}

// LegResult is what one leg says of a record. With IsBuffered the position is that in its spill or memory.
type LegResult struct {
	Position   Position
	Err        error
	IsBuffered bool
}

// RoutePosition is what a route says of a record. Bit i of the masks is leg i; Legs is good where a bit is set.
type RoutePosition struct {
	Level                       Level // the lowest that a required leg reached
	Required, Optional, Dropped uint32
	Legs                        [LegsMax]LegResult
}

// LegState says how a leg stands.
type LegState uint32

// LegDirect: records go straight to its ring; LegCarrying: by its thread; LegAway: its ring cannot be opened;
// LegFenced: another writer has its stream.
const (
	LegDirect   LegState = C.FARLOG_LEG_DIRECT
	LegCarrying LegState = C.FARLOG_LEG_CARRYING
	LegAway     LegState = C.FARLOG_LEG_AWAY
	LegFenced   LegState = C.FARLOG_LEG_FENCED
)

func (s LegState) String() string {
	switch s {
	case LegDirect:
		return "direct"
	case LegCarrying:
		return "carrying"
	case LegAway:
		return "away"
	case LegFenced:
		return "fenced"
	}
	return "unknown"
}

// LegStats are a leg's counters since the route was opened; FARLOG_LEG_COUNTER_TABLE says what each counts.
type LegStats struct {
	Name                                                                              string
	State                                                                             LegState
	Required                                                                          bool
	Offered, Acked, Unknown, Spilled, Carried, Dropped, Gaps, Doubts, Reopens, Behind uint64
	// what went wrong last with its ring
	Text string
}

// OpenRoute opens all legs; required ones without a spill have to open. Errors: ErrInvalid, ErrLevel, ErrNotARing (the
// spill is another leg's), and as OpenWriter; the text names route and leg.
//
// Implements: int farlog_route_open(const struct farlog_route_config *, farlog_route **, struct farlog_error *)
func OpenRoute(name string, legs []RouteLeg) (*Route, error) {
	var memory cMemory
	defer memory.free()
	asked := (*[LegsMax + 1]C.struct_farlog_route_leg)(memory.calloc(LegsMax+1,
		unsafe.Sizeof(C.struct_farlog_route_leg{})))
	for i := range min(len(legs), LegsMax+1) {
		if err := memory.leg(&legs[i], &asked[i]); err != nil {
			return nil, err
		}
	}
	r := &Route{legs: len(legs)}
	config := (*C.struct_farlog_route_config)(memory.calloc(1, unsafe.Sizeof(C.struct_farlog_route_config{})))
	config.legs, config.leg_count = &asked[0], C.uint32_t(len(legs))
	err := coldCall(name, func(text *C.char, failure *C.struct_farlog_error) C.int {
		config.name = text
		return C.farlog_route_open(config, &r.handle, failure)
	})
	if err != nil {
		return nil, err
	}
	for i := range legs {
		if legs[i].Writer != nil {
			legs[i].Writer.handle = nil // the route's from now on
		}
	}
	return r, nil
}

// cMemory is what has to outlive one call of C.
type cMemory []unsafe.Pointer

func (m *cMemory) calloc(count int, size uintptr) unsafe.Pointer {
	p := C.calloc(C.size_t(count), C.size_t(size))
	*m = append(*m, p)
	return p
}

func (m *cMemory) text(text string) *C.char {
	if text == "" {
		return nil
	}
	c := C.CString(text)
	*m = append(*m, unsafe.Pointer(c))
	return c
}

func (m *cMemory) free() {
	for _, p := range *m {
		C.free(p)
	}
}

// leg fills in one leg. What it points to is C's memory, for the call alone.
func (m *cMemory) leg(leg *RouteLeg, c *C.struct_farlog_route_leg) error {
	c.name, c.uri, c.spill_uri = m.text(leg.Name), m.text(leg.URI), m.text(leg.SpillURI)
	if leg.Writer != nil {
		if leg.Writer.handle == nil {
			return ErrClosed
		}
		c.writer = leg.Writer.handle
	}
	if len(leg.Classes) > 0 {
		ranges := unsafe.Slice((*C.struct_farlog_class_range)(m.calloc(len(leg.Classes),
			unsafe.Sizeof(C.struct_farlog_class_range{}))), len(leg.Classes))
		for i, r := range leg.Classes {
			ranges[i].first, ranges[i].last = C.uint16_t(r.First), C.uint16_t(r.Last)
		}
		c.classes, c.class_count = &ranges[0], C.uint32_t(len(ranges))
	}
	c.criticality_min, c.policy = C.uint32_t(leg.CriticalityMin), C.uint32_t(leg.Policy)
	c.spill_level, c.buffer_bytes = C.uint32_t(leg.SpillLevel), C.uint64_t(leg.BufferBytes)
	if leg.Required {
		c.is_required = 1
	}
	m.config(&leg.Options, &c.config)
	return nil
}

func (m *cMemory) config(options *WriterOptions, c *C.struct_farlog_writer_config) {
	c.level, c.policy, c.epoch = C.uint32_t(options.Level), C.uint32_t(options.Policy), C.uint32_t(options.Epoch)
	c.deadline_ns = deadlineOf(options.Deadline)
	c.warn_percent, c.alarm_percent = C.uint32_t(options.WarnPercent), C.uint32_t(options.AlarmPercent)
	if options.Spin {
		c.wait = C.FARLOG_WAIT_SPIN
	}
	c.ring_uuid, c.grant_token = grantPointers(options.RingUUID, options.Token, options.Members)
	c.writer_name, c.counters_dir = m.text(options.Name), countersDir(options.CountersDir)
	*m = append(*m, unsafe.Pointer(c.ring_uuid), unsafe.Pointer(c.grant_token), unsafe.Pointer(c.counters_dir))
}

// Append appends one record to every leg that takes its class and criticality, and waits until the required ones have
// it. deadline 0 = each leg's own. nil: all required legs have it, at Level. ErrNotFound: no leg takes it. ErrFull,
// ErrFenced, ErrTooLarge, ErrInvalid, ErrClosed: it is nowhere. ErrUnknown: some may have it; Resolve.
//
// Implements: int farlog_route_append(farlog_route *, const struct farlog_entry *, uint32_t, uint64_t, struct
// farlog_route_position *)
func (r *Route) Append(entry Entry, criticality uint32, deadline time.Duration) (RoutePosition, error) {
	if r.handle == nil {
		return RoutePosition{}, ErrClosed
	}
	if err := checkEntry(&entry); err != nil {
		return RoutePosition{}, err
	}
	withEntry(&r.pinner, &entry, &r.entry)
	result := C.farlog_route_append(r.handle, &r.entry, C.uint32_t(criticality), deadlineOf(deadline), &r.placed)
	r.pinner.Unpin()
	r.entry.data, r.entry.key = nil, nil // no longer pinned
	return r.positionOf(&r.placed), hotError(result)
}

func (r *Route) positionOf(c *C.struct_farlog_route_position) RoutePosition {
	p := RoutePosition{
		Level: Level(c.level), Required: uint32(c.required), Optional: uint32(c.optional),
		Dropped: uint32(c.dropped),
	}
	for i := range r.legs {
		if (p.Required|p.Optional)>>i&1 != 0 {
			p.Legs[i] = legResultOf(&c.legs[i])
		}
	}
	return p
}

func legResultOf(c *C.struct_farlog_route_result) LegResult {
	return LegResult{Position: positionOf(&c.position), Err: hotError(C.int(c.result)), IsBuffered: c.is_buffered != 0}
}

// Resolve finds out about a record of Append or AppendBatch, when that was ErrUnknown, and renews *position. nil: all
// required legs have it now. ErrNotFound: one has it not and never will, position.Legs says which have. ErrUnknown:
// still not known.
//
// Implements: int farlog_route_resolve(farlog_route *, struct farlog_route_position *, uint64_t)
func (r *Route) Resolve(position *RoutePosition, deadline time.Duration) error {
	if r.handle == nil {
		return ErrClosed
	}
	result := C.farlog_route_resolve(r.handle, r.placedOf(position), deadlineOf(deadline))
	position.Level = Level(r.placed.level)
	for i := range r.legs {
		if errors.Is(position.Legs[i].Err, ErrUnknown) {
			position.Legs[i] = legResultOf(&r.placed.legs[i])
		}
	}
	return hotError(result)
}

// CatchUp waits until all legs have everything that was offered to them. ErrUnknown: not by the deadline.
//
// Implements: int farlog_route_catch_up(farlog_route *, uint64_t)
func (r *Route) CatchUp(deadline time.Duration) error {
	if r.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_route_catch_up(r.handle, deadlineOf(deadline)))
}

// Stats gives the counters of all legs. Of a route that is closed they are those of its end, where what was left in
// memory of a leg that drops is among the dropped.
//
// Implements: int farlog_route_stats(const farlog_route *, uint32_t, struct farlog_leg_stats *)
func (r *Route) Stats() []LegStats {
	r.closing.RLock()
	defer r.closing.RUnlock()
	if r.handle == nil {
		return slices.Clone(r.last)
	}
	return r.stats()
}

func (r *Route) stats() []LegStats {
	all := make([]LegStats, r.legs)
	for i := range all {
		var c C.struct_farlog_leg_stats
		C.farlog_route_stats(r.handle, C.uint32_t(i), &c)
		all[i] = LegStats{
			Name: cArray(c.name[:]), State: LegState(c.state), Required: c.is_required != 0, Text: cArray(c.text[:]),
			Offered: uint64(c.offered_count), Acked: uint64(c.acked_count), Unknown: uint64(c.unknown_count),
			Spilled: uint64(c.spilled_count),
			Carried: uint64(c.carried_count), Dropped: uint64(c.dropped_count), Gaps: uint64(c.gap_count),
			Doubts:  uint64(c.doubt_count),
			Reopens: uint64(c.reopen_count), Behind: uint64(c.behind_bytes),
		}
	}
	return all
}

// Close takes no more, gives the legs until the deadline to catch up (0: 1 s) and closes them; one that is fenced is
// not waited for. ErrUnknown: something was left in a spill, for the next route that has it, or in a dropping leg's
// memory, and is lost: Stats counts it as dropped. A second Close returns ErrClosed.
//
// Implements: int farlog_route_end(farlog_route *, uint64_t)
//
// Implements: int farlog_route_close(farlog_route *, uint64_t)
func (r *Route) Close(deadline time.Duration) error {
	if r.handle == nil {
		return ErrClosed
	}
	deadline = cmp.Or(deadline, time.Second)
	_ = r.CatchUp(deadline) // Stats goes on meanwhile
	r.closing.Lock()
	defer r.closing.Unlock()
	C.farlog_route_end(r.handle, 1)
	r.last = r.stats()
	result := C.farlog_route_close(r.handle, 1)
	r.handle = nil
	return hotError(result)
}
