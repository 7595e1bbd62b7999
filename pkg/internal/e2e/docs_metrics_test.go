package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

var metricHelp = regexp.MustCompile(`(?m)^# HELP (farlog_\w+) `)

// Whoever looks a metric up finds it: each one that a fabric in one process exports is on the page of metrics.
func TestDocs_MetricsAreListed(t *testing.T) {
	t.Parallel()
	var page []byte
	for _, name := range []string{"metrics.md", "metrics-data-path.md"} {
		text, err := os.ReadFile(filepath.Join(testenv.Root(), "docs", "reference", name))
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, text...)
	}
	dir := t.TempDir()
	_, daemon := testenv.StartDaemon(t, dir, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen",
		"127.0.0.1:0",
		"--host-socket", socketPath(t), "--merge-late", "1s")
	testenv.MustRun(t, "farlog", "stream", "create", streamName, "--size", "1MiB", "--wait", "30s", "--control",
		daemon.Control)
	answer, err := http.Get("http://" + daemon.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := metricHelp.FindAllStringSubmatch(string(text), -1)
	if len(names) < 30 {
		t.Fatalf("%d metrics of farlog at /metrics, expected those of control, target, drain and host", len(names))
	}
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name[1]+"`") {
			t.Errorf("docs/reference/metrics*.md do not have %s: add it, with what it means", name[1])
		}
	}
}
