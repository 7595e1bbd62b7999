package e2e

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

const (
	silentCount = 450
	silentFiles = "512" // descriptors of each daemon
)

// Somebody who has no grant opens connections to a target's listener, as many as he can, and says nothing. A writer
// with a grant gets in, its records are acknowledged and stored, and the target's log and metrics say what happened.
func TestFar_SilentConnectionsStopNobody(t *testing.T) {
	t.Parallel()
	under := []string{"prlimit", "--nofile=" + silentFiles + ":" + silentFiles, "--"}
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, under)
	cluster.MetricsListen = "127.0.0.1:0"
	cluster.Start()
	uri := cluster.CreateStream(streamName, "--size", "2MiB", "--level", "visible")
	_, address, _ := strings.Cut(cluster.TargetArgs[3], "ofi:tcp://")
	began := time.Now()
	for range silentCount {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	l := newLedger(t, "U")
	w := startWriter(t, l, seedOf(t), "--stream", streamName, "--control", cluster.ControlAddress)
	testenv.Until(t, "records are acknowledged", func() (bool, error) { return l.count() > 1000, nil })
	w.finish(t)
	waitDrained(t, uri)
	testenv.Until(t, "the target's metrics count the connections that were closed", func() (bool, error) {
		answer, err := http.Get("http://" + cluster.Metrics["target"] + "/metrics")
		if err != nil {
			return false, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return strings.Contains(string(text), `farlog_target_unauthenticated_closed_total{reason="address"`) &&
			!strings.Contains(string(text), `reason="address",target="storage",transport="ofi"} 0`), err
	})
	const line = "newer connections from this address"
	testenv.Until(t, "the target's log has it", func() (bool, error) {
		return strings.Contains(cluster.Target.Log(), line), nil
	})
	log := cluster.Target.Log()
	if count := strings.Count(log, line); count > 1+int(time.Since(began)/time.Minute) {
		t.Errorf("%d lines of connections from one address in the target's log, expected one a minute: %s", count, log)
	}
	cluster.Drain.Stop()
	checkStore(t, cluster.StoreDir, l)
}
