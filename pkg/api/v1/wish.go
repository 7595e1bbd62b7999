package apiv1

import (
	"crypto/rand"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// ReasonWriterLives is that of a grant which is refused because it would fence a writer that lives.
const ReasonWriterLives = "WRITER_LIVES"

// IsWriterLiving tells that refusal from others.
func IsWriterLiving(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Reason == ReasonWriterLives {
			return true
		}
	}
	return false
}

// NewRequestID draws the id of one wish for a grant, a UUID of version 4.
func NewRequestID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it does not fail: without randomness the program ends
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
