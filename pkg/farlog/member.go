package farlog

/*
#include <stdlib.h>
#include "farlog/member.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Member is what a grant says of one of a stream's rings. Zero stands for none.
type Member struct {
	RingUUID [16]byte
	Token    [TokenLen]byte
}

const (
	membersScheme = "members:"
	uuidLen       = 16
)

// MembersURI names the rings of a stream that has several, needed of which an acknowledgement waits for. Of one ring it
// is that one's URI.
func MembersURI(needed int, uris ...string) string {
	if len(uris) == 1 {
		return uris[0]
	}
	return fmt.Sprintf("%s%d %s", membersScheme, needed, strings.Join(uris, " "))
}

// MemberURIs takes a URI apart: the rings that it names, and how many of them an acknowledgement waits for.
func MemberURIs(uri string) (needed int, uris []string) {
	rest, isOfMembers := strings.CutPrefix(uri, membersScheme)
	if !isOfMembers {
		return 1, []string{uri}
	}
	words := strings.Split(rest, " ")
	if _, err := fmt.Sscan(words[0], &needed); err != nil {
		return 0, nil // whoever opens it says what is wrong
	}
	return needed, words[1:]
}

// grantPointers gives C memory with the uuid and the token of one ring, or one behind the other those of all members;
// nil for none. Free it.
func grantPointers(uuid, token *[uuidLen]byte, members []Member) (uuids, tokens *C.uint8_t) {
	if len(members) == 0 {
		return uuidPointer(uuid), uuidPointer(token)
	}
	var allUUIDs, allTokens []byte
	for _, member := range members {
		allUUIDs, allTokens = append(allUUIDs, member.RingUUID[:]...), append(allTokens, member.Token[:]...)
	}
	return (*C.uint8_t)(C.CBytes(allUUIDs)), (*C.uint8_t)(C.CBytes(allTokens))
}

// MemberState says how a reader, a drain or a writer finds a member.
type MemberState int

// Up has the stream's newest epoch; of Stale nothing is believed until it has joined again; Away does not answer or
// cannot be opened, and is tried again. To a writer Late has fallen behind its deadline and not caught up, and Out does
// not come back before the next writer.
const (
	MemberUp    MemberState = C.FARLOG_MEMBER_UP
	MemberStale MemberState = C.FARLOG_MEMBER_STALE
	MemberAway  MemberState = C.FARLOG_MEMBER_AWAY
	MemberLate  MemberState = C.FARLOG_MEMBER_LATE
	MemberOut   MemberState = C.FARLOG_MEMBER_OUT
)

func (s MemberState) String() string {
	switch s {
	case MemberUp:
		return "up"
	case MemberStale:
		return "stale"
	case MemberAway:
		return "away"
	case MemberLate:
		return "late"
	case MemberOut:
		return "out"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// MemberStatus is one ring of a stream, as its reader saw it last.
type MemberStatus struct {
	State       MemberState
	IsRead      bool   // records come from this one
	WriterEpoch uint32 // 0: it was never seen
	HeadLSN     uint64
	TailLSN     uint64 // the writer's last word there
	HeldLSN     uint64 // end of records that it has and that are not given out, as too few members have them; 0: none
	Text        string // what is wrong with it
}

// Members tells how a stream's rings are, in the order of the URI; nil of a reader of one ring. It looks at nothing: it
// is as old as the last Read.
//
// Implements: unsigned farlog_reader_members(const farlog_reader *, struct farlog_member_status *, unsigned)
func (r *Reader) Members() []MemberStatus {
	if r.handle == nil {
		return nil
	}
	var seen [C.FARLOG_MEMBER_COUNT_MAX]C.struct_farlog_member_status
	count := C.farlog_reader_members(r.handle, &seen[0], C.unsigned(len(seen)))
	var members []MemberStatus
	for i := range seen[:count] {
		c := &seen[i]
		members = append(members, MemberStatus{
			State: MemberState(c.state), IsRead: c.is_read != 0, WriterEpoch: uint32(c.writer_epoch),
			HeadLSN: uint64(c.head_lsn), TailLSN: uint64(c.tail_lsn),
			HeldLSN: uint64(c.held_lsn), Text: cArray(c.text[:]),
		})
	}
	return members
}

// MemberCounters are what a stream's present or last writer exported of one of its rings.
type MemberCounters struct {
	raw C.struct_farlog_member_counters
}

// ReadMemberCounters copies them for each ring, in the order of the stream's URI; none of a stream with one ring.
// Arguments and errors are those of ReadCounters, with the uuid of the first ring.
//
// Implements: int farlog_member_counters_read(const char *, const uint8_t[16], struct farlog_member_counters *,
// unsigned, unsigned *, struct farlog_error *)
func ReadMemberCounters(dir string, ringUUID [16]byte) ([]MemberCounters, error) {
	uuid := uuidPointer(&ringUUID)
	defer C.free(unsafe.Pointer(uuid))
	c := countersDir(dir)
	defer C.free(unsafe.Pointer(c))
	var failure C.struct_farlog_error
	var seen [C.FARLOG_MEMBER_COUNT_MAX]C.struct_farlog_member_counters
	var count C.unsigned
	if result := C.farlog_member_counters_read(c, uuid, &seen[0], C.unsigned(len(seen)), &count,
		&failure); result != 0 {
		return nil, &Error{Result: Result(result), Errno: int(failure.os_errno), Text: C.GoString(&failure.text[0])}
	}
	members := make([]MemberCounters, 0, count)
	for _, one := range seen[:count] {
		members = append(members, MemberCounters{one})
	}
	return members, nil
}
