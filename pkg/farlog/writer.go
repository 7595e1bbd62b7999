package farlog

/*
#include <stdlib.h>
#include "farlog/farlog.h"
#include "farlog/host.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Writer is a ring's one writer. It is used by one goroutine at a time, but for Members and ReplaceMember.
type Writer struct {
	closing sync.RWMutex // held for reading by what other goroutines may call: Close must not free what they use
	handle  *C.farlog_writer
	batch   []C.struct_farlog_entry // reused by AppendBatch
	placed  []C.struct_farlog_position
	pinner  runtime.Pinner
}

// OpenWriter takes the ring's writer lock, recovers, persists a new epoch. Errors: ErrNotFound, ErrNotARing, ErrHeld
// (the text says by whom), ErrLevel, ErrFenced, ErrCorrupt, ErrFull, ErrIO. Blocks for the scan of the undrained part.
//
// Implements: int farlog_writer_open(const char *, const struct farlog_writer_config *, farlog_writer **, struct
// farlog_error *)
func OpenWriter(uri string, options WriterOptions) (*Writer, error) {
	w := new(Writer)
	return opened(w, withWriterConfig(options, func(config *C.struct_farlog_writer_config) error {
		return coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
			return C.farlog_writer_open(text, config, &w.handle, failure)
		})
	}))
}

func withWriterConfig(options WriterOptions, use func(*C.struct_farlog_writer_config) error) error {
	config := C.struct_farlog_writer_config{
		level:         C.uint32_t(options.Level),
		policy:        C.uint32_t(options.Policy),
		epoch:         C.uint32_t(options.Epoch),
		deadline_ns:   deadlineOf(options.Deadline),
		warn_percent:  C.uint32_t(options.WarnPercent),
		alarm_percent: C.uint32_t(options.AlarmPercent),
	}
	config.ring_uuid, config.grant_token = grantPointers(options.RingUUID, options.Token, options.Members)
	defer C.free(unsafe.Pointer(config.ring_uuid))
	defer C.free(unsafe.Pointer(config.grant_token))
	if options.Spin {
		config.wait = C.FARLOG_WAIT_SPIN
	}
	if options.Name != "" {
		config.writer_name = C.CString(options.Name)
		defer C.free(unsafe.Pointer(config.writer_name))
	}
	config.counters_dir = countersDir(options.CountersDir)
	defer C.free(unsafe.Pointer(config.counters_dir))
	if options.KeyFile != "" {
		config.key_file = C.CString(options.KeyFile)
		defer C.free(unsafe.Pointer(config.key_file))
	}
	return use(&config)
}

// countersDir gives C memory: NULL for the default, "" for private counters.
func countersDir(dir string) *C.char {
	switch dir {
	case "":
		return nil
	case "none":
		return C.CString("")
	}
	return C.CString(dir)
}

// deadlineOf: a negative duration has passed already; 1 ns is the shortest that is not "the default".
func deadlineOf(d time.Duration) C.uint64_t {
	if d < 0 {
		return 1
	}
	return C.uint64_t(d)
}

// withEntry pins the bytes of an entry while C reads them.
func withEntry(pinner *runtime.Pinner, entry *Entry, c *C.struct_farlog_entry) {
	c.class_id = C.uint16_t(entry.Class)
	c.len = C.uint32_t(len(entry.Data))
	c.key_len = C.uint16_t(len(entry.Key))
	if len(entry.Data) > 0 {
		pinner.Pin(unsafe.SliceData(entry.Data))
		c.data = bytesPointer(entry.Data)
	} else {
		c.data = nil
	}
	if len(entry.Key) > 0 {
		pinner.Pin(unsafe.SliceData(entry.Key))
		c.key = bytesPointer(entry.Key)
	} else {
		c.key = nil
	}
}

func checkEntry(entry *Entry) error {
	if len(entry.Key) > 0xFFFF || uint64(len(entry.Data)) > 0xFFFFFFFF {
		return ErrTooLarge
	}
	return nil
}

func (w *Writer) call(entry *Entry, call func(*C.struct_farlog_entry, *C.struct_farlog_position) C.int) (Position,
	error,
) {
	if w.handle == nil {
		return Position{}, ErrClosed
	}
	if err := checkEntry(entry); err != nil {
		return Position{}, err
	}
	var c C.struct_farlog_entry
	var position C.struct_farlog_position
	withEntry(&w.pinner, entry, &c)
	result := call(&c, &position)
	w.pinner.Unpin()
	return positionOf(&position), hotError(result)
}

// Append appends one record and waits until it is at the writer's level. deadline 0 = the writer's default.
// ErrFull, ErrFenced, ErrTooLarge, ErrClosed: nothing was written. ErrUnknown: Position.LSN is set; see Resolve.
//
// Implements: int farlog_append(farlog_writer *, const struct farlog_entry *, uint64_t, struct farlog_position *)
func (w *Writer) Append(entry Entry, deadline time.Duration) (Position, error) {
	return w.call(&entry, func(c *C.struct_farlog_entry, position *C.struct_farlog_position) C.int {
		return C.farlog_append(w.handle, c, deadlineOf(deadline), position)
	})
}

// TryAppend is Append that returns ErrFull at once whatever the policy.
//
// Implements: int farlog_try_append(farlog_writer *, const struct farlog_entry *, struct farlog_position *)
func (w *Writer) TryAppend(entry Entry) (Position, error) {
	return w.call(&entry, func(c *C.struct_farlog_entry, position *C.struct_farlog_position) C.int {
		return C.farlog_try_append(w.handle, c, position)
	})
}

// Submit writes one record without waiting for durability; Poll or Wait make it durable. Never blocks.
//
// Implements: int farlog_submit(farlog_writer *, const struct farlog_entry *, struct farlog_position *)
func (w *Writer) Submit(entry Entry) (Position, error) {
	return w.call(&entry, func(c *C.struct_farlog_entry, position *C.struct_farlog_position) C.int {
		return C.farlog_submit(w.handle, c, position)
	})
}

// Poll starts a flush when none is under way and gives the durable position. Never blocks.
//
// Implements: int farlog_poll(farlog_writer *, uint64_t *)
func (w *Writer) Poll() (durableLSN uint64, err error) {
	if w.handle == nil {
		return 0, ErrClosed
	}
	var durable C.uint64_t
	result := C.farlog_poll(w.handle, &durable)
	return uint64(durable), hotError(result)
}

// Wait waits until the durable position reaches endLSN. ErrUnknown at the deadline.
//
// Implements: int farlog_wait(farlog_writer *, uint64_t, uint64_t)
func (w *Writer) Wait(endLSN uint64, deadline time.Duration) error {
	if w.handle == nil {
		return ErrClosed
	}
	return hotError(C.farlog_wait(w.handle, C.uint64_t(endLSN), deadlineOf(deadline)))
}

// AppendBatch submits the entries and waits once: one group commit, one crossing into C. positions must be as long as
// entries; positions[:done] are acknowledged, positions[done:submitted] may be written when err is ErrUnknown;
// with ErrFenced positions[submitted].Epoch is the epoch that fenced.
//
// Implements: int farlog_append_batch(farlog_writer *, const struct farlog_entry *, size_t, uint64_t, struct
// farlog_position *, size_t *, size_t *)
func (w *Writer) AppendBatch(entries []Entry, deadline time.Duration, positions []Position) (done, submitted int,
	err error,
) {
	if w.handle == nil {
		return 0, 0, ErrClosed
	}
	if len(positions) < len(entries) {
		return 0, 0, ErrInvalid
	}
	if len(entries) == 0 {
		return 0, 0, nil
	}
	if cap(w.batch) < len(entries) {
		w.batch = make([]C.struct_farlog_entry, len(entries))
		w.placed = make([]C.struct_farlog_position, len(entries))
	}
	batch, placed := w.batch[:len(entries)], w.placed[:len(entries)]
	for i := range entries {
		if err := checkEntry(&entries[i]); err != nil {
			w.pinner.Unpin()
			clear(batch)
			return 0, 0, err
		}
		withEntry(&w.pinner, &entries[i], &batch[i])
	}
	var doneCount, submittedCount C.size_t
	result := C.farlog_append_batch(w.handle, unsafe.SliceData(batch), C.size_t(len(batch)), deadlineOf(deadline),
		unsafe.SliceData(placed), &doneCount, &submittedCount)
	w.pinner.Unpin()
	// A smaller batch after this one must not carry pointers that are no longer pinned, not even beyond its end.
	clear(batch)
	// One more than was submitted: the position of the first that was refused names the epoch that fenced.
	for i := range min(int(submittedCount)+1, len(entries)) {
		positions[i] = positionOf(&placed[i])
	}
	return int(doneCount), int(submittedCount), hotError(result)
}

// Resolve finds out about a record whose outcome was ErrUnknown. nil: it is durable. ErrNotFound: it is not and
// never will be. After a writer was opened again compare Position.Epoch with the epoch of the append: another record
// may begin at the same LSN. ErrUnknown: an earlier writer's record that a drain has taken; the store knows.
//
// Implements: int farlog_resolve(farlog_writer *, uint64_t, uint64_t, struct farlog_position *)
func (w *Writer) Resolve(lsn uint64, deadline time.Duration) (Position, error) {
	if w.handle == nil {
		return Position{}, ErrClosed
	}
	var position C.struct_farlog_position
	result := C.farlog_resolve(w.handle, C.uint64_t(lsn), deadlineOf(deadline), &position)
	return positionOf(&position), hotError(result)
}

// Heartbeat appends a HEARTBEAT record, so that merges past an idle writer can move on.
//
// Implements: int farlog_heartbeat(farlog_writer *, uint64_t, struct farlog_position *)
func (w *Writer) Heartbeat(deadline time.Duration) (Position, error) {
	if w.handle == nil {
		return Position{}, ErrClosed
	}
	var position C.struct_farlog_position
	result := C.farlog_heartbeat(w.handle, deadlineOf(deadline), &position)
	return positionOf(&position), hotError(result)
}

// Cursors gives the writer's positions.
//
// Implements: void farlog_writer_cursors(farlog_writer *, struct farlog_cursors *)
func (w *Writer) Cursors() Cursors {
	if w.handle == nil {
		return Cursors{}
	}
	var cursors C.struct_farlog_cursors
	C.farlog_writer_cursors(w.handle, &cursors)
	return cursorsOf(&cursors)
}

// Trouble says what the ring's device or link answered last when a command failed, with the status of an NVMe device:
// why an append ended with ErrFenced or ErrUnknown. Empty: nothing did.
//
// Implements: const char *farlog_writer_trouble(const farlog_writer *)
func (w *Writer) Trouble() string {
	if w.handle == nil {
		return ""
	}
	return C.GoString(C.farlog_writer_trouble(w.handle))
}

// Recovery says what opening found.
//
// Implements: const struct farlog_recovery *farlog_writer_recovery(const farlog_writer *)
func (w *Writer) Recovery() Recovery {
	if w.handle == nil {
		return Recovery{}
	}
	return recoveryOf(C.farlog_writer_recovery(w.handle))
}

// Contract gives the region's contract.
//
// Implements: const struct farlog_contract *farlog_writer_contract(const farlog_writer *)
func (w *Writer) Contract() Contract {
	if w.handle == nil {
		return Contract{}
	}
	return contractOf(C.farlog_writer_contract(w.handle))
}

// Policy is what it does while its ring is full: the stream's, where WriterOptions left that open to the host agent.
//
// Implements: uint32_t farlog_writer_policy(const farlog_writer *)
func (w *Writer) Policy() Policy {
	if w.handle == nil {
		return PolicyBlock
	}
	return Policy(C.farlog_writer_policy(w.handle))
}

// Close flushes what is staged and gives the lock back. A second Close returns ErrClosed.
//
// Implements: int farlog_writer_close(farlog_writer *)
func (w *Writer) Close() error {
	if w.handle == nil {
		return ErrClosed
	}
	w.closing.Lock()
	defer w.closing.Unlock()
	result := C.farlog_writer_close(w.handle)
	w.handle = nil
	return hotError(result)
}
