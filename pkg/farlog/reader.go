package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
#include "farlog/reader_grant.h"
#include "farlog/reader_waits.h"
*/
import "C"

import "unsafe"

// Reader reads a ring from outside; with ReaderOptions.Drain it is the ring's one drain. One goroutine at a time.
type Reader struct {
	handle *C.farlog_reader
}

// OpenReader opens a ring for reading. Errors: ErrNotFound, ErrNotARing, ErrHeld, ErrOverrun (the LSN is below the
// head), ErrCorrupt, ErrIO.
//
// Implements: int farlog_reader_open(const char *, const struct farlog_reader_config *, farlog_reader **, struct
// farlog_error *)
func OpenReader(uri string, options ReaderOptions) (*Reader, error) {
	config := C.struct_farlog_reader_config{
		start: C.uint32_t(options.Start),
		lsn:   C.uint64_t(options.LSN),
	}
	config.ring_uuid, config.grant_token = grantPointers(options.RingUUID, options.Token, options.Members)
	defer C.free(unsafe.Pointer(config.ring_uuid))
	defer C.free(unsafe.Pointer(config.grant_token))
	if options.Drain {
		config.is_drain = 1
	}
	if options.KeyFile == NoKeyFile {
		config.key_file = C.CString("")
	} else if options.KeyFile != "" {
		config.key_file = C.CString(options.KeyFile)
	}
	defer C.free(unsafe.Pointer(config.key_file))
	r := new(Reader)
	return opened(r, coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_reader_open(text, &config, &r.handle, failure)
	}))
}

// Read copies whole, checked records into buf. ErrNotYet: nothing new behind Batch.FirstLSN. *TooLargeError: buf is
// smaller than the next record. ErrOverrun: the writer has reused the bytes; open again at the head. ErrCorrupt: the
// record at Batch.FirstLSN is unreadable although it was acknowledged.
//
// Implements: int farlog_reader_read(farlog_reader *, void *, size_t, struct farlog_batch *)
func (r *Reader) Read(buf []byte) (Batch, error) {
	if r.handle == nil {
		return Batch{}, ErrClosed
	}
	var c C.struct_farlog_batch
	result := C.farlog_reader_read(r.handle, bytesPointer(buf), C.size_t(len(buf)), &c)
	if result == C.FARLOG_TOO_LARGE {
		return Batch{}, &TooLargeError{Need: int(c.len)}
	}
	batch := Batch{
		FirstLSN:      uint64(c.first_lsn),
		NextLSN:       uint64(c.next_lsn),
		NextSeq:       uint64(c.next_seq),
		RecordCount:   uint64(c.record_count),
		LastEpoch:     uint32(c.last_epoch),
		Rewound:       c.is_rewound != 0,
		Bytes:         buf[:int(c.len)],
		LastTimestamp: timeOf(c.last_ts_ns),
	}
	return batch, hotError(result)
}

// Release is the drain's last step: everything below headLSN is synced in the store. The head is persisted, then the
// writer gets the space. The arguments are NextLSN, NextSeq and LastEpoch of a batch that was read.
//
// Implements: int farlog_reader_release(farlog_reader *, uint64_t, uint64_t, uint32_t)
func (r *Reader) Release(headLSN, headSeq uint64, lastEpoch uint32) error {
	if r.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_reader_release(r.handle, C.uint64_t(headLSN), C.uint64_t(headSeq), C.uint32_t(lastEpoch)))
}

// Suspect is what lies where a reader's next record would.
type Suspect struct {
	LSN         uint64
	Fingerprint uint32 // of the bytes: two looks tell whether they stand still
	Claimed     bool   // they have a record's magic and this LSN
	Text        string // which check they fail, with the value and what was expected
}

// Suspect tells, after ErrNotYet or ErrCorrupt, why what lies at the reader's position is no record. ErrNotYet: there
// is a valid one by now.
//
// Implements: int farlog_reader_suspect(farlog_reader *, struct farlog_suspect *)
func (r *Reader) Suspect() (Suspect, error) {
	if r.handle == nil {
		return Suspect{}, ErrClosed
	}
	var c C.struct_farlog_suspect
	if err := hotError(C.farlog_reader_suspect(r.handle, &c)); err != nil {
		return Suspect{}, err
	}
	return Suspect{
		LSN: uint64(c.lsn), Fingerprint: uint32(c.fingerprint), Claimed: c.is_claimed != 0,
		Text: C.GoString(&c.text[0]),
	}, nil
}

// Status is Inspect without a scan, for metrics.
//
// Implements: int farlog_reader_status(farlog_reader *, struct farlog_ring_status *)
func (r *Reader) Status() (Status, error) {
	if r.handle == nil {
		return Status{}, ErrClosed
	}
	var status C.struct_farlog_ring_status
	if err := hotError(C.farlog_reader_status(r.handle, &status)); err != nil {
		return Status{}, err
	}
	return statusOf(&status), nil
}

// Renew tells the token with which the reader is to come to this ring when its target, restarted, does not take the
// one before any more. Of a reader of several rings once for each. ErrUnsupported: it was opened without a token. Not
// while another goroutine closes the reader.
//
// Implements: int farlog_reader_renew(farlog_reader *, const uint8_t *, const uint8_t *)
func (r *Reader) Renew(ringUUID [uuidLen]byte, token [TokenLen]byte) error {
	if r.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_reader_renew(r.handle, (*C.uint8_t)(unsafe.Pointer(&ringUUID)),
		(*C.uint8_t)(unsafe.Pointer(&token))))
}

// Reads counts the READs that were posted to the ring's target; 0 of a ring on this host.
//
// Implements: uint64_t farlog_reader_reads(const farlog_reader *)
func (r *Reader) Reads() uint64 {
	if r.handle == nil {
		return 0
	}
	return uint64(C.farlog_reader_reads(r.handle))
}

// Waits counts this handle's waits for what its ring's target had to confirm (head slots, in a drain), and those of
// them that ended because their time was over and not by an event. Both are 0 of a ring on this host.
//
// Implements: uint64_t farlog_reader_waits(const farlog_reader *, uint64_t *)
func (r *Reader) Waits() (count, expired uint64) {
	if r.handle == nil {
		return 0, 0
	}
	var expiredCount C.uint64_t
	count = uint64(C.farlog_reader_waits(r.handle, &expiredCount))
	return count, uint64(expiredCount)
}

// Close gives the drain lock back. A second Close returns ErrClosed.
//
// Implements: void farlog_reader_close(farlog_reader *)
func (r *Reader) Close() error {
	if r.handle == nil {
		return ErrClosed
	}
	C.farlog_reader_close(r.handle)
	r.handle = nil
	return nil
}
