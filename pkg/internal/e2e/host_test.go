package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/loop"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const nobody = 65534

// hostBench is a cluster whose rings are on another host, and a host agent.
type hostBench struct {
	*testing.T
	cluster *testenv.Cluster
	dir     string // that everybody may look into
	socket  string
	agent   *testenv.Process
	metrics string // the agent's address
	ring    string
}

func newHostBench(t *testing.T, args ...string) *hostBench {
	t.Helper()
	cluster := testenv.NewRemoteCluster(t, testenv.MemoryDir(t), farHost, nil)
	ring := cluster.CreateStream(streamName, "--size", "4MiB", "--record-len-max", "64KiB", "--level", "visible")
	b := newHostBenchOn(t, cluster, args...)
	b.ring = ring
	return b
}

// newHostBenchOn adds a host agent to a cluster.
func newHostBenchOn(t *testing.T, cluster *testenv.Cluster, args ...string) *hostBench {
	t.Helper()
	dir, err := os.MkdirTemp("", "farlog-host-") // a socket's path is short, and that of a test's own directory is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &hostBench{T: t, cluster: cluster, dir: dir, socket: filepath.Join(dir, "agent")}
	b.startAgent(args...)
	return b
}

func (b *hostBench) startAgent(args ...string) {
	b.Helper()
	dir := filepath.Join(b.cluster.Dir, "host")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	var ready testenv.Ready
	b.agent, ready = testenv.StartDaemonUnder(b.T, b.cluster.Under, dir, "host", append([]string{
		"--data-dir", dir, "--control", b.cluster.ControlAddress, "--host-name", "trading1", "--metrics-listen",
		"127.0.0.1:0", "--host-socket", b.socket,
	}, args...)...)
	b.metrics = ready.Metrics
	b.cluster.Watch(b.agent)
}

func (b *hostBench) uri(stream string) string { return "farlog://" + stream + "?agent=" + b.socket }

func (b *hostBench) append(writer *farlog.Writer, count int, prefix string) {
	b.Helper()
	for i := range count {
		if _, err := writer.Append(farlog.Entry{Data: fmt.Appendf(nil, "%s-%d", prefix, i), Class: 1},
			10*time.Second); err != nil {
			b.Fatalf("append %d: %v", i, err)
		}
	}
}

// A program that knows a stream's name and nothing else writes it: agent, control plane and target are found for it.
// What is open goes on when agent and control plane have died.
func TestHost_StreamByItsName(t *testing.T) {
	b := newHostBench(t)
	writer, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{Name: "by-name"})
	if err != nil {
		t.Fatal(err)
	}
	b.append(writer, 100, "first")
	b.agent.Kill()
	b.cluster.Control.Kill()
	b.append(writer, 100, "alone")
	if _, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{}); !errors.Is(err, farlog.ErrNotFound) ||
		!strings.Contains(err.Error(), "farlogd host") {
		t.Errorf("without an agent: %v", err)
	}
	b.cluster.StartControl()
	b.startAgent()
	second, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{Name: "successor"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Append(farlog.Entry{Data: []byte("late")}, 10*time.Second); !errors.Is(err, farlog.ErrFenced) {
		t.Errorf("the writer before: %v", err)
	}
	writer.Close()
	b.append(second, 100, "second")
	second.Close()
	testenv.Until(t, "the writer that ended is known to have ended", func() (bool, error) {
		shown, _, _ := testenv.Run(t, "farlog", "status", streamName, "--control", b.cluster.ControlAddress)
		return strings.Contains(shown, "closed, was ") && !strings.Contains(shown, "WRITER GONE"), nil
	})
	waitDrained(t, b.ring)
	b.cluster.Drain.Stop()
	dump := testenv.MustRun(t, "farlog", "dump", b.cluster.StoreDir, "--stream", streamName)
	for _, prefix := range []string{"first", "alone", "second"} {
		if count := strings.Count(dump, prefix+"-"); count != 100 {
			t.Errorf("%d of 100 records %q are in the store", count, prefix)
		}
	}
	if strings.Contains(dump, "late") {
		t.Error("a record of the fenced writer is in the store")
	}
}

// What is wrong is said in a line that names it, and the agent answers the next one.
func TestHost_Refusals(t *testing.T) {
	b := newHostBench(t)
	epoch := farlog.WriterOptions{Epoch: 7}
	for _, bad := range []struct {
		uri     string
		options farlog.WriterOptions
		want    error
		text    string
	}{
		{b.uri("no/such"), farlog.WriterOptions{}, farlog.ErrNotFound, "no/such"},
		{b.uri(""), farlog.WriterOptions{}, farlog.ErrInvalid, "stream's name"},
		{b.uri(strings.Repeat("x", 64)), farlog.WriterOptions{}, farlog.ErrInvalid, "stream's name"},
		{b.uri(streamName) + "&size=4", farlog.WriterOptions{}, farlog.ErrInvalid, "unknown option"},
		{b.uri(streamName) + "&transport=tcp", farlog.WriterOptions{}, farlog.ErrInvalid, "tcp"},
		{b.uri(streamName), epoch, farlog.ErrInvalid, "the host agent gives them"},
		{
			"farlog://" + streamName + "?agent=/" + strings.Repeat("x", 200),
			farlog.WriterOptions{},
			farlog.ErrInvalid,
			"too long",
		},
		{b.uri(streamName), farlog.WriterOptions{Level: farlog.LevelPersistent}, farlog.ErrLevel, "persistent"},
	} {
		writer, err := farlog.OpenWriter(bad.uri, bad.options)
		if err == nil {
			writer.Close()
		}
		if !errors.Is(err, bad.want) || !strings.Contains(err.Error(), bad.text) {
			t.Errorf("%s: got %v, expected %v with %q", bad.uri, err, bad.want, bad.text)
		}
	}
	writer, err := farlog.OpenWriter(b.uri(streamName), farlog.WriterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	writer.Close()
}

// The policy of a stream that is opened by its name is the stream's: what it refuses is not tried again and again.
func TestHost_AppendByNameRejects(t *testing.T) {
	b := newHostBench(t)
	b.cluster.CreateStream("desk7/small", "--size", "1MiB", "--record-len-max", "64KiB", "--level", "visible",
		"--policy", "reject")
	b.cluster.Drain.Kill()
	line := strings.Repeat("x", 60<<10) + "\n"
	process := testenv.Start(t, strings.NewReader(strings.Repeat(line, 40)), nil, "farlog", "append", "--ring",
		b.uri("desk7/small"))
	if err := process.Wait(); err == nil || !strings.Contains(process.Log(),
		"records were refused because the ring was full (policy reject)") {
		t.Errorf("%v: %s", err, process.Log())
	}
}

// The kernel tells who asks; a user whom no rule names gets no grant, and one who is named gets one.
func TestHost_UserDecides(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a program as another user")
	}
	b := newHostBench(t, "--host-allow", "65534=desk8/*", "--host-allow", "@65534=desk9/*")
	b.cluster.CreateStream("desk8/orders", "--size", "4MiB", "--level", "visible")
	b.cluster.CreateStream("desk9/orders", "--size", "4MiB", "--level", "visible")
	program := b.copyProgram("farlog")
	for stream, isAllowed := range map[string]bool{streamName: false, "desk8/orders": true, "desk9/orders": true} {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "append", "--ring", "farlog://"+stream, "--level", "visible")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Env, cmd.Stdin, cmd.Dir = []string{"FARLOG_AGENT=" + b.socket}, strings.NewReader("one record\n"), b.dir
		said, err := cmd.CombinedOutput()
		if (err == nil) != isAllowed || !isAllowed && !strings.Contains(string(said), "(65534) may not write stream") {
			t.Errorf("%s: %v: %s", stream, err, said)
		}
	}
}

// A device that only root may open is opened for the user who is named, with the locks of a ring his own; he writes as
// fast as if he had opened it.
func TestHost_DeviceIsHandedOver(t *testing.T) {
	device := loop.Device(t, 8<<20)
	b := newHostBench(t, "--host-device", device+"=65534")
	testenv.MustRun(t, "farlog", "ring", "format", "nvme:"+device, "--stream", "desk7/raw")
	program := b.copyProgram("farlog")
	run := func(stdin string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Timeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Env, cmd.Stdin, cmd.Dir = []string{"FARLOG_AGENT=" + b.socket}, strings.NewReader(stdin), b.dir
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	held, err := farlog.OpenWriter("nvme:"+device, farlog.WriterOptions{Level: farlog.LevelVisible})
	if err != nil {
		t.Fatal(err)
	}
	if said, err := run("one\n", "append", "--ring", "nvme:"+device, "--level", "visible"); err == nil ||
		!strings.Contains(said, "has a living writer") {
		t.Errorf("beside another writer: %v: %s", err, said)
	}
	held.Close()
	if said, err := run("one\ntwo\n", "append", "--ring", "nvme:"+device, "--level", "visible"); err != nil {
		t.Errorf("append: %v: %s", err, said)
	}
	if dump := testenv.MustRun(t, "farlog", "dump", device); strings.Count(dump, "one") != 1 ||
		strings.Count(dump, "two") != 1 {
		t.Errorf("the ring has %s", dump)
	}
	b.agent.Stop()
	b.startAgent()
	if said, err := run("three\n", "append", "--ring", "nvme:"+device, "--level", "visible"); err == nil ||
		!strings.Contains(said, "may not have "+device+" opened") {
		t.Errorf("without a rule: %v: %s", err, said)
	}
	b.agent.Stop()
	if said, err := run("three\n", "append", "--ring", "nvme:"+device, "--level", "visible"); err == nil ||
		!strings.Contains(said, "may not open: no host agent") {
		t.Errorf("without an agent: %v: %s", err, said)
	}
}

// copyProgram puts a program where every user may run it.
func (b *hostBench) copyProgram(name string) string {
	b.Helper()
	raw, err := os.ReadFile(testenv.Program(b.T, name))
	path := filepath.Join(b.dir, name)
	if err = errors.Join(err, os.WriteFile(path, raw, 0o755)); err != nil {
		b.Fatal(err)
	}
	return path
}

// Many programs at once, and one that connects and says nothing, which holds up nobody.
func TestHost_SilentClientHoldsUpNobody(t *testing.T) {
	b := newHostBench(t)
	for i := range 8 {
		b.cluster.CreateStream(fmt.Sprintf("desk8/%d", i), "--size", "4MiB", "--level", "visible")
	}
	for range 20 {
		silent, err := net.Dial("unixpacket", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			writer, err := farlog.OpenWriter(b.uri(fmt.Sprintf("desk8/%d", i)), farlog.WriterOptions{})
			if err != nil {
				t.Errorf("desk8/%d: %v", i, err)
				return
			}
			defer writer.Close()
			if _, err := writer.Append(farlog.Entry{Data: []byte("x")}, 10*time.Second); err != nil {
				t.Errorf("desk8/%d: %v", i, err)
			}
		})
	}
	running.Wait()
}
