package e2e

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	lossPercent   = 5
	partitionTime = 3 * time.Second
	netDeadline   = 250 * time.Millisecond // of each append: a good part of the partition passes many of them
	// that this machine may be late by; the call that waited from the partition's beginning to its end is later than
	// that
	netLateMax     = 2 * time.Second
	netCountPhase  = 300 // acknowledgements before the partition, and after it
	netResolveTime = 5 * time.Second
)

// Trading host and target are two network namespaces. The cable between them loses every twentieth packet and is cut
// for three seconds: appends return by their deadline, and what was acknowledged, before, meanwhile or when it was
// asked for afterwards, is in the store.
func TestFar_LossAndPartitionLoseNothing(t *testing.T) {
	t.Parallel()
	network := testenv.NewNetwork(t)
	under := network.Under(network.Storage())
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), testenv.StorageAddress, under)
	uri := createUnder(t, cluster, under, "visible")
	lossy := &lossyWriter{T: t, level: farlog.LevelVisible, ledger: newLedger(t, "N")}
	lossy.grant = lossy.grantUnder(network.Under(network.Trading()), cluster)
	network.Lose(lossPercent)
	done := make(chan struct{})
	network.Go(network.Trading(), func() {
		defer close(done)
		lossy.work()
	})
	lossy.until("appends are acknowledged", func() bool { return lossy.acknowledged.Load() >= netCountPhase })
	network.Lose(100)
	before := lossy.returned.Load()
	time.Sleep(partitionTime) // what is tested is that this passes
	during := lossy.returned.Load() - before
	network.Lose(lossPercent)
	count := lossy.acknowledged.Load()
	lossy.until("appends are acknowledged again",
		func() bool { return lossy.acknowledged.Load() >= count+netCountPhase })
	network.Lose(0)
	lossy.isStopping.Store(true)
	<-done
	waitDrained(t, uri)
	cluster.Drain.Stop()
	t.Logf("%d appends returned during the partition; longest %s; %d outcomes were unknown at first, %d of these "+
		"records are there", during,
		lossy.longest, lossy.unknown, lossy.resolved)
	if during == 0 {
		t.Error("no append returned during the partition")
	}
	checkStore(t, cluster.StoreDir, lossy.ledger)
}

// The target's host dies without a word: its kernel has acknowledged the bytes of the append under way, and what it
// would say when the target ends is lost. The writer has nothing to send and receives nothing, so that no transport
// finds out; it comes back to the next target by itself.
func TestFar_TargetThatDiesSilently(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	for _, level := range []farlog.Level{farlog.LevelVisible, farlog.LevelPersistent} {
		t.Run(level.String(), func(t *testing.T) {
			network := testenv.NewNetwork(t)
			under := network.Under(network.Storage())
			dir := testenv.MemoryDir(t)
			if level == farlog.LevelPersistent {
				dir = t.TempDir()
			}
			cluster := testenv.NewRemoteCluster(t, dir, testenv.StorageAddress, under)
			uri := createUnder(t, cluster, under, level.String())
			lossy := &lossyWriter{T: t, level: level, ledger: newLedger(t, "S")}
			lossy.grant = lossy.grantUnder(network.Under(network.Trading()), cluster)
			done := make(chan struct{})
			network.Go(network.Trading(), func() {
				defer close(done)
				lossy.work()
			})
			lossy.until("appends are acknowledged", func() bool { return lossy.acknowledged.Load() >= netCountPhase })
			cluster.Target.Pause()
			count := lossy.returned.Load()
			lossy.until("appends return, though the target stands",
				func() bool { return lossy.returned.Load() >= count+2 })
			network.Lose(100)
			cluster.Target.Kill()
			network.Lose(0)
			cluster.StartTarget()
			began := time.Now()
			count = lossy.acknowledged.Load()
			lossy.until("appends are acknowledged again",
				func() bool { return lossy.acknowledged.Load() >= count+netCountPhase })
			t.Logf("acknowledged again after %s", time.Since(began))
			lossy.isStopping.Store(true)
			<-done
			waitDrained(t, uri)
			cluster.Drain.Stop()
			checkStore(t, cluster.StoreDir, lossy.ledger)
		})
	}
}

// A token that somebody on another host has listened in on opens nothing from there, and goes on being good where it
// was given.
func TestFar_TokenIsGoodOnItsOwnHostAlone(t *testing.T) {
	t.Parallel()
	network := testenv.NewNetwork(t)
	storage, trading := network.Under(network.Storage()), network.Under(network.Trading())
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), testenv.StorageAddress, storage)
	createUnder(t, cluster, storage, "visible")
	b := &badGrants{T: t, cluster: cluster, dir: t.TempDir(), under: trading}
	grant := b.grant(streamName)
	b.under = storage
	b.append("of another host", grant.Ring, grant, "did not name this address as its own")
	b.under = trading
	b.append("of its own host", grant.Ring, grant, "")
}

func createUnder(t *testing.T, cluster *testenv.Cluster, under []string, level string) string {
	t.Helper()
	output := testenv.MustRunUnder(t, under, "farlog", "stream", "create", streamName, "--size", "4MiB", "--level",
		level,
		"--control", cluster.ControlAddress, "--output", "json")
	var status struct {
		Rings []struct {
			URI string `json:"uri"`
		} `json:"rings"`
	}
	if err := json.Unmarshal([]byte(output), &status); err != nil || len(status.Rings) != 1 {
		t.Fatalf("stream create said %q: %v", output, err)
	}
	return status.Rings[0].URI
}

// lossyWriter appends over the bad cable.
type lossyWriter struct {
	*testing.T
	ledger *ledger
	level  farlog.Level
	grant  grantFile

	isStopping   atomic.Bool
	acknowledged atomic.Int64
	returned     atomic.Int64
	failed       atomic.Bool

	longest           time.Duration
	pending           []pendingRecord
	unknown, resolved int
}

type pendingRecord struct {
	position farlog.Position
	hash     uint64
}

func (w *lossyWriter) grantUnder(under []string, cluster *testenv.Cluster) grantFile {
	w.Helper()
	b := &badGrants{T: w.T, cluster: cluster, dir: w.TempDir(), under: under}
	return b.grant(streamName)
}

func (w *lossyWriter) until(what string, condition func() bool) {
	w.Helper()
	testenv.Until(w, what, func() (bool, error) {
		if w.failed.Load() {
			return false, errors.New("the writer failed")
		}
		return condition(), nil
	})
}

func (w *lossyWriter) fail(format string, args ...any) {
	w.Errorf(format, args...)
	w.failed.Store(true)
}

// work appends until it is told to stop, and then finds out about what was unknown.
func (w *lossyWriter) work() {
	token, err := hex.DecodeString(w.grant.Token)
	if err != nil {
		w.fail("token: %v", err)
		return
	}
	writer, err := farlog.OpenWriter(w.grant.Ring, farlog.WriterOptions{
		Level: w.level, Epoch: w.grant.Epoch,
		Token: (*[farlog.TokenLen]byte)(token), CountersDir: "none",
	})
	if err != nil {
		w.fail("open: %v", err)
		return
	}
	for !w.isStopping.Load() && !w.failed.Load() {
		w.append(writer)
	}
	for _, one := range w.pending {
		w.resolve(writer, one)
	}
	if err := writer.Close(); err != nil {
		w.fail("close: %v", err)
	}
}

func (w *lossyWriter) append(writer *farlog.Writer) {
	raw, hash := w.ledger.next()
	began := time.Now()
	position, err := writer.Append(farlog.Entry{Data: raw}, netDeadline)
	took := time.Since(began)
	w.longest = max(w.longest, took)
	w.returned.Add(1)
	if took > netDeadline+netLateMax {
		w.fail("an append with deadline %s returned after %s", netDeadline, took)
	}
	switch {
	case err == nil:
		w.note(position, hash)
		w.acknowledged.Add(1)
	case errors.Is(err, farlog.ErrUnknown):
		w.unknown++
		w.pending = append(w.pending, pendingRecord{position, hash})
	case errors.Is(err, farlog.ErrFull): // while nobody learns of the drain's progress
	default:
		w.fail("append: %v", err)
	}
}

// resolve finds out about a record of which nothing was known at the deadline: what this writer has put into the ring
// gets there.
func (w *lossyWriter) resolve(writer *farlog.Writer, one pendingRecord) {
	_, err := writer.Resolve(one.position.LSN, netResolveTime)
	if err != nil {
		w.fail("resolve lsn %d of this writer's own epoch: %v", one.position.LSN, err)
		return
	}
	w.note(one.position, one.hash)
	w.resolved++
}

func (w *lossyWriter) note(position farlog.Position, hash uint64) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.acknowledged[place{position.Epoch, position.LSN}] = hash
}
