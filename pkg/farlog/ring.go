package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
#include "farlog/member.h"
*/
import "C"

import (
	"unsafe"

	"github.com/farlog/farlog/pkg/record"
)

// Probe reads a region's contract without touching its bytes.
//
// Implements: int farlog_region_probe(const char *uri, struct farlog_contract *, struct farlog_error *)
func Probe(uri string) (Contract, error) {
	var contract C.struct_farlog_contract
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_region_probe(text, &contract, failure)
	})
	if err != nil {
		return Contract{}, err
	}
	return contractOf(&contract), nil
}

// Format makes a new, empty ring and persists it. Errors: ErrExists, ErrHeld, ErrInvalid, ErrIO.
//
// Implements: int farlog_ring_format(const char *uri, const struct farlog_ring_config *, struct farlog_error *)
func Format(uri string, options FormatOptions) error {
	name := C.CString(options.StreamName)
	defer C.free(unsafe.Pointer(name))
	config := C.struct_farlog_ring_config{
		size_bytes:     C.uint64_t(options.SizeBytes),
		align:          C.uint32_t(options.Align),
		record_len_max: C.uint32_t(options.RecordLenMax),
		stream_id:      C.uint32_t(options.StreamID),
		salt:           C.uint64_t(options.Salt),
		stream_name:    name,
		encryption:     C.uint32_t(options.Encryption),
	}
	if options.Force {
		config.is_forced = 1
	}
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_format(text, &config, failure)
	})
}

// Inspect reads identity, cursors and lag of a ring, beside any writer and drain.
//
// Implements: int farlog_ring_inspect(const char *uri, struct farlog_ring_status *, struct farlog_error *)
func Inspect(uri string) (Status, error) {
	var status C.struct_farlog_ring_status
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_inspect(text, &status, failure)
	})
	if err != nil {
		return Status{}, err
	}
	return statusOf(&status), nil
}

// Fence orders that writers below epochMin stop, and persists the order.
//
// Implements: int farlog_ring_fence(const char *uri, uint32_t epoch_min, struct farlog_error *)
func Fence(uri string, epochMin uint32) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_fence(text, C.uint32_t(epochMin), failure)
	})
}

// Cut accepts that a ring has lost what was acknowledged from lsn on, where its opening was refused with ErrCorrupt:
// a new epoch begins there, and what lies behind it is dropped. Errors: ErrInvalid (nothing is known to be lost, or
// the log ends elsewhere), ErrUnsupported (members), and those of OpenWriter.
//
// Implements: int farlog_ring_cut(const char *uri, uint64_t lsn, struct farlog_error *)
func Cut(uri string, lsn uint64) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_cut(text, C.uint64_t(lsn), failure)
	})
}

// AcceptLoss makes a ring that was put in the place of another one, and never had an epoch, count in its stream's
// quorums as one that holds nothing: what only the other one had is lost. Durable when it returns. Errors: ErrHeld (a
// writer has it), ErrNotFound, ErrNotARing, ErrIO.
//
// Implements: int farlog_ring_accept_loss(const char *uri, struct farlog_error *)
func AcceptLoss(uri string) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_accept_loss(text, failure)
	})
}

func statusOf(s *C.struct_farlog_ring_status) Status {
	return Status{
		RingUUID:      uuidOf(s.ring_uuid),
		Salt:          uint64(s.salt),
		CapacityBytes: uint64(s.capacity_bytes),
		Align:         uint32(s.align),
		RecordLenMax:  uint32(s.record_len_max),
		StreamID:      uint32(s.stream_id),
		WriterEpoch:   uint32(s.writer_epoch),
		EpochMin:      uint32(s.epoch_min),
		LastEpoch:     uint32(s.last_epoch),
		WriterHeld:    s.is_writer_held != 0,
		DrainHeld:     s.is_drain_held != 0,
		HeadLSN:       uint64(s.head_lsn),
		HeadSeq:       uint64(s.head_seq),
		CreditLSN:     uint64(s.credit_lsn),
		AppendedLSN:   uint64(s.appended_lsn),
		DurableLSN:    uint64(s.durable_lsn),
		EpochStartLSN: uint64(s.epoch_start_lsn),
		EpochStartSeq: uint64(s.epoch_start_seq),
		LagBytes:      uint64(s.lag_bytes),
		LagRecords:    uint64(s.lag_records),
		EpochOpened:   timeOf(s.epoch_opened_ns),
		Created:       timeOf(s.created_ns),
		OldestRecord:  timeOf(s.oldest_ts_ns),
		NewestRecord:  timeOf(s.newest_ts_ns),
		StreamName:    cArray(s.stream_name[:]),
		WriterID:      cArray(s.writer_id[:]),
		Contract:      contractOf(&s.contract),
		Encryption:    record.Encryption(s.encryption),
	}
}
