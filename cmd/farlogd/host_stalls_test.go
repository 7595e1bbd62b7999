//go:build cgo

package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/farlog"
)

// A host tells of a writer whose records wait while it lives, and of none that is dead: its counters stay as it left
// them.
func TestHostRole_StalledWriters(t *testing.T) {
	const uuid, words, header = "000102030405060708090a0b0c0d0e0f", 19 + 3 + 1408, 64
	dir := t.TempDir()
	raw := make([]byte, header+8*words)
	copy(raw, "FARLCTR1") // as rdma/src/stats.c has it
	binary.LittleEndian.PutUint64(raw[8:], 8*words)
	binary.LittleEndian.PutUint64(raw[header:], 4096)  // appended, and nothing is durable
	binary.LittleEndian.PutUint64(raw[header+8*4:], 3) // epoch
	path := filepath.Join(dir, uuid+".counters")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := unix.Flock(int(writer.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	role := &hostRole{
		settings: &settings{countersDir: dir}, stalls: map[string]*farlog.Stall{},
		writers: map[string]hostWriter{"a": {RingUUID: uuid}, "b": {RingUUID: "not opened yet"}},
	}
	began := time.Now().Add(-time.Minute) // so that what is told now is a minute old
	if all := role.look(began); len(all) != 1 || all[0].stalledFor != 0 {
		t.Errorf("the first look: %+v", all)
	}
	if all := role.look(began.Add(2 * time.Second)); len(all) != 1 || all[0].stalledFor != 2*time.Second ||
		all[0].stream != "a" {
		t.Errorf("2 s later: %+v", all)
	}
	if told := role.stalled(); len(told) != 1 || told[0].Stream != "a" || told[0].Epoch != 3 ||
		told[0].StalledFor.AsDuration() < stalledLeast {
		t.Errorf("told %v", told)
	}
	writer.Close()
	if told := role.stalled(); len(told) != 0 {
		t.Errorf("of a dead writer: %v", told)
	}
}
