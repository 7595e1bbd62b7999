package farlog

/*
#include <stdlib.h>
#include "farlog/settings.h"
*/
import "C"

import (
	"time"
	"unsafe"
)

// WriterSettings are how a writer acknowledges.
type WriterSettings struct {
	Level    Level
	Policy   Policy
	Deadline time.Duration // of an append that has none of its own; given as 0: the region's
	FromLSN  uint64        // as Settings reports: records from here on are acknowledged at Level
}

// Configure has the writer's next append, submit or batch change its level, its policy and its deadline: records from
// that one on have the new level, and each acknowledgement says the level that its own record was appended at. With a
// stronger level nothing of those is acknowledged before it is there; a weaker one does not hold for what was appended
// before. A writer that was opened by farlog:// learns of changes by itself. From any goroutine; waits for nothing.
// ErrClosed, ErrInvalid, ErrLevel: the ring does not give that level, and nothing is changed.
//
// Implements: int farlog_writer_settings_set(farlog_writer *, const struct farlog_writer_settings *,
// struct farlog_error *)
func (w *Writer) Configure(settings WriterSettings) error {
	w.closing.RLock()
	defer w.closing.RUnlock()
	if w.handle == nil {
		return ErrClosed
	}
	return coldCall("", func(_ *C.char, failure *C.struct_farlog_error) C.int {
		given := (*C.struct_farlog_writer_settings)(C.calloc(1, C.sizeof_struct_farlog_writer_settings))
		defer C.free(unsafe.Pointer(given))
		given.level, given.policy, given.deadline_ns = C.uint32_t(settings.Level), C.uint32_t(settings.Policy),
			C.uint64_t(max(settings.Deadline, 0))
		return C.farlog_writer_settings_set(w.handle, given, failure)
	})
}

// Settings are what the writer runs with: what was set last, once an append has taken it in. From any goroutine.
// ErrClosed.
//
// Implements: void farlog_writer_settings_read(farlog_writer *, struct farlog_writer_settings *)
func (w *Writer) Settings() (WriterSettings, error) {
	w.closing.RLock()
	defer w.closing.RUnlock()
	if w.handle == nil {
		return WriterSettings{}, ErrClosed
	}
	var settings C.struct_farlog_writer_settings
	C.farlog_writer_settings_read(w.handle, &settings)
	return WriterSettings{
		Level: Level(settings.level), Policy: Policy(settings.policy),
		Deadline: time.Duration(settings.deadline_ns), FromLSN: uint64(settings.from_lsn),
	}, nil
}
