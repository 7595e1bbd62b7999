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
	path := filepath.Join(dir, uuid+".counters")
	write := func(appended, epoch, records uint64) { // and nothing is durable
		raw := make([]byte, 16<<10) // a file of counters is shorter
		copy(raw, "FARLCTR1")       // as rdma/src/stats.c has it
		binary.LittleEndian.PutUint64(raw[8:], 8*words)
		for word, value := range map[int]uint64{0: appended, 4: epoch, 9: records} {
			binary.LittleEndian.PutUint64(raw[header+8*word:], value)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(4096, 3, 100)
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
	if all := role.readCounters(began); len(all) != 1 || all[0].stalledFor != 0 {
		t.Errorf("the first look: %+v", all)
	}
	if all := role.readCounters(began.Add(2 * time.Second)); len(all) != 1 || all[0].stalledFor != 2*time.Second ||
		all[0].stream != "a" {
		t.Errorf("2 s later: %+v", all)
	}
	told := role.writerStates(time.Now())
	if len(told) != 1 || told[0].Stream != "a" || told[0].Epoch != 3 ||
		told[0].StalledFor.AsDuration() < stalledLeast ||
		told[0].Counters.Records != 100 ||
		told[0].Counters.AppendRateRecords != 0 {
		t.Errorf("told %v", told)
	}
	write(4096+1000, 3, 150)
	if told = role.writerStates(time.Now().Add(time.Hour)); len(told) != 1 ||
		!isAbout(told[0].Counters.AppendRateRecords, 50.0/3600) ||
		!isAbout(told[0].Counters.AppendRateBytes, 1000.0/3600) {
		t.Errorf("50 records in an hour: %v", told)
	}
	write(8192, 4, 200)
	if told = role.writerStates(time.Now().Add(2 * time.Hour)); len(told) != 1 ||
		told[0].Counters.AppendRateRecords != 0 {
		t.Errorf("another writer: %v", told)
	}
	write(9192, 4, 300)
	writer.Close()
	if told = role.writerStates(time.Now().Add(3 * time.Hour)); len(told) != 1 || told[0].StalledFor != nil ||
		told[0].Counters.AppendRateRecords != 0 || told[0].Counters.Records != 300 {
		t.Errorf("of a dead writer: %v", told)
	}
}

func isAbout(got, want float64) bool { return got > want*0.99 && got < want*1.01 }
