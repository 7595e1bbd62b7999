package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	withoutControlTime  = time.Minute      // FARLOG_OUTAGE: as long as an operator wants
	withoutControlShort = 12 * time.Second // in make test
)

// The control plane, the etcd inside it and the host agent, by which the writer opened its stream, are killed under
// load and stay away for a minute: appends are acknowledged and drained all the while, and in the end nothing is lost.
func TestOutage_DataPathGoesOnWithoutControl(t *testing.T) {
	t.Parallel()
	cluster := testenv.PrepareCluster(t, testenv.MemoryDir(t))
	cluster.Start()
	uri := cluster.CreateStream(streamName, "--size", "16MiB", "--record-len-max", "64KiB", "--level", "visible")
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, l := newHostBenchOn(t, cluster, "--host-name", name), newLedger(t, "O")
	w := startWriter(t, l, 1, "--ring", host.uri(streamName), "--window", "16")
	a := &arena{T: t, cluster: cluster, ledger: l, uri: uri, writer: w}
	a.waitAcknowledged(100)
	cluster.Control.Kill()
	host.agent.Kill()
	a.goesOnFor(outageOf(t))
	w.finish(t)
	a.waitDrained()
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}

// goesOnFor looks every tenth of the time whether appends were acknowledged and records drained.
func (a *arena) goesOnFor(lasts time.Duration) {
	a.Helper()
	for range 10 {
		head, began := a.head(), time.Now()
		a.waitAcknowledged(20)
		testenv.Until(a, "the drain goes on without a control plane",
			func() (bool, error) { return a.head() > head, nil })
		time.Sleep(lasts/10 - time.Since(began)) // how long it goes on is what is asked for
	}
}

func outageOf(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("FARLOG_OUTAGE")
	if text == "" && testing.Short() {
		return withoutControlShort
	}
	if text == "" {
		return withoutControlTime
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("FARLOG_OUTAGE %q: expected a duration such as 60s", text)
	}
	return lasts
}
