package farlog

/*
#cgo CFLAGS: -std=gnu11 -D_GNU_SOURCE -O2 -Wall -I${SRCDIR}/../../rdma/include
#cgo CFLAGS: -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
#cgo LDFLAGS: -lpthread -Wl,-z,relro,-z,now
#include <stdlib.h>
#include "farlog/farlog.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// coldCall runs a C call that fills a struct farlog_error, with the URI as a C string.
func coldCall(uri string, call func(uri *C.char, failure *C.struct_farlog_error) C.int) error {
	text := C.CString(uri)
	defer C.free(unsafe.Pointer(text))
	var failure C.struct_farlog_error
	result := call(text, &failure)
	if result == 0 {
		return nil
	}
	return &Error{Result: Result(result), Errno: int(failure.os_errno), Text: C.GoString(&failure.text[0])}
}

// opened is a handle that was made, unless making it gave an error.
func opened[T any](handle *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return handle, nil
}

// hotError maps a result code to its sentinel; nil for OK.
func hotError(result C.int) error {
	if result == 0 {
		return nil
	}
	return Result(result).sentinel()
}

func bytesPointer(b []byte) unsafe.Pointer {
	return unsafe.Pointer(unsafe.SliceData(b))
}

func cArray(b []C.char) string {
	for i, c := range b {
		if c == 0 {
			return C.GoStringN(&b[0], C.int(i))
		}
	}
	return C.GoStringN(&b[0], C.int(len(b)))
}

func timeOf(ns C.uint64_t) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns)).UTC()
}

func uuidOf(b [16]C.uint8_t) (uuid [16]byte) {
	for i, v := range b {
		uuid[i] = byte(v)
	}
	return uuid
}

// uuidPointer gives C memory that holds the uuid, or nil; free it.
func uuidPointer(uuid *[16]byte) *C.uint8_t {
	if uuid == nil {
		return nil
	}
	return (*C.uint8_t)(C.CBytes(uuid[:]))
}

func contractOf(c *C.struct_farlog_contract) Contract {
	return Contract{
		Kind:            cArray(c.kind_name[:]),
		FlushMethod:     cArray(c.flush_name[:]),
		Probe:           cArray(c.probe[:]),
		Level:           Level(c.level),
		Granularity:     uint32(c.granularity),
		AtomicUnit:      uint32(c.atomic_unit),
		ReadBack:        c.is_read_back != 0,
		SizeBytes:       uint64(c.size_bytes),
		DeadlineDefault: time.Duration(c.deadline_default_ns),
	}
}

func positionOf(p *C.struct_farlog_position) Position {
	return Position{
		LSN:    uint64(p.lsn),
		Seq:    uint64(p.seq),
		Epoch:  uint32(p.epoch),
		Level:  Level(p.level),
		Copies: uint8(p.copies),
		EndLSN: uint64(p.end_lsn),
	}
}

func cursorsOf(c *C.struct_farlog_cursors) Cursors {
	return Cursors{
		HeadLSN:       uint64(c.head_lsn),
		DurableLSN:    uint64(c.durable_lsn),
		AppendedLSN:   uint64(c.appended_lsn),
		CapacityBytes: uint64(c.capacity_bytes),
		NextSeq:       uint64(c.next_seq),
		Epoch:         uint32(c.epoch),
		Pressure:      uint32(c.pressure),
	}
}

func recoveryOf(r *C.struct_farlog_recovery) Recovery {
	return Recovery{
		Epoch:        uint32(r.epoch),
		PrevEpoch:    uint32(r.prev_epoch),
		HeadLSN:      uint64(r.head_lsn),
		TailLSN:      uint64(r.tail_lsn),
		NextSeq:      uint64(r.next_seq),
		RecordCount:  uint64(r.record_count),
		OrphanCount:  uint64(r.orphan_count),
		ScannedBytes: uint64(r.scanned_bytes),
		Duration:     time.Duration(r.duration_ns),
	}
}
