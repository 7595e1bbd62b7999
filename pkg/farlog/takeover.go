package farlog

/*
#include <stdlib.h>
#include "farlog/takeover.h"
*/
import "C"

import "time"

// Prepare does now what opening this URI takes and needs no grant: it loads the libraries of its transport, which takes
// some 0.3 s of the first ofi: URI that a process opens. For who stands by.
//
// Implements: int farlog_prepare(const char *, struct farlog_error *)
func Prepare(uri string) error {
	return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_prepare(text, failure)
	})
}

// AwaitWriters waits until a writer of any ring has been let in or has gone: until that has happened another number of
// times than seen, at most for timeout. It returns how often it has. Not while the target is being closed.
//
// Implements: uint64_t farlog_target_await_writers(farlog_target *, uint64_t, uint64_t)
func (t *Target) AwaitWriters(seen uint64, timeout time.Duration) uint64 {
	return uint64(C.farlog_target_await_writers(t.c, C.uint64_t(seen), C.uint64_t(timeout.Nanoseconds())))
}

// Inspector is how far looks at a ring have come. The zero value is that of a first look. It must not be used by two
// goroutines at once.
type Inspector struct {
	c C.struct_farlog_ring_mark
}

// Inspect is Inspect for who looks again and again: records that an earlier look by the same mark has read are not read
// once more, as long as it is the same ring and no other writer has opened it. What the media lost of those meanwhile
// it does not find out.
//
// Implements: int farlog_ring_look(const char *, struct farlog_ring_mark *, struct farlog_ring_status *, struct
// farlog_error *)
func (m *Inspector) Inspect(uri string) (Status, error) {
	var status C.struct_farlog_ring_status
	err := coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_ring_look(text, &m.c, &status, failure)
	})
	if err != nil {
		return Status{}, err
	}
	return statusOf(&status), nil
}
