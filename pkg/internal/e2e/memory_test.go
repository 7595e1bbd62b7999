package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	drainPeakMaxKiB = 64 << 10
	memoryRingBytes = 256 << 20
)

// A drain that finds a large ring full of records takes no more memory than one of a small ring: it gives back the
// pages that it has read.
func TestMemory_DrainOfAFullLargeRingStaysSmall(t *testing.T) {
	cluster := testenv.NewCluster(t, testenv.MemoryDir(t))
	uri := cluster.CreateStream(streamName, "--size", fmt.Sprint(memoryRingBytes), "--level", "visible")
	cluster.Drain.Stop()
	fillRing(t, uri)
	cluster.StartDrain()
	waitDrained(t, uri)
	peak := peakKiB(t, cluster.Drain.PID())
	t.Logf("peak resident memory of the drain: %d KiB", peak)
	if peak > drainPeakMaxKiB {
		t.Errorf("the drain of a ring of %d bytes took %d KiB, expected at most %d", memoryRingBytes, peak,
			drainPeakMaxKiB)
	}
}

func fillRing(t *testing.T, uri string) {
	t.Helper()
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{
		Level: farlog.LevelVisible, Policy: farlog.PolicyReject,
		CountersDir: "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("fill"), 1<<10)
	for cursors := writer.Cursors(); cursors.AppendedLSN < memoryRingBytes/10*9; cursors = writer.Cursors() {
		if _, err := writer.Append(farlog.Entry{Data: payload}, testenv.Timeout); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
}

// peakKiB reads VmHWM, the highest resident size that a process has had.
func peakKiB(t *testing.T, pid int) (peak int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if count, _ := fmt.Sscanf(line, "VmHWM: %d kB", &peak); count == 1 {
			return peak
		}
	}
	t.Fatal("VmHWM is not in the status of the process")
	return 0
}
