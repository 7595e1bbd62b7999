package e2e

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/farlog/farlog/pkg/internal/dashboard"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

// What this proves, and how. A real Prometheus scrapes a running fabric while records are appended, and its drain
// stands still for a moment so that the ring fills. Every query of every dashboard must bring data, and every metric in
// the alert rules must be one that was scraped.
func TestPrometheus_EveryQueryHasData(t *testing.T) {
	t.Parallel()
	testenv.PrometheusTool(t, "prometheus")
	cluster := testenv.PrepareRemoteCluster(t, testenv.MemoryDir(t), farHost, nil, "--store-verify", "1s",
		"--store-segment", "1MiB", "--merge-late", "100ms")
	cluster.MetricsListen = "127.0.0.1:0"
	cluster.Start()
	dir := t.TempDir()
	socket := socketPath(t)
	_, host := testenv.StartDaemon(t, dir, "host", "--data-dir", dir, "--control", cluster.ControlAddress,
		"--metrics-listen", "127.0.0.1:0",
		"--host-socket", socket)
	second := t.TempDir()
	_, replica := testenv.StartDaemon(t, second, "replica", "--data-dir", second, "--replica-from", cluster.StoreDir,
		"--store-verify", "0", "--metrics-listen", "127.0.0.1:0")
	prometheus := testenv.StartPrometheus(t, map[string][]string{
		"farlog-control": {cluster.Metrics["control"]}, "farlog-target": {cluster.Metrics["target"]},
		"farlog-drain": {cluster.Metrics["drain"]},
		"farlog-host":  {host.Metrics}, "farlog-replica": {replica.Metrics},
	})
	began := time.Now()
	cluster.CreateStream(streamName, "--size", "64MiB", "--record-len-max", "64KiB", "--level", "visible")
	w := startWriter(t, newLedger(t, "P"), 1, "--stream", streamName, "--control", cluster.ControlAddress, "--window",
		"8")
	writePair(t, cluster, socket)
	f := &scraped{T: t, prometheus: prometheus, began: began, missing: queries()}
	f.until("the writer is seen", func() bool { f.ask(); return !f.misses("farlog_ring_writer_held") })
	cluster.Drain.Pause()
	f.until("the ring fills", func() bool { f.ask(); return !f.misses("farlog_ring_time_to_full_seconds") })
	cluster.Drain.Signal(syscall.SIGCONT)
	isClockKnown := f.count("farlog_writer_clock_known == 1") > 0
	f.until("every query has data", func() bool {
		f.ask()
		return !slices.ContainsFunc(f.missing, func(query string) bool {
			return !mediaQuery.MatchString(query) && (isClockKnown || !clockQuery.MatchString(query)) &&
				!strings.Contains(query, notOK)
		})
	})
	w.kill()
	f.until("a stream without a writer is not ok", func() bool { f.ask(); return !f.misses(notOK) })
	f.checkRules(isClockKnown)
}

// writePair has a stream with two members, whose writer comes by the host's agent.
func writePair(t *testing.T, cluster *testenv.Cluster, socket string) {
	t.Helper()
	testenv.NewTarget(t, cluster, "second", farHost)
	cluster.CreateStream("desk7/pair", "--members", "2", "--needed", "1", "--size", "1MiB", "--level", "visible")
	stdin, feed := io.Pipe()
	testenv.Start(t, stdin, nil, "farlog", "append", "--ring", "farlog://desk7/pair?agent="+socket, "--heartbeat",
		"200ms")
	t.Cleanup(func() { feed.Close() })
	if _, err := io.WriteString(feed, "one\n"); err != nil {
		t.Fatal(err)
	}
}

// queries are those of all dashboards, with the variables of a page that shows everything.
func queries() (list []string) {
	fill := strings.NewReplacer("$stream", ".*", "$instance", ".*", "$__rate_interval", "5s")
	for _, page := range dashboard.All() {
		for _, row := range page.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					list = append(list, fill.Replace(query.Expr))
				}
			}
		}
	}
	return list
}

// scraped is what a Prometheus has to answer.
type scraped struct {
	*testing.T
	prometheus *testenv.Prometheus
	began      time.Time
	missing    []string // queries that had no data yet
}

func (f *scraped) until(what string, isSo func() bool) {
	f.Helper()
	defer func() {
		if f.Failed() {
			f.Logf("no data: %s", strings.Join(f.missing, "\n"))
		}
	}()
	testenv.Until(f, what, func() (bool, error) {
		time.Sleep(200 * time.Millisecond)
		return isSo(), nil
	})
}

func (f *scraped) ask() {
	f.missing = slices.DeleteFunc(f.missing, func(query string) bool { return f.count(query) > 0 })
}

func (f *scraped) count(query string) int {
	f.Helper()
	count, err := f.prometheus.Series(query, f.began)
	if err != nil {
		f.Fatal(err)
	}
	return count
}

func (f *scraped) misses(metric string) bool {
	return slices.ContainsFunc(f.missing, func(query string) bool { return strings.Contains(query, metric) })
}

// clockQuery is of what is absent while nobody keeps the clock.
var clockQuery = regexp.MustCompile(
	`^(abs\(|max without \(instance, job\) \()?farlog(_writer)?_clock_(error|estimated_error|offset)_seconds`,
)

// mediaQuery is of what is absent where no ring lies on an NVMe device, no namespace is declared, or neither chrony nor
// ptp4l answers.
var mediaQuery = regexp.MustCompile(
	`^(1 - )?(device:)?farlog_target_(wear|spare|spare_threshold|device)_(ratio|critical)|` +
		`^farlog_(target|host)_namespace_up|^farlog_clock_keeper_offset_seconds`,
)

// notOK is of streams that are not in order.
const notOK = `farlog_stream_condition_info{condition!="ok"}`

var metricName = regexp.MustCompile(`\bfarlog_[a-z_]+`)

func (f *scraped) checkRules(isClockKnown bool) {
	failures, err := f.prometheus.RuleErrors()
	if err != nil || len(failures) > 0 {
		f.Errorf("rules: %v %v", failures, err)
	}
	names, err := f.prometheus.Names()
	if err != nil {
		f.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(testenv.Root(), "deploy", "prometheus", "farlog.rules.yml"))
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(rules, &file); err != nil {
		f.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			for _, name := range metricName.FindAllString(rule.Expr, -1) {
				isThere := slices.Contains(names, name) ||
					slices.ContainsFunc(names, func(one string) bool { return strings.Contains(one, ":"+name+":") })
				if !isThere && !mediaQuery.MatchString(name) && (isClockKnown || !clockQuery.MatchString(name)) {
					f.Errorf("rule %q: nothing exports %s", rule.Expr, name)
				}
			}
		}
	}
}

// socketPath is in a directory of its own whose name is short: so must a socket's be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "farlog-host-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "agent")
}
