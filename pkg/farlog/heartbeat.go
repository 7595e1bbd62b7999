package farlog

/*
#include "farlog/heartbeat.h"
*/
import "C"

import "time"

// Heartbeat is Writer.Heartbeat, from any goroutine.
//
// Implements: int farlog_shared_heartbeat(farlog_shared *, uint64_t, struct farlog_position *)
func (s *Shared) Heartbeat(deadline time.Duration) (Position, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Position{}, ErrClosed
	}
	var position C.struct_farlog_position
	result := C.farlog_shared_heartbeat(s.handle, deadlineOf(deadline), &position)
	return positionOf(&position), hotError(result)
}

// Heartbeats has the library append a heartbeat by itself whenever nothing was appended for idle, until the writer is
// closed or fenced; 0 ends that. ErrInvalid: less than a millisecond. Not from two goroutines at a time; waits for a
// heartbeat under way.
//
// Implements: int farlog_shared_heartbeats(farlog_shared *, uint64_t)
func (s *Shared) Heartbeats(idle time.Duration) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_shared_heartbeats(s.handle, C.uint64_t(max(idle, 0).Nanoseconds())))
}

// Heartbeat gives each leg a heartbeat that was offered no record since the last call. From the goroutine that appends:
// whenever it has waited for work for some time, and as often between appends, since a leg may be idle that others are
// not. Legs that are carried by their own threads are not waited for. ErrFull, ErrUnknown: another one comes;
// ErrFenced, ErrClosed: as the next append would say.
//
// Implements: int farlog_route_heartbeat(farlog_route *, uint64_t)
func (r *Route) Heartbeat(deadline time.Duration) error {
	if r.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_route_heartbeat(r.handle, deadlineOf(deadline)))
}
