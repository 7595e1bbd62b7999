//go:build cgo

package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A takeover that nobody confirms in time says so: "context deadline exceeded" names neither what was waited for nor
// what may hold by then.
func TestTakeOverStream_NotConfirmedInTime(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	env := &environment{stdout: io.Discard, stderr: io.Discard, control: mute.Addr().String(), isInsecure: true}
	err = takeOverStream(t.Context(), env, "desk/orders", "test", 100*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "stream desk/orders: within 100ms nobody said that enough of its "+
		"targets have confirmed") || !strings.Contains(err.Error(), "--timeout") {
		t.Errorf("%v", err)
	}
}
