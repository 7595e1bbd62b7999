package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/powercut"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	powerCuts      = 30
	powerCutsShort = 2
	hostDiskSize   = 512 << 20
)

// TestPowerCut_WholeHost cuts the power of a host again and again: control plane, target, drain, store and a ring in a
// plain file lie on one ext4, on a loop device, on a disk that keeps any subset of the sectors which were written since
// the last flush. The kernel's journal, its flushes and its page cache are real, and so are the programs. At the end
// the store has every record that was ever acknowledged, exactly once.
func TestPowerCut_WholeHost(t *testing.T) {
	t.Parallel()
	if missing := powercut.Missing(); missing != "" {
		t.Skip(missing)
	}
	if !testenv.RunApart(t) {
		return
	}
	cuts := powerCuts
	if testing.Short() {
		cuts = powerCutsShort
	}
	h := startHost(t)
	for range cuts {
		h.cutPower()
	}
	h.end()
}

// host is one on which everything runs.
type host struct {
	*testing.T
	disk    *powercut.Disk
	cluster *testenv.Cluster
	random  *rand.Rand
	ledger  *ledger
	writer  *writer
	uri     string
}

func startHost(t *testing.T) *host {
	t.Helper()
	h := &host{
		T: t, random: rand.New(rand.NewPCG(seedOf(t), 20)), ledger: newLedger(t, "P"),
		disk: powercut.New(t, t.TempDir(), hostDiskSize),
	}
	h.cluster = testenv.NewCluster(t, h.disk.Dir(), "--store-segment", "1MiB")
	t.Cleanup(h.kill) // before the disk goes
	h.uri = h.cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", "persistent")
	h.startWriter()
	return h
}

func (h *host) startWriter() {
	window := []string{"1", "8", "64"}[h.random.IntN(3)]
	h.writer = startWriter(h.T, h.ledger, h.random.Uint64(), "--stream", streamName, "--control",
		h.cluster.ControlAddress, "--window", window)
}

func (h *host) processes() []*testenv.Process {
	processes := []*testenv.Process{h.cluster.Control, h.cluster.Target, h.cluster.Drain}
	if h.writer != nil {
		processes = append(processes, h.writer.process)
	}
	return processes
}

func (h *host) kill() {
	for _, process := range h.processes() {
		process.Kill()
	}
}

// cutPower cuts it after some more records at a random moment, and brings the host up again. Nobody does anything
// between the cut and its death: what waits for the disk gets no answer before it has been killed.
func (h *host) cutPower() {
	h.Helper()
	more := h.ledger.count() + 1 + h.random.IntN(200)
	testenv.Until(h, "some more records are acknowledged",
		func() (bool, error) { return h.ledger.count() >= more || h.writer.process.HasEnded(), nil })
	// the moment of the cut is random, nothing depends on it
	time.Sleep(time.Duration(h.random.IntN(30)) * time.Millisecond)
	for _, process := range h.processes() {
		if process.HasEnded() {
			h.Fatalf("%s ended by itself: %s", process.Name, process.Log())
		}
	}
	h.disk.Cut()
	for _, process := range h.processes() {
		process.Signal(syscall.SIGKILL)
	}
	h.disk.RejectWrites()
	h.kill()
	h.writer.done.Wait()
	h.disk.Off()
	h.disk.On(h.random)
	h.cluster.StartControl()
	h.cluster.StartTarget()
	h.cluster.StartDrain()
	h.startWriter()
}

func (h *host) end() {
	h.Helper()
	h.writer.finish(h.T)
	waitDrained(h.T, h.uri)
	h.cluster.Drain.Stop()
	h.Logf("fed %d, acknowledged %d, %d flushes", len(h.ledger.fed), h.ledger.count(), h.disk.Flushes())
	checkStore(h.T, h.cluster.StoreDir, h.ledger)
}
