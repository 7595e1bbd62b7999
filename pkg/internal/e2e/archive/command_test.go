package archive_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/internal/s3test"
)

// Exit codes of the program.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// session is a line of commands against one archive.
type session struct {
	*testing.T
	flags []string
}

// expect runs a command, and expects its exit code and a part of what it says.
func (s session) expect(code int, text string, args ...string) string {
	s.Helper()
	cmd, talk := program(append(args, s.flags...)...)
	_ = cmd.Run() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(talk.String(), text) {
		s.Fatalf("%v: exit code %d and %q, expected %d and %q", args, got, talk.String(), code, text)
	}
	return talk.String()
}

func TestCommands_FromProbeToRestore(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t, true)
	dir := filepath.Join(t.TempDir(), "store")
	fill(t, dir)
	s := session{t, []string{
		"--archive-url", "s3://" + bucket + "/desk", "--archive-endpoint", server.Endpoint, "--archive-region",
		s3test.Region,
	}}
	s.expect(exitOK, "delete with bypass                   refused", "probe")
	s.expect(exitFailure, "not an archive", "verify")
	s.expect(exitOK, "desk7/orders  ", "status", dir)
	s.expect(exitUsage, "expected --retain", "run", dir)
	s.expect(exitUsage, "period \"6\"", "run", dir, "--retain", "6")
	s.expect(exitOK, "0 bytes wait", "run", dir, "--once", "--retain", "1h")
	s.expect(exitOK, "nothing is missing, altered or out of order", "verify", "--retain", "1h")
	s.expect(exitFailure, "expected 1y from its sealing on", "verify", "--retain", "1y")
	restored := filepath.Join(t.TempDir(), "restored")
	s.expect(exitOK, "stream desk7/orders: ", "restore", restored)
	s.expect(exitUsage, "expected a directory that is missing, empty", "restore", restored)
	var list []archive.Progress
	if err := json.Unmarshal([]byte(s.expect(exitOK, "", "status", dir, "--output", "json")), &list); err != nil ||
		len(list) != 1 || list[0].Archived == 0 || list[0].LagBytes != 0 {
		t.Errorf("status %+v, %v", list, err)
	}
	bare := session{t, nil}
	bare.expect(exitUsage, "expected --archive-url s3://BUCKET/PREFIX", "probe")
	bare.expect(exitUsage, "expected export, hold, probe, restore, retention, run, serve-files, "+
		"status, verify", "prove")
	bare.expect(exitUsage, "http is for this host itself alone", "probe", "--archive-url", "s3://bucket",
		"--archive-endpoint", "http://192.0.2.1")
	bare.expect(exitUsage, "expected json", "probe", "--output", "xml")
}

// TestRun_ServesMetrics: a run that goes on says how far it is.
func TestRun_ServesMetrics(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t, true)
	dir := filepath.Join(t.TempDir(), "store")
	fill(t, dir)
	address := reserve(t)
	cmd, talk := program("run", dir, "--retain", "1h", "--poll", "20ms", "--metrics-listen", address, "--archive-url",
		"s3://"+bucket, "--archive-endpoint", server.Endpoint, "--archive-region", s3test.Region)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	page := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		page = get("http://" + address + "/metrics")
		if strings.Contains(page, "farlog_archive_lag_bytes{stream=\"desk7/orders\"} 0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing is archived: %s: %s", page, talk.String())
		}
	}
	for _, want := range []string{
		"farlog_archive_up 1\n", "farlog_archive_failing{stream=\"desk7/orders\"} 0\n",
		"farlog_archive_oldest_unarchived_segment{stream=\"desk7/orders\"} 0\n",
		"farlog_archive_lag_seconds{stream=\"desk7/orders\"} 0\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("metrics have no %q: %s", want, page)
		}
	}
	if health := get("http://" + address + "/healthz"); health != "ok\n" {
		t.Errorf("health is %q", health)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGINT: %v: %s", err, talk.String())
	}
}

func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	var raw bytes.Buffer
	_, _ = raw.ReadFrom(response.Body) // half a page has not what is looked for
	return raw.String()
}
