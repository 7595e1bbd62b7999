package e2e

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// mountSmall mounts a tmpfs of its own for the store. It skips, naming what is missing, where that is not allowed.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	if err := syscall.Mount("farlog-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// With the store's disk full the drain stops and says so, the ring fills, the writer gets FULL and waits; nothing is
// lost. When space returns all goes on by itself.
func TestFullDisk_AllResumesWhenSpaceReturns(t *testing.T) {
	dir := testenv.MemoryDir(t)
	storeDir := filepath.Join(dir, "store")
	if err := os.Mkdir(storeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	mountSmall(t, storeDir, "6m")
	cluster := testenv.NewCluster(t, dir, "--store-segment", "1MiB", "--drain-batch", "256KiB")
	uri := cluster.CreateStream(streamName, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "visible")
	l := newLedger(t, "F")
	w := startWriter(t, l, seedOf(t), "--stream", streamName, "--control", cluster.ControlAddress, "--window", "16")

	testenv.Until(t, "the drain reports the full disk", func() (bool, error) {
		return strings.Contains(cluster.Stream(streamName).GetDrain().GetLastError(), "no space"), nil
	})
	testenv.Until(t, "the writer waits for space", func() (bool, error) {
		return strings.Contains(w.process.Log(), "ring is full"), nil
	})
	if cluster.Drain.HasEnded() || w.process.HasEnded() {
		t.Fatal("drain or writer ended because of a full disk")
	}
	second := testenv.Start(t, strings.NewReader("one record\n"), io.Discard, "farlog", "append", "--ring", uri)
	if err := second.Wait(); err == nil || !strings.Contains(second.Log(), "living writer") {
		t.Errorf("a second writer: %v, %q; expected exit code 1 and who holds the ring", err, second.Log())
	}
	stuckAt := l.count()

	if output, err := exec.Command("mount", "-o", "remount,size=512m", storeDir).CombinedOutput(); err != nil {
		t.Fatalf("enlarge the file system: %v: %s", err, output)
	}
	testenv.Until(t, "appending goes on", func() (bool, error) {
		if w.process.HasEnded() {
			return false, fmt.Errorf("the writer ended: %s", w.process.Log())
		}
		return l.count() > stuckAt+1000, nil
	})
	w.finish(t)
	waitDrained(t, uri)
	testenv.Until(t, "the drain reports no error", func() (bool, error) {
		return cluster.Stream(streamName).GetDrain().GetLastError() == "", nil
	})
	cluster.Drain.Stop()
	checkStore(t, storeDir, l)
}

// A drain that is killed while the disk is full starts again, waits, and loses nothing.
func TestFullDisk_DrainKilledMeanwhile(t *testing.T) {
	testenv.SkipWhenShort(t)
	dir := testenv.MemoryDir(t)
	storeDir := filepath.Join(dir, "store")
	if err := os.Mkdir(storeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	mountSmall(t, storeDir, "4m")
	cluster := testenv.NewCluster(t, dir, "--store-segment", "1MiB", "--drain-batch", "256KiB")
	uri := cluster.CreateStream(streamName, "--size", "1MiB", "--record-len-max", "64KiB", "--level", "visible")
	l := newLedger(t, "G")
	w := startWriter(t, l, seedOf(t), "--stream", streamName, "--control", cluster.ControlAddress, "--window", "16")
	testenv.Until(t, "the writer waits for space", func() (bool, error) {
		return strings.Contains(w.process.Log(), "ring is full"), nil
	})
	for range 5 {
		cluster.Drain.Kill()
		cluster.StartDrain()
	}
	if output, err := exec.Command("mount", "-o", "remount,size=512m", storeDir).CombinedOutput(); err != nil {
		t.Fatalf("enlarge the file system: %v: %s", err, output)
	}
	stuckAt := l.count()
	testenv.Until(t, "appending goes on", func() (bool, error) { return l.count() > stuckAt+1000, nil })
	w.finish(t)
	waitDrained(t, uri)
	cluster.Drain.Stop()
	checkStore(t, storeDir, l)
}
