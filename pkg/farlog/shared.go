package farlog

/*
#include "farlog/farlog.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
)

// Shared is a ring's one writer for any number of goroutines.
type Shared struct {
	closing sync.RWMutex // held for reading by calls under way: Close must not free what they use
	handle  *C.farlog_shared
}

// OpenShared is OpenWriter for many goroutines; same options and errors.
//
// Implements: int farlog_shared_open(const char *, const struct farlog_writer_config *, farlog_shared **, struct
// farlog_error *)
func OpenShared(uri string, options WriterOptions) (*Shared, error) {
	s := new(Shared)
	return opened(s, withWriterConfig(options, func(config *C.struct_farlog_writer_config) error {
		return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
			return C.farlog_shared_open(text, config, &s.handle, failure)
		})
	}))
}

// Append appends from any goroutine; results as Writer.Append.
//
// Implements: int farlog_shared_append(farlog_shared *, const struct farlog_entry *, uint64_t, struct farlog_position
// *)
func (s *Shared) Append(entry Entry, deadline time.Duration) (Position, error) {
	if err := checkEntry(&entry); err != nil {
		return Position{}, err
	}
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Position{}, ErrClosed
	}
	c := appendCalls.Get().(*appendCall)
	withEntry(&c.pinner, &entry, &c.entry)
	result := C.farlog_shared_append(s.handle, &c.entry, deadlineOf(deadline), &c.position)
	position := positionOf(&c.position)
	c.pinner.Unpin()
	appendCalls.Put(c)
	return position, hotError(result)
}

// appendCall is what crosses into C. It would move to the heap at every append: its address is given away.
type appendCall struct {
	pinner   runtime.Pinner
	entry    C.struct_farlog_entry
	position C.struct_farlog_position
}

var appendCalls = sync.Pool{New: func() any { return new(appendCall) }}

// Resolve is Writer.Resolve.
//
// Implements: int farlog_shared_resolve(farlog_shared *, uint64_t, uint64_t, struct farlog_position *)
func (s *Shared) Resolve(lsn uint64, deadline time.Duration) (Position, error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Position{}, ErrClosed
	}
	var position C.struct_farlog_position
	result := C.farlog_shared_resolve(s.handle, C.uint64_t(lsn), deadlineOf(deadline), &position)
	return positionOf(&position), hotError(result)
}

// Cursors gives the writer's positions.
//
// Implements: void farlog_shared_cursors(farlog_shared *, struct farlog_cursors *)
func (s *Shared) Cursors() Cursors {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Cursors{}
	}
	var cursors C.struct_farlog_cursors
	C.farlog_shared_cursors(s.handle, &cursors)
	return cursorsOf(&cursors)
}

// Recovery says what opening found.
//
// Implements: const struct farlog_recovery *farlog_shared_recovery(const farlog_shared *)
func (s *Shared) Recovery() Recovery {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Recovery{}
	}
	return recoveryOf(C.farlog_shared_recovery(s.handle))
}

// Contract gives the region's contract.
//
// Implements: const struct farlog_contract *farlog_shared_contract(const farlog_shared *)
func (s *Shared) Contract() Contract {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.handle == nil {
		return Contract{}
	}
	return contractOf(C.farlog_shared_contract(s.handle))
}

// Close refuses new appends, waits for those under way, flushes. A second Close returns ErrClosed.
//
// Implements: int farlog_shared_close(farlog_shared *)
func (s *Shared) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.handle == nil {
		return ErrClosed
	}
	result := C.farlog_shared_close(s.handle)
	s.handle = nil
	return hotError(result)
}
