package farlog

/*
#include "farlog/refusals.h"
*/
import "C"

// TargetRefusal is a connection that was not let in.
type TargetRefusal struct {
	Sequence          uint64 // 1, 2, 3 ... since the target was opened
	Result            Result // what the client was told, and as text below
	IsUnauthenticated bool   // by no grant that is known here, so that no ring's counters have it
	Peer              string // "10.0.0.7:51234"
	Ring              string // that was asked for; "" = none
	Text              string
}

// Refusals gives those with a sequence above after, the oldest first; of more than 64 the older ones are gone.
// unauthenticated: how many there were of all by no
// grant that is known here.
//
// Implements: size_t farlog_target_refusals_read(farlog_target *, uint64_t, struct farlog_target_refusal *, size_t,
// uint64_t *)
func (t *Target) Refusals(after uint64) (list []TargetRefusal, unauthenticated uint64) {
	raw := make([]C.struct_farlog_target_refusal, C.FARLOG_TARGET_REFUSALS_KEPT)
	var count C.uint64_t
	got := C.farlog_target_refusals_read(t.c, C.uint64_t(after), &raw[0], C.size_t(len(raw)), &count)
	for i := range raw[:got] {
		one := &raw[i]
		list = append(list, TargetRefusal{
			Sequence: uint64(one.sequence), Result: Result(one.result),
			IsUnauthenticated: one.is_unauthenticated != 0, Peer: C.GoString(&one.peer[0]),
			Ring: C.GoString(&one.ring[0]), Text: C.GoString(&one.text[0]),
		})
	}
	return list, uint64(count)
}

// Unauthenticated are connections to a listener that have not brought a connection request yet.
type Unauthenticated struct {
	Open   uint64            // now
	Closed map[string]uint64 // by UnauthenticatedReasons
}

// UnauthenticatedReasons say why such connections are closed: too many of one address, too many in all, few descriptors
// left, no request for too long.
var UnauthenticatedReasons = [C.FARLOG_UNAUTHENTICATED_REASON_COUNT]string{
	C.FARLOG_UNAUTHENTICATED_ADDRESS: "address", C.FARLOG_UNAUTHENTICATED_ALL: "all",
	C.FARLOG_UNAUTHENTICATED_DESCRIPTORS: "descriptors", C.FARLOG_UNAUTHENTICATED_LATE: "late",
}

// Unauthenticated counts the connections that have shown no grant yet.
//
// Implements: void farlog_target_unauthenticated_read(farlog_target *, struct farlog_target_unauthenticated *)
func (t *Target) Unauthenticated() Unauthenticated {
	var raw C.struct_farlog_target_unauthenticated
	C.farlog_target_unauthenticated_read(t.c, &raw)
	counts := Unauthenticated{Open: uint64(raw.open_count), Closed: make(map[string]uint64)}
	for i, reason := range UnauthenticatedReasons {
		counts.Closed[reason] = uint64(raw.closed_count[i])
	}
	return counts
}
