package farlog_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// countersOf writes counters as a writer exports them (rdma/src/stats.c), and reads them again.
func countersOf(t *testing.T, appended, durable, epoch uint64) *farlog.Counters {
	t.Helper()
	const words, header = 19 + 3 + 1408, 64
	raw := make([]byte, 16<<10) // a file of counters is shorter
	copy(raw, "FARLCTR1")
	binary.LittleEndian.PutUint64(raw[8:], 8*words)
	for i, value := range map[int]uint64{0: appended, 1: durable, 4: epoch} {
		binary.LittleEndian.PutUint64(raw[header+8*i:], value)
	}
	dir, uuid := t.TempDir(), [16]byte{7}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%x.counters", uuid)), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	counters, err := farlog.ReadCounters(dir, uuid)
	if err != nil || counters.AppendedLSN() != appended || counters.Epoch() != epoch {
		t.Fatalf("%v, %v", counters, err)
	}
	return counters
}

// A stall is as long as records were seen to wait while nothing became durable: not while something does, nor while
// nothing waits, and another writer's is not the one's before.
func TestStall_Look(t *testing.T) {
	var stall farlog.Stall
	start := time.Unix(1000, 0)
	for i, step := range []struct {
		appended, durable, epoch uint64
		at, want                 time.Duration
	}{
		{100, 100, 1, 0, 0},
		{200, 100, 1, 1, 0},
		{200, 100, 1, 2, 1},
		{300, 100, 1, 5, 4}, // more wait, and none is acknowledged
		{300, 200, 1, 6, 0}, // one was
		{300, 200, 1, 9, 3},
		{300, 200, 2, 10, 0}, // another writer
		{300, 300, 2, 11, 0},
		{400, 300, 2, 12, 0},
		{400, 300, 2, 11, 0}, // a clock that was set back
	} {
		if got := stall.Update(countersOf(t, step.appended, step.durable, step.epoch),
			start.Add(step.at*time.Second)); got != step.want*time.Second {
			t.Errorf("look %d: stalled for %s, expected %s", i, got, step.want*time.Second)
		}
	}
}
