package farlog

/*
#include <stdlib.h>
#include "farlog/image.h"
*/
import "C"

import (
	"io"
	"unsafe"
)

// Image is a ring's bytes as they lie, also on another host, for who verifies or prints them: an io.ReaderAt. Nobody is
// fenced or waited for. One goroutine at a time.
type Image struct {
	handle *C.farlog_image
}

// OpenImage opens one ring, with a reader's grant when it is on another host; the zero Member is none. Errors:
// ErrNotFound, ErrNotARing, ErrInvalid (no such grant), ErrUnsupported, ErrCorrupt, ErrIO. Blocks for the network.
//
// Implements: int farlog_image_open(const char *, const uint8_t *, const uint8_t *, farlog_image **, struct
// farlog_error *)
func OpenImage(uri string, grant Member) (*Image, error) {
	var uuid, token *C.uint8_t
	if grant != (Member{}) {
		raw := C.CBytes(append(grant.RingUUID[:], grant.Token[:]...))
		defer C.free(raw)
		uuid, token = (*C.uint8_t)(raw), (*C.uint8_t)(unsafe.Add(raw, len(grant.RingUUID)))
	}
	image := new(Image)
	return opened(image, coldCall(uri, func(text *C.char, failure *C.struct_farlog_error) C.int {
		return C.farlog_image_open(text, uuid, token, &image.handle, failure)
	}))
}

// Close lets go of the ring. It never fails.
//
// Implements: void farlog_image_close(farlog_image *)
func (i *Image) Close() error {
	C.farlog_image_close(i.handle)
	i.handle = nil
	return nil
}

// Size is in bytes, the ring's header included.
//
// Implements: uint64_t farlog_image_size_bytes(const farlog_image *)
func (i *Image) Size() int64 {
	if i.handle == nil {
		return 0
	}
	return int64(C.farlog_image_size_bytes(i.handle))
}

// ReadAt implements io.ReaderAt. Errors: io.EOF, ErrClosed, ErrIO. Blocks for the network.
//
// Implements: int farlog_image_read(farlog_image *, uint64_t, void *, uint64_t)
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if i.handle == nil {
		return 0, ErrClosed
	}
	if off < 0 {
		return 0, ErrInvalid
	}
	count := max(0, min(int64(len(p)), i.Size()-off))
	if count > 0 {
		if err := hotError(C.farlog_image_read(i.handle, C.uint64_t(off), unsafe.Pointer(unsafe.SliceData(p)),
			C.uint64_t(count))); err != nil {
			return 0, err
		}
	}
	if count < int64(len(p)) {
		return int(count), io.EOF
	}
	return int(count), nil
}
