// Package archive_test runs farlog-archive as a process, against a real S3 server.
package archive_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/farlog/farlog/pkg/archive"
	"github.com/farlog/farlog/pkg/internal/port"
	"github.com/farlog/farlog/pkg/internal/s3test"
	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const stream = "desk7/orders"

// binary is farlog-archive, built from this tree.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "farlog-archive-")
	if err == nil {
		binary = filepath.Join(dir, "farlog-archive")
		build := exec.Command("go", "build", "-o", binary, "../../../../cmd/farlog-archive")
		build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build farlog-archive:", err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// program is a run of farlog-archive.
func program(args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), s3test.Environ()...)
	var talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &talk, &talk
	return cmd, &talk
}

// fill makes a store with one stream of several sealed segments.
func fill(t *testing.T, dir string) *store.Store {
	t.Helper()
	opened, err := store.Open(dir, store.Options{
		Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(stream, 1)
	ring.Append(80, 600)
	app, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := app.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	return opened
}

// killer stands before the server, and kills a process at one of its calls.
type killer struct {
	*httptest.Server
	behind *httputil.ReverseProxy

	mutex   sync.Mutex
	calls   int
	at      int  // the call at which it kills; 0 = none
	isAfter bool // the server carries it out first
	kill    func()
}

func newKiller(t *testing.T, endpoint string) *killer {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{behind: &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}}
	k.Server = httptest.NewServer(k)
	t.Cleanup(k.Close)
	return k
}

func (k *killer) arm(at int, isAfter bool, kill func()) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.calls, k.at, k.isAfter, k.kill = 0, at, isAfter, kill
}

func (k *killer) count() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.calls
}

func (k *killer) ServeHTTP(to http.ResponseWriter, request *http.Request) {
	k.mutex.Lock()
	k.calls++
	isNow, isAfter, kill := k.calls == k.at, k.isAfter, k.kill
	k.mutex.Unlock()
	if !isNow {
		k.behind.ServeHTTP(to, request)
		return
	}
	if isAfter {
		k.behind.ServeHTTP(httptest.NewRecorder(), request)
	}
	kill()
	panic(http.ErrAbortHandler)
}

// TestRun_KilledAtEachCall: SIGKILL before a call reaches the storage, and after the storage has carried it out. What
// is in the bucket then is whole as far as it counts, the store claims no more, and the next run ends with every object
// there once.
func TestRun_KilledAtEachCall(t *testing.T) {
	server := s3test.Start(t)
	bucket := server.Bucket(t, true)
	k := newKiller(t, server.Endpoint)
	once := func(dir, prefix string) (*exec.Cmd, *bytes.Buffer) {
		return program("run", dir, "--once", "--retain", "1h", "--archive-url", "s3://"+bucket+"/"+prefix,
			"--archive-endpoint", k.URL, "--archive-region", s3test.Region)
	}
	dir := filepath.Join(t.TempDir(), "store")
	opened := fill(t, dir)
	sealed, err := opened.Sealed(stream)
	if err != nil || len(sealed.Segments) < 2 {
		t.Fatalf("%d sealed segments, %v", len(sealed.Segments), err)
	}
	step, runs, isOver := 1, 0, false
	if testing.Short() {
		step = 17
	}
	for at := 1; !isOver; at += step {
		for _, isAfter := range []bool{false, true} {
			runs++
			prefix := fmt.Sprintf("run-%d-%t", at, isAfter)
			if err := os.Remove(filepath.Join(dir, store.ArchivedFile(stream))); err != nil &&
				!errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			claim(t, opened, connect(t, server.Endpoint, bucket, prefix))
			cmd, _ := once(dir, prefix)
			started := make(chan struct{})
			k.arm(at, isAfter, func() { <-started; _ = cmd.Process.Kill() })
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			close(started)
			if err := cmd.Wait(); err == nil && k.count() < at {
				isOver = true // it does not take as many calls
			} else if err == nil || cmd.ProcessState.ExitCode() != -1 {
				t.Fatalf("call %d: %v, expected that it was killed", at, err)
			}
			checkKilled(t, opened, server.Endpoint, bucket, prefix)
			k.arm(0, false, nil)
			if cmd, talk := once(dir, prefix); cmd.Run() != nil {
				t.Fatalf("call %d, after it %t: the next run: %s", at, isAfter, talk)
			}
			report, err := archive.Verify(t.Context(), connect(t, server.Endpoint, bucket, prefix),
				archive.VerifyOptions{})
			if err != nil || !report.OK() || report.Segments != len(sealed.Segments) || report.Duplicates != 0 ||
				report.Uncommitted != 0 || report.Objects != 3*len(sealed.Segments)+2 {
				t.Fatalf("call %d, after it %t: archive is %+v, %v", at, isAfter, report, err)
			}
		}
	}
	if runs < 4 {
		t.Errorf("%d kills, expected some at each step of an upload", runs)
	}
	t.Logf("%d kills", runs)
}

func connect(t *testing.T, endpoint, bucket, prefix string) *archive.Bucket {
	t.Helper()
	b, err := archive.Open(archive.Options{
		Location:    archive.Location{Endpoint: endpoint, Region: s3test.Region, Bucket: bucket, Prefix: prefix},
		Credentials: s3test.Credentials(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// claim makes a prefix the archive of the store.
func claim(t *testing.T, opened *store.Store, b *archive.Bucket) {
	t.Helper()
	keep, err := archive.ParsePeriod("1h")
	if err == nil {
		err = archive.NewWriter(opened, b, keep).Claim(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkKilled: what counts is whole, and the store claims no more than that.
func checkKilled(t *testing.T, opened *store.Store, endpoint, bucket, prefix string) {
	t.Helper()
	claimed, err := retention.LoadArchived(opened, stream)
	if err != nil {
		t.Fatal(err)
	}
	report, err := archive.Verify(t.Context(), connect(t, endpoint, bucket, prefix), archive.VerifyOptions{})
	if err != nil || !report.OK() || report.Segments < int(claimed.Segment) {
		t.Fatalf("%s: archive is %+v, %v, and the store claims segment %d", prefix, report, err, claimed.Segment)
	}
}

func reserve(t *testing.T) string {
	t.Helper()
	number, err := port.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", number)
}
