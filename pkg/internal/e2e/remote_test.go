package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	farHost        = "127.0.0.1"
	farRecordCount = 100_000
	farKills       = 40
)

// The recorded order flow goes from one host over a second to a third: farlog append, a target that it reaches by
// libfabric, a drain that reads the ring from afar.
func TestFar_HundredThousandRecordsReachTheStore(t *testing.T) {
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	uri := cluster.CreateStream(streamName, "--size", "16MiB", "--record-len-max", "64KiB", "--level", "visible")
	l := newLedger(t, "F")
	w := openWriter(t, l, "--stream", streamName, "--control", cluster.ControlAddress, "--window", "64")
	for range farRecordCount / 100 {
		if err := w.feedBurst(100); err != nil {
			t.Fatalf("feed: %v\n%s", err, w.process.Log())
		}
	}
	w.end(t)
	if log := w.process.Log(); !strings.Contains(log, "ring ofi:tcp://") {
		t.Errorf("the writer did not go by libfabric: %q", log)
	}
	waitDrained(t, uri)
	cluster.Drain.Stop()
	if len(l.acknowledged) != farRecordCount {
		t.Errorf("%d records were acknowledged, expected %d", len(l.acknowledged), farRecordCount)
	}
	checkStore(t, cluster.StoreDir, l)
}

// As TestKill, with the ring on another host for writer and drain, and its target killed as well: connections break at
// every moment of an append, a flush, a read and a release.
func TestFar_KillsLoseNothing(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	a := &arena{T: t, random: rand.New(rand.NewPCG(seed, 11)), ledger: newLedger(t, "L"), kills: map[string]int{}}
	a.cluster = testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil, "--store-segment", "1MiB")
	a.uri = a.cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", "visible")
	a.startWriter()
	kills := farKills
	if testing.Short() {
		kills /= killsShortPart
	}
	kinds := []weightedKill{{35, a.killWriter}, {30, a.killDrain}, {25, a.killTarget}, {10, a.killControlAndTarget}}
	for _, kill := range drawKills(a.random, kills, kinds) {
		// the moment of death is random, nothing depends on it
		time.Sleep(time.Duration(a.random.IntN(300)) * time.Millisecond)
		if kill(); t.Failed() {
			break
		}
	}
	a.waitAcknowledged(50)
	a.writer.finish(t)
	a.waitDrained()
	a.cluster.Drain.Stop()
	t.Logf("kills: %v; fed %d, acknowledged %d", a.kills, len(a.ledger.fed), len(a.ledger.acknowledged))
	checkStore(t, a.cluster.StoreDir, a.ledger)
}

// killTarget leaves writer and drain without a ring for a moment; both go on by themselves.
func (a *arena) killTarget() {
	a.checkAlive(a.cluster.Target)
	a.cluster.Target.Kill()
	a.kills["target"]++
	time.Sleep(time.Duration(a.random.IntN(200)) * time.Millisecond) // appends and reads find nobody
	a.cluster.StartTarget()
	if a.random.IntN(2) == 0 {
		a.waitAcknowledged(50)
	}
}

// killControlAndTarget shows as well that a target which comes back while there is no control plane lets in whom it
// knew.
func (a *arena) killControlAndTarget() {
	a.checkAlive(a.cluster.Control)
	a.waitAcknowledged(1) // this writer has its grant
	a.cluster.Control.Kill()
	a.kills["control"]++
	a.killTarget()
	a.waitAcknowledged(50)
	if a.random.IntN(2) == 0 {
		a.killDrain()
	}
	head := a.head()
	testenv.Until(a, "the drain goes on without a control plane", func() (bool, error) { return a.head() > head, nil })
	a.cluster.StartControl()
}

// A writer that is stopped is fenced by the next one. When it goes on it ends, says that it is fenced, and nothing that
// it is fed from then on is in the store.
func TestFar_TakeoverFencesAStoppedWriter(t *testing.T) {
	t.Parallel()
	for _, window := range []string{"1", "32"} {
		t.Run("window "+window, func(t *testing.T) {
			cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
			uri := cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", "visible")
			l := newLedger(t, "T")
			args := []string{"--stream", streamName, "--control", cluster.ControlAddress, "--window", window}
			old := startWriter(t, l, seedOf(t), args...)
			testenv.Until(t, "records are acknowledged", func() (bool, error) { return l.count() > 100, nil })
			old.process.Pause()
			old.stopped()
			next := startWriter(t, l, seedOf(t), append(args, "--takeover")...)
			testenv.Until(t, "the next writer has taken over",
				func() (bool, error) { return next.acks.Load() > 100, nil })
			old.process.Signal(syscall.SIGCONT)
			if err := old.process.Wait(); err == nil || old.process.IsKilled() {
				t.Errorf("the fenced writer ended with %v, expected exit code 1", err)
			}
			old.done.Wait()
			if log := old.process.Log(); !strings.Contains(log, "this writer, epoch 1, is fenced") {
				t.Errorf("the fenced writer said %q", log)
			}
			next.finish(t)
			waitDrained(t, uri)
			cluster.Drain.Stop()
			contents := checkStore(t, cluster.StoreDir, l)
			for _, hash := range old.late {
				if contents[hash] {
					t.Error("a record that was fed to the fenced writer is in the store")
				}
			}
			t.Logf("%d records were fed too late", len(old.late))
		})
	}
}

// end closes the input of a writer that is fed in bursts.
func (w *writer) end(t *testing.T) {
	t.Helper()
	w.stdin.Close()
	if err := w.process.Wait(); err != nil {
		t.Errorf("farlog append: %v\n%s", err, w.process.Log())
	}
	w.done.Wait()
}

// stopped says that what is fed from now on comes too late.
func (w *writer) stopped() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isStopped = true
}

// What nobody was granted is refused by the listener, by name, and who was let in goes on.
func TestFar_BadGrantsAreRefusedByName(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	cluster.CreateStream(streamName, "--size", "2MiB", "--level", "visible")
	cluster.CreateStream("desk8/orders", "--size", "2MiB", "--level", "visible")
	bad := &badGrants{T: t, cluster: cluster, dir: t.TempDir()}
	first := bad.grant(streamName)
	second := bad.grant(streamName) // fences the first
	other := bad.grant("desk8/orders")
	used := bad.grant("desk8/orders")
	bad.append("used once", used.Ring, used, "")
	bad.append("used again", used.Ring, used, "used by another client already")
	bad.append("of a fenced epoch", first.Ring, first, "epoch 1 is fenced")
	bad.append("of another ring", second.Ring, other, "is for another ring")
	wrong := second
	wrong.Token = strings.Repeat("5a", 16)
	bad.append("with a token that nobody drew", second.Ring, wrong, "no grant with this token")
	wrong = second
	wrong.RingUUID = strings.Repeat("0b", 16)
	bad.append("of another ring's uuid", second.Ring, wrong, "another ring than the one asked for")
	address, _, _ := strings.Cut(strings.TrimPrefix(second.Ring, "ofi:tcp://"), "/")
	bad.append("at a port of others", fmt.Sprintf("ofi:tcp://%s/%s", cluster.ControlAddress, streamName), second,
		"ofi:tcp://"+cluster.ControlAddress)
	bad.append("at a ring that is not there", "ofi:tcp://"+address+"/desk9/orders", second, "is for another ring")
	third := bad.grant(streamName)
	bad.append("that is good, after all of these", third.Ring, third, "")
}

// A target that does not answer holds up the drain of its own rings and of no others, and nobody waits for it when
// assignments change.
func TestFar_StuckTargetHoldsUpNoOtherDrain(t *testing.T) {
	t.Parallel()
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	uri := cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", "visible")
	other := testenv.NewTarget(t, cluster, "storage2", farHost)
	cluster.CreateStream("desk8/orders", "--size", "2MiB", "--level", "visible", "--target", "storage2")
	testenv.Until(t, "the other target's ring is drained", func() (bool, error) {
		return cluster.Stream("desk8/orders").GetRings()[0].GetDrainHeld(), nil
	})
	other.Pause()
	l := newLedger(t, "S")
	w := startWriter(t, l, seedOf(t), "--stream", streamName, "--control", cluster.ControlAddress)
	testenv.Until(t, "records are acknowledged", func() (bool, error) { return l.count() > 1000, nil })
	third := cluster.CreateStream("desk9/orders", "--size", "2MiB", "--level", "visible", "--target", "storage")
	testenv.Until(t, "a stream that came later is drained", func() (bool, error) {
		status, err := farlog.Inspect(third)
		return status.DrainHeld, err
	})
	w.finish(t)
	waitDrained(t, uri)
	other.Signal(syscall.SIGCONT)
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}
