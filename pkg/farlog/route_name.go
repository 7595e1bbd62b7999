package farlog

/*
#include <stdlib.h>
#include "farlog/replace.h"
#include "farlog/route_name.h"
*/
import "C"

import "unsafe"

// RouteOptions are what a program says of a route that it opens by its name.
type RouteOptions struct {
	// of the rings that keep what a leg that spills cannot take; "": the environment's FARLOG_SPILL_DIR
	SpillDir    string
	Name        string // of the writer; "": the program's
	CountersDir string // as in WriterOptions
	Spin        bool
}

// OpenRouteName opens the route that "farlog://desk7/all[?agent=PATH&transport=mem|verbs|ofi]" names: the host agent
// says which legs it has and gets the grant of each. They are those of now; changes of the route's rules come at the
// next opening. Errors, besides those of OpenRoute: ErrNotFound (no such route, or no agent), ErrInvalid, ErrIO;
// farlog/route_name.h.
//
// Implements: int farlog_route_open_name(const char *, const struct farlog_route_options *, farlog_route **, struct
// farlog_error *)
func OpenRouteName(uri string, options RouteOptions) (*Route, error) {
	var memory cMemory
	defer memory.free()
	asked := (*C.struct_farlog_route_options)(memory.calloc(1, unsafe.Sizeof(C.struct_farlog_route_options{})))
	asked.spill_dir, asked.writer_name, asked.counters_dir = memory.text(options.SpillDir), memory.text(options.Name),
		countersDir(options.CountersDir)
	memory = append(memory, unsafe.Pointer(asked.counters_dir))
	if options.Spin {
		asked.wait = C.FARLOG_WAIT_SPIN
	}
	r := new(Route)
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_route_open_name(text, asked, &r.handle, failure)
	})
	if err != nil {
		return nil, err
	}
	var stats C.struct_farlog_leg_stats
	for C.farlog_route_stats(r.handle, C.uint32_t(r.legs), &stats) == C.FARLOG_OK {
		r.legs++
	}
	return r, nil
}

// CheckRouteName reports whether there is such a route: nil, or ErrNotFound, ErrInvalid, ErrIO. It asks the host agent
// alone; no leg is opened.
//
// Implements: int farlog_route_look_name(const char *, struct farlog_error *)
func CheckRouteName(uri string) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_route_look_name(text, failure)
	})
}

// Members lists the members of a leg's ring as Writer.Members does; none while the ring is not open, or is one ring.
// From any goroutine. ErrClosed.
//
// Implements: unsigned farlog_route_members(farlog_route *, uint32_t, struct farlog_writer_member *, unsigned)
func (r *Route) Members(leg int) ([]WriterMember, error) {
	r.closing.RLock()
	defer r.closing.RUnlock()
	if r.handle == nil {
		return nil, ErrClosed
	}
	var space [C.FARLOG_MEMBER_COUNT_MAX]C.struct_farlog_writer_member
	return membersOf(
		space[:C.farlog_route_members(r.handle, C.uint32_t(leg), &space[0], C.FARLOG_MEMBER_COUNT_MAX)],
	), nil
}

// ReplaceMember is Writer.ReplaceMember for the ring of a leg, which has to be open. ErrUnsupported: it is not, or is
// one ring.
//
// Implements: int farlog_route_replace_member(farlog_route *, uint32_t, unsigned, const struct farlog_member_ring *,
// struct farlog_error *)
func (r *Route) ReplaceMember(leg, member int, uri string, ring Member) error {
	r.closing.RLock()
	defer r.closing.RUnlock()
	if r.handle == nil {
		return ErrClosed
	}
	return withMemberRing(uri, ring, func(given *C.struct_farlog_member_ring, failure *C.struct_farlog_error) C.int {
		return C.farlog_route_replace_member(r.handle, C.uint32_t(leg), C.unsigned(member), given, failure)
	})
}
