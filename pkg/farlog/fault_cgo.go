//go:build farlog_fault

package farlog

/*
#cgo CFLAGS: -I${SRCDIR}/../../rdma/src -I${SRCDIR}/../../rdma/test
#include <stdlib.h>
#include "adversary/clock.h"
#include "adversary/memory.h"
#include "adversary/revocation.h"
*/
import "C"

import (
	"time"
	"unsafe"

	_ "github.com/farlog/farlog/rdma/test/adversary"
)

// The adversarial memory of rdma/test/adversary/memory.h, for the crash tests of other packages. URIs: fault:name.

func withFaultName(name string, call func(*C.char)) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	call(text)
}

// FaultReseed sets the seed of the choices of the named memory.
func FaultReseed(name string, seed uint64) {
	withFaultName(name, func(text *C.char) { C.farlog_fault_reseed(text, C.uint64_t(seed)) })
}

// FaultDrop forgets the memory.
func FaultDrop(name string) { withFaultName(name, func(text *C.char) { C.farlog_fault_drop(text) }) }

// FaultArm lets everything die in the middle of the operation that comes after operationCount more.
func FaultArm(name string, operationCount uint64) {
	withFaultName(name, func(text *C.char) { C.farlog_fault_arm(text, C.uint64_t(operationCount)) })
}

// FaultIsDead reports whether an armed death has happened.
func FaultIsDead(name string) (isDead bool) {
	withFaultName(name, func(text *C.char) { isDead = C.farlog_fault_is_dead(text) != 0 })
	return isDead
}

// FaultCrash is the power cut: an arbitrary part of what was not flushed survives, every handle is dead.
func FaultCrash(name string) { withFaultName(name, func(text *C.char) { C.farlog_fault_crash(text) }) }

// FaultKill is the death of the processes alone: handles die, stores stay.
func FaultKill(name string) { withFaultName(name, func(text *C.char) { C.farlog_fault_kill(text) }) }

// FaultSetUTC makes UTC stand still at a time, for all writers of this process; the zero time gives them the system's
// again.
func FaultSetUTC(t time.Time) {
	ns := C.uint64_t(0)
	if !t.IsZero() {
		ns = C.uint64_t(t.UnixNano())
	}
	C.farlog_fault_set_utc(ns)
}

// FaultPauseRevocations lets so much time pass between the end of a key over verbs and that of its queue pair, so that
// a writer meets the device there.
func FaultPauseRevocations(pause time.Duration) { C.farlog_fault_pause_revocations(C.uint64_t(pause)) }
