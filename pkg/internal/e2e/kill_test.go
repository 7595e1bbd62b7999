// Package e2e tests the real programs together: as processes that are killed, on disks that fill up.
package e2e

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
	"github.com/farlog/farlog/pkg/store"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	streamName     = "desk7/orders"
	killsShortPart = 6 // make test has one in so many of the kills of make check
)

func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FARLOG_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("FARLOG_TEST_SEED %q: expected a number", text)
		}
	}
	t.Logf("seed %d (FARLOG_TEST_SEED repeats the choices)", seed)
	return seed
}

// What these tests prove, and how. Writer, drain and control are processes that get SIGKILL at random moments under a
// stream of distinct FIX messages. At the end the store has every acknowledged record exactly once at the place and
// with the bytes that were acknowledged, no record twice, nothing that was not fed, and verify finds it whole.
func TestKill_RingOnTmpfs(t *testing.T) {
	t.Parallel()
	testKills(t, testenv.MemoryDir(t), "visible", 170)
}

func TestKill_RingOnFile(t *testing.T) {
	t.Parallel()
	testKills(t, t.TempDir(), "persistent", 50)
}

// arena is one cluster under attack.
type arena struct {
	*testing.T
	cluster *testenv.Cluster
	random  *rand.Rand
	ledger  *ledger
	uri     string
	writer  *writer
	kills   map[string]int
}

func testKills(t *testing.T, dir, level string, target int) {
	seed := seedOf(t)
	a := &arena{T: t, random: rand.New(rand.NewPCG(seed, 5)), ledger: newLedger(t, "K"), kills: map[string]int{}}
	a.cluster = testenv.NewCluster(t, dir, "--store-segment", "1MiB")
	a.uri = a.cluster.CreateStream(streamName, "--size", "2MiB", "--record-len-max", "64KiB", "--level", level)
	a.startWriter()
	if testing.Short() {
		target /= killsShortPart
	}
	for _, kill := range drawKills(a.random, target, []weightedKill{
		{60, a.killWriter},
		{32, a.killDrain},
		{8, a.killControl},
	}) {
		// the moment of death is random, nothing depends on it
		time.Sleep(time.Duration(a.random.IntN(40)) * time.Millisecond)
		if kill(); t.Failed() {
			return
		}
	}
	a.writer.finish(t)
	a.waitDrained()
	a.cluster.Drain.Stop()
	t.Logf("kills: %v; fed %d, acknowledged %d", a.kills, len(a.ledger.fed), len(a.ledger.acknowledged))
	checkStore(t, a.cluster.StoreDir, a.ledger)
}

// weightedKill is drawn so many times of a hundred.
type weightedKill struct {
	percent int
	kill    func()
}

// drawKills draws count of them by their weights, in random order; each comes about once at least, however few they
// are.
func drawKills(random *rand.Rand, count int, kinds []weightedKill) []func() {
	drawn := make([]func(), 0, count)
	for _, kind := range kinds {
		drawn = append(drawn, kind.kill)
	}
	for len(drawn) < count {
		choice := random.IntN(100)
		for _, kind := range kinds {
			if choice -= kind.percent; choice < 0 {
				drawn = append(drawn, kind.kill)
				break
			}
		}
	}
	random.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn
}

func (a *arena) startWriter() {
	window := []string{"1", "8", "64"}[a.random.IntN(3)]
	a.writer = startWriter(a.T, a.ledger, a.random.Uint64(), "--stream", streamName, "--control",
		a.cluster.ControlAddress, "--window", window)
}

func (a *arena) killWriter() {
	a.checkAlive(a.writer.process)
	a.writer.kill()
	a.kills["writer"]++
	a.startWriter()
}

func (a *arena) killDrain() {
	a.checkAlive(a.cluster.Drain)
	a.cluster.Drain.Kill()
	a.kills["drain"]++
	time.Sleep(time.Duration(a.random.IntN(10)) * time.Millisecond) // the ring fills a little
	a.cluster.StartDrain()
}

// killControl shows as well that appends and drains go on without a control plane, and that a drain starts without one.
func (a *arena) killControl() {
	a.checkAlive(a.cluster.Control)
	a.waitAcknowledged(1) // this writer has its grant
	a.cluster.Control.Kill()
	a.kills["control"]++
	a.waitAcknowledged(50)
	if a.random.IntN(2) == 0 {
		a.killDrain()
	}
	head := a.head()
	testenv.Until(a, "the drain goes on without a control plane", func() (bool, error) { return a.head() > head, nil })
	a.cluster.StartControl()
}

func (a *arena) checkAlive(p *testenv.Process) {
	a.Helper()
	if p.HasEnded() {
		a.Errorf("%s ended by itself: %s", p.Name, p.Log())
	}
}

// waitAcknowledged waits until the present writer has acknowledged some more.
func (a *arena) waitAcknowledged(more int) {
	a.Helper()
	base := a.ledger.count()
	testenv.Until(a, fmt.Sprintf("%d more records are acknowledged", more), func() (bool, error) {
		if a.writer.process.HasEnded() {
			return false, fmt.Errorf("the writer ended by itself: %s", a.writer.process.Log())
		}
		return a.ledger.count() >= base+more, nil
	})
}

func (a *arena) head() uint64 {
	a.Helper()
	status, err := farlog.Inspect(a.uri)
	if err != nil {
		a.Fatal(err)
	}
	return status.HeadLSN
}

func (a *arena) waitDrained() { waitDrained(a.T, a.uri) }

func waitDrained(t *testing.T, uri string) {
	t.Helper()
	testenv.Until(t, "the ring is drained", func() (bool, error) {
		status, err := farlog.Inspect(uri)
		return status.LagBytes == 0, err
	})
}

// checkStore compares the store with the ledger, both ways. The result is what is in the store, by content.
func checkStore(t *testing.T, dir string, l *ledger) map[uint64]bool {
	t.Helper()
	return checkStoreOf(t, dir, streamName, l)
}

func checkStoreOf(t *testing.T, dir, stream string, l *ledger) map[uint64]bool {
	t.Helper()
	testenv.MustRun(t, "farlog", "verify", dir)
	for _, fault := range l.faults {
		t.Error(fault)
	}
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := opened.OpenReader(stream, store.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	contents := map[uint64]bool{}
	found := 0
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		hash := maphash.Bytes(hashSeed, item.Payload)
		if contents[hash] || !l.fed[hash] {
			t.Errorf("lsn %d of epoch %d: stored twice: %t, fed: %t", item.LSN, item.Epoch, contents[hash], l.fed[hash])
		}
		contents[hash] = true
		if want, isAcknowledged := l.acknowledged[place{item.Epoch, item.LSN}]; isAcknowledged {
			found++
			if want != hash {
				t.Errorf("lsn %d of epoch %d holds other bytes than were acknowledged there", item.LSN, item.Epoch)
			}
		}
	}
	if found != len(l.acknowledged) {
		t.Errorf("%d records were acknowledged, the store has %d of them", len(l.acknowledged), found)
	}
	return contents
}
