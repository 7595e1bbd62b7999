package farlog

/*
#include <stdlib.h>
#include "farlog/health.h"
*/
import "C"

import "unsafe"

// DeviceHealth gives the health page (SMART, 02h) of the controller of an NVMe namespace, such as /dev/nvme1n1, as NVM
// Express lays it out. Errors: ErrNotFound, ErrUnsupported (no NVMe device), ErrIO (this process may not ask, or the
// device does not answer).
//
// Implements: int farlog_device_health(const char *, uint8_t *, struct farlog_error *)
func DeviceHealth(path string) ([]byte, error) {
	page := C.malloc(C.FARLOG_HEALTH_LEN)
	defer C.free(page)
	err := coldCall(path, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_device_health(text, (*C.uint8_t)(page), failure)
	})
	if err != nil {
		return nil, err
	}
	return C.GoBytes(unsafe.Pointer(page), C.FARLOG_HEALTH_LEN), nil
}

// GuardMappings makes a page of a mem: ring that its media does not give an error, ErrIO, of the calls on that ring,
// which would end the process by SIGBUS otherwise. It installs a handler of SIGBUS for the whole process, and is called
// once, before rings are opened. Errors: ErrIO; ErrInvalid: called again, and another handler has been set since.
//
// Implements: int farlog_guard_mappings(struct farlog_error *)
func GuardMappings() error {
	return coldCall("", func(_ *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_guard_mappings(failure)
	})
}

// DeviceContents names what is on a block device, or in a file, that has no ring: a file system, a partition table, or
// bytes that are not zero; "" is nothing. Errors: ErrIO.
//
// Implements: int farlog_device_contents(const char *, char *, size_t, struct farlog_error *)
func DeviceContents(path string) (string, error) {
	var text [256]C.char
	err := coldCall(path, func(name *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_device_contents(name, &text[0], C.size_t(len(text)), failure)
	})
	return cArray(text[:]), err
}
