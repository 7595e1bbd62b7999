package e2e

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// The control plane is on one host, and the target, the drain, the host agent and the writer on another. The cable
// between them is cut under load: appends and drains go on, and the control plane says who has gone. What is declared
// meanwhile comes to be when the cable is back, without anybody's help, and nothing is lost.
func TestControl_CutOffFromItsAgents(t *testing.T) {
	testenv.SkipWhenShort(t)
	t.Parallel()
	network := testenv.NewNetwork(t)
	far := network.Under(network.Trading())
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), testenv.StorageAddress, far)
	cluster.ControlAddress = testenv.TradingAddress + ":" + strconv.Itoa(testenv.FreePort(t))
	cluster.StartControl()
	cluster.Under = network.Under(network.Storage())
	cluster.StartTarget()
	cluster.StartDrain()
	declare := func(name string) {
		testenv.MustRunUnder(t, far, "farlog", "stream", "create", name, "--size", "4MiB", "--record-len-max", "64KiB",
			"--level", "visible", "--wait", "0s", "--control", cluster.ControlAddress)
	}
	status := func(name string) string {
		said, _, _ := testenv.RunUnder(t, far, "farlog", "status", name, "--output", "json", "--control",
			cluster.ControlAddress)
		return said
	}
	until := func(what, name, text string) {
		testenv.Until(t, what, func() (bool, error) { return strings.Contains(status(name), text), nil })
	}
	declare(streamName)
	until("the stream is up", streamName, `"state": "ok"`)
	ring := "mem:" + filepath.Join(cluster.Dir, "target", "rings", strings.ReplaceAll(streamName, "/", "%2F")+".ring")
	l := newLedger(t, "K")
	host := newHostBenchOn(t, cluster)
	w := openWriterUnder(t, cluster.Under, l, "--ring", host.uri(streamName), "--window", "16")
	goesOn := func(what string) {
		count := l.count()
		if err := w.feedBurst(200); err != nil {
			t.Fatal(err)
		}
		testenv.Until(t, what, func() (bool, error) { return l.count() >= count+200, nil })
	}
	goesOn("appends are acknowledged")

	network.Lose(100)
	until("the control plane misses the target", streamName, `"target_alive": false`)
	declare("desk7/meanwhile")
	goesOn("appends are acknowledged without the control plane")
	waitDrained(t, ring)
	until("the stream that was declared meanwhile has no ring", "desk7/meanwhile", `"target_alive": false`)

	network.Lose(0)
	until("the stream that was declared meanwhile is up", "desk7/meanwhile", `"state": "ok"`)
	until("the target is back", streamName, `"target_alive": true`)
	goesOn("appends are acknowledged afterwards")
	w.end(t)
	until("everything is drained", streamName, `"lag_bytes": 0`)
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}
