package farlog

/*
#include <stdlib.h>
#include "farlog/former.h"
*/
import "C"

import "unsafe"

// Former is who wrote a ring last, as the target of its namespace sees it.
type Former struct {
	Host     uint64 // as HostNumber, of where its writer was opened; 0: no device that several hosts reach
	Epoch    uint32 // its writer's; 0: nobody has written yet
	EpochMin uint32 // the fence: above Epoch, somebody wants it out
	IsClosed bool   // the ring says that it writes no more
	WriterID string
}

// HostNumber is that of a host by the name (NQN) that its target knows it by.
//
// Implements: uint64_t farlog_host_number(const char *host_nqn)
func HostNumber(nqn string) uint64 {
	text := C.CString(nqn)
	defer C.free(unsafe.Pointer(text))
	return uint64(C.farlog_host_number(text))
}

// FormerOf reads it from the ring, past the page cache. Errors: ErrNotFound, ErrNotARing, ErrCorrupt, ErrIO.
//
// Implements: int farlog_ring_former(const char *uri, struct farlog_former *, struct farlog_error *)
func FormerOf(uri string) (Former, error) {
	var former C.struct_farlog_former
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_former(text, &former, failure)
	})
	if err != nil {
		return Former{}, err
	}
	return Former{
		Host: uint64(former.host), Epoch: uint32(former.epoch), EpochMin: uint32(former.epoch_min),
		IsClosed: former.is_closed != 0,
		WriterID: C.GoString(&former.writer_id[0]),
	}, nil
}

// FormerOut says in the ring, durably, that the writer of this epoch, which was opened on this host, writes no more:
// writers of other hosts are let on from now on. The caller is the target, and has made sure of it. Errors: ErrHeld
// (its last writer is another one), ErrNotFound, ErrNotARing, ErrCorrupt, ErrUnsupported, ErrIO.
//
// Implements: int farlog_ring_former_out(const char *uri, uint64_t host, uint32_t epoch, struct farlog_error *)
func FormerOut(uri string, host uint64, epoch uint32) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_former_out(text, C.uint64_t(host), C.uint32_t(epoch), failure)
	})
}
