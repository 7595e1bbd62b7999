package farlog

/*
#include <stdlib.h>
#include "farlog/replace.h"
*/
import "C"

import "unsafe"

// WriterMember is one of a stream's rings as its writer has it now. A zero uuid: none was given, or a new ring whose
// token is of no use any more.
type WriterMember struct {
	RingUUID [16]byte
	State    MemberState
}

// Members lists them in the order of the URI; none of a writer of one ring. From any goroutine. ErrClosed.
//
// Implements: unsigned farlog_writer_members(farlog_writer *, struct farlog_writer_member *, unsigned)
func (w *Writer) Members() ([]WriterMember, error) {
	w.closing.RLock()
	defer w.closing.RUnlock()
	if w.handle == nil {
		return nil, ErrClosed
	}
	var space [C.FARLOG_MEMBER_COUNT_MAX]C.struct_farlog_writer_member
	return membersOf(space[:C.farlog_writer_members(w.handle, &space[0], C.FARLOG_MEMBER_COUNT_MAX)]), nil
}

func membersOf(found []C.struct_farlog_writer_member) (members []WriterMember) {
	for _, one := range found {
		members = append(members, WriterMember{
			RingUUID: *(*[16]byte)(unsafe.Pointer(&one.ring_uuid[0])),
			State:    MemberState(one.state),
		})
	}
	return members
}

// ReplaceMember has a member be another ring from now on, for good: the control plane says so (ExtendWriter). A zero
// token is none. From any goroutine; waits for nothing. ErrClosed, ErrInvalid, ErrUnsupported.
//
// Implements: int farlog_writer_replace_member(farlog_writer *, unsigned, const struct farlog_member_ring *, struct
// farlog_error *)
func (w *Writer) ReplaceMember(member int, uri string, ring Member) error {
	w.closing.RLock()
	defer w.closing.RUnlock()
	if w.handle == nil {
		return ErrClosed
	}
	return withMemberRing(uri, ring, func(given *C.struct_farlog_member_ring, failure *C.struct_farlog_error) C.int {
		return C.farlog_writer_replace_member(w.handle, C.unsigned(member), given, failure)
	})
}

// withMemberRing gives a ring to C for one call.
func withMemberRing(uri string, ring Member, use func(*C.struct_farlog_member_ring, *C.struct_farlog_error) C.int,
) error {
	uuid := (*C.uint8_t)(C.CBytes(ring.RingUUID[:]))
	defer C.free(unsafe.Pointer(uuid))
	var token *C.uint8_t
	if ring.Token != [TokenLen]byte{} {
		token = (*C.uint8_t)(C.CBytes(ring.Token[:]))
		defer C.free(unsafe.Pointer(token))
	}
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		given := (*C.struct_farlog_member_ring)(C.calloc(1, C.sizeof_struct_farlog_member_ring))
		defer C.free(unsafe.Pointer(given))
		given.uri, given.ring_uuid, given.grant_token = text, uuid, token
		return use(given, failure)
	})
}
