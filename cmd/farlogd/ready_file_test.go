//go:build cgo

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What a killed daemon left is not taken for a daemon that has started: the next one removes it before it does anything
// else. That of a daemon which runs stays, also when another one that names it comes and goes.
func TestReadyFile_OfADeadDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready")
	isThere := func() bool { _, err := os.Stat(path); return err == nil }
	killed := &readyFile{path: path}
	if err := killed.write([]byte("{\"ready\":true,\"pid\":7}\n")); err != nil {
		t.Fatal(err)
	}
	other := &readyFile{path: path}
	if err := errors.Join(other.clear(), other.remove()); err != nil || !isThere() {
		t.Errorf("of a daemon that runs: %v, there %v", err, isThere())
	}
	killed.file.Close() // as the kernel does
	if err := other.clear(); err != nil || isThere() {
		t.Errorf("of a daemon that was killed: %v, there %v", err, isThere())
	}
	if err := other.clear(); err != nil {
		t.Errorf("where there is none: %v", err)
	}
	if err := errors.Join(other.write([]byte("{}\n")), other.remove()); err != nil || isThere() {
		t.Errorf("of a daemon that stops: %v, there %v", err, isThere())
	}
}
