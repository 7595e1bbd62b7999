package farlog

/*
#include <stdlib.h>
#include "farlog/tails.h"
*/
import "C"

import "unsafe"

// Tail is what a target last saw of one ring: a hint, up to some milliseconds old. Reader.Read finds out what is there.
type Tail struct {
	RingUUID    [16]byte
	TailLSN     uint64 // below it something lies that looks like records
	DurableLSN  uint64 // the writer's last word
	HeadLSN     uint64 // the credit: first LSN that is not yet stored
	Sequence    uint64 // +1 per change since the target serves the ring
	WriterEpoch uint32
	Mark        uint32 // another one: a writer has come, and the log may have gone back behind what was read
}

// Tails is a connection to a target's page of tails, which tells of all rings that the target serves to one tenant. One
// goroutine at a time.
type Tails struct {
	handle *C.farlog_tails
	rings  [C.FARLOG_TAIL_COUNT_MAX]C.struct_farlog_tail
}

// OpenTails connects to the target of the ring that uri names, by the token of a drain's or reader's grant on that
// ring. Errors: ErrInvalid (not on another host, or no such grant), ErrNotFound, ErrUnsupported (the ring has no line
// there), ErrIO.
//
// Implements: int farlog_tails_open(const char *, const uint8_t *, farlog_tails **, struct farlog_error *)
func OpenTails(uri string, token [TokenLen]byte) (*Tails, error) {
	t := new(Tails)
	return opened(t, coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		pointer := uuidPointer(&token)
		defer C.free(unsafe.Pointer(pointer))
		return C.farlog_tails_open(text, pointer, &t.handle, failure)
	}))
}

// Read fills tails with what the page holds, by one READ. A ring that is not in it has to be looked at itself.
// ErrNotYet: so has every ring, the page is not whole or stands still. ErrIO: the connection is broken, and comes back
// by itself.
//
// Implements: int farlog_tails_read(farlog_tails *, struct farlog_tail *, size_t, size_t *)
func (t *Tails) Read(tails map[[16]byte]Tail) error {
	clear(tails)
	if t.handle == nil {
		return ErrClosed
	}
	var count C.size_t
	if err := hotError(C.farlog_tails_read(t.handle, &t.rings[0], C.size_t(len(t.rings)), &count)); err != nil {
		return err
	}
	for i := range t.rings[:count] {
		c := &t.rings[i]
		uuid := uuidOf(c.ring_uuid)
		tails[uuid] = Tail{
			RingUUID:    uuid,
			TailLSN:     uint64(c.tail_lsn),
			DurableLSN:  uint64(c.durable_lsn),
			HeadLSN:     uint64(c.head_lsn),
			Sequence:    uint64(c.sequence),
			WriterEpoch: uint32(c.writer_epoch),
			Mark:        uint32(c.mark),
		}
	}
	return nil
}

// Reads counts the READs that were posted to the target.
//
// Implements: uint64_t farlog_tails_reads(const farlog_tails *)
func (t *Tails) Reads() uint64 {
	if t.handle == nil {
		return 0
	}
	return uint64(C.farlog_tails_reads(t.handle))
}

// Close ends the connection. A second Close returns ErrClosed.
//
// Implements: void farlog_tails_close(farlog_tails *)
func (t *Tails) Close() error {
	if t.handle == nil {
		return ErrClosed
	}
	C.farlog_tails_close(t.handle)
	t.handle = nil
	return nil
}
