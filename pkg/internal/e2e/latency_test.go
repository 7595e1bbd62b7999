package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What this proves, and how. The way to one of two targets is really longer: its packets go through a tunnel that holds
// each for some time. The host agent finds that out, and a stream that is written there is placed on the other target,
// although that has more rings; the same stream without a writer's host goes where there are fewer. What is only to be
// had beyond its limit waits, and says why, until the limit is raised; then it is written through that way.
func TestLatency_StreamIsPlacedNearItsWriter(t *testing.T) {
	t.Parallel()
	const oneWay, limit = 4 * time.Millisecond, "4ms"
	inside, outside := testenv.NewDetour(t, oneWay)
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil, "--host-addresses", "127.0.0.1",
		"--host-addresses", outside)
	dir := filepath.Join(cluster.Dir, "slow")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	slow, _ := testenv.StartDaemon(t, dir, "target", "--data-dir", dir, "--control", cluster.ControlAddress,
		"--metrics-listen", "off", "--host-name", "slow", "--listen", "ofi:tcp://"+inside+":0",
		"--advertise", outside)
	cluster.Watch(slow)
	for _, name := range []string{"near/1", "near/2"} {
		cluster.CreateStream(name, "--size", "1MiB", "--level", "visible", "--target", "storage")
	}

	// Without measurements a limit waits, and nothing else does.
	early := []string{
		"--size", "1MiB", "--level", "visible", "--writer-host", "trading1", "--control",
		cluster.ControlAddress,
	}
	checkUnmeasured(t, cluster, early, limit)

	bench := newHostBenchOn(t, cluster, "--host-addresses", "127.0.0.1", "--host-addresses", outside)
	ways := waitWays(t, cluster, "storage", "slow")
	if ways["slow"] < 2*oneWay || ways["storage"] >= 2*oneWay {
		t.Fatalf("measured %v, the way to slow takes %s", ways, 2*oneWay)
	}
	waitHost(t, cluster, "early/limited", "storage")
	cluster.CreateStream("desk7/near", early[:6]...)
	waitHost(t, cluster, "desk7/near", "storage")
	cluster.CreateStream("desk7/any", "--size", "1MiB", "--level", "visible")
	waitHost(t, cluster, "desk7/any", "slow")

	far := []string{"stream", "create", "desk7/far", "--target", "slow", "--latency-limit", limit, "--wait", "0"}
	testenv.MustRun(t, "farlog", append(far, early...)...)
	wanted := "from host trading1, the stream's limit is " + limit +
		": raise latency_limit, or start a target that is nearer"
	if status := cluster.Stream("desk7/far"); !strings.Contains(status.Reason, wanted) ||
		status.Condition != api.Condition_CONDITION_PENDING || len(status.RingSpecs) > 0 {
		t.Errorf("beyond its limit: %s %q, rings %v", status.Condition, status.Reason, status.RingSpecs)
	}
	fabric := filepath.Join(dir, "fabric.yaml")
	if err := os.WriteFile(fabric, []byte("streams:\n- {name: desk7/far, size: 1MiB, level: visible, target: slow, "+
		"writer_host: trading1, latency_limit: 1s}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	testenv.MustRun(t, "farlog", "apply", "-f", fabric, "--control", cluster.ControlAddress)
	waitHost(t, cluster, "desk7/far", "slow")
	writer, err := farlog.OpenWriter(bench.uri("desk7/far"), farlog.WriterOptions{Name: "far"})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	bench.append(writer, 3, "far")
}

// checkUnmeasured: before the host agent has measured anything a limit waits, and nothing else does.
func checkUnmeasured(t *testing.T, cluster *testenv.Cluster, early []string, limit string) {
	t.Helper()
	limited := []string{"stream", "create", "early/limited", "--latency-limit", limit, "--wait", "0"}
	testenv.MustRun(t, "farlog", append(limited, early...)...)
	testenv.MustRun(t, "farlog", append([]string{"stream", "create", "early/any"}, early...)...)
	if status := cluster.Stream("early/limited"); !strings.Contains(status.Reason,
		"no host agent on host trading1 has reported: start farlogd host there") || len(status.RingSpecs) > 0 {
		t.Errorf("with a limit and without measurements: %q, rings %v", status.Reason, status.RingSpecs)
	}
	if status := cluster.Stream("early/any"); hostOfRing(status) != "slow" ||
		!strings.Contains(status.Reason, "not chosen by its latency") {
		t.Errorf("without limit and measurements: %q, rings %v", status.Reason, status.RingSpecs)
	}

	if _, stderr, code := testenv.Run(t, "farlog", "stream", "create", "early/nobody", "--latency-limit", limit,
		"--control", cluster.ControlAddress); code != 2 ||
		!strings.Contains(stderr, "latency_limit 4ms: expected a writer_host as well") {
		t.Errorf("a limit without a host: exit code %d: %s", code, stderr)
	}
}

// hostOfRing is the host of the target that a stream of one ring is placed on; "" where it is on none.
func hostOfRing(status *api.StreamStatus) string {
	if len(status.RingSpecs) == 0 {
		return ""
	}
	name := status.RingSpecs[0].Target
	host, _, _ := strings.Cut(name, "-")
	return host
}

func waitHost(t *testing.T, cluster *testenv.Cluster, stream, want string) {
	t.Helper()
	testenv.Until(t, "stream "+stream+" is on "+want, func() (bool, error) {
		status := cluster.Stream(stream)
		host := hostOfRing(status)
		if host != "" && host != want {
			t.Fatalf("stream %s is on %s, want %s: %v", stream, host, want, status.Paths)
		}
		return host != "" && len(status.Rings) > 0 && len(status.Rings[0].RingUuid) > 0, nil
	})
}

// waitWays waits until the host agent has told its ways to the targets on these hosts.
func waitWays(t *testing.T, cluster *testenv.Cluster, hosts ...string) map[string]time.Duration {
	t.Helper()
	ways := map[string]time.Duration{}
	testenv.Until(t, "the host agent has measured its ways", func() (bool, error) {
		var listed struct {
			Hosts []struct {
				Paths []struct {
					Target string
					Least  time.Duration `json:"rtt_min_ns"`
					Count  int
				}
			}
		}
		if err := json.Unmarshal([]byte(testenv.MustRun(t, "farlog", "host", "list", "--output", "json", "--control",
			cluster.ControlAddress)), &listed); err != nil {
			return false, err
		}
		for _, host := range listed.Hosts {
			for _, way := range host.Paths {
				if name, _, _ := strings.Cut(way.Target, "-"); way.Count > 0 {
					ways[name] = way.Least
				}
			}
		}
		for _, host := range hosts {
			if ways[host] == 0 {
				return false, nil
			}
		}
		return true, nil
	})
	return ways
}
