package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/internal/testenv"
)

// heardMost bounds every wait for a message; it is no measure.
const heardMost = time.Minute

// notifySocket is systemd's end of NOTIFY_SOCKET, for a daemon of any user.
func notifySocket(t *testing.T) (socket *net.UnixConn, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "farlog-notify-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "notify")
	socket, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket, path
}

// notifyUnder is systemd's environment of a unit with Type=notify and, above 0, WatchdogSec=.
func notifyUnder(path string, watchdog time.Duration) []string {
	under := []string{"env", "NOTIFY_SOCKET=" + path}
	if watchdog > 0 {
		under = append(under, "WATCHDOG_USEC="+strconv.FormatInt(watchdog.Microseconds(), 10))
	}
	return under
}

// nextMessage is what the daemon says next; "": nothing for so long.
func nextMessage(t *testing.T, socket *net.UnixConn, wait time.Duration) string {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	message := make([]byte, 4096)
	n, err := socket.Read(message)
	if err != nil && !os.IsTimeout(err) {
		t.Fatal(err)
	}
	return string(message[:n])
}

// What systemd hears of a daemon: nothing before it serves, then that it is ready, that its loops turn, and that it
// stops.
func TestNotify_RealDaemon(t *testing.T) {
	testenv.SkipWhenShort(t)
	socket, path := notifySocket(t)
	dir := t.TempDir()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePort(t)))
	daemon := testenv.StartUnder(t, notifyUnder(path, 8*time.Second), nil, nil, "farlogd", "dev", "--data-dir", dir,
		"--roles", "control,target,drain", "--listen", address, "--metrics-listen", "off")
	first := nextMessage(t, socket, heardMost)
	if first != "READY=1\nSTATUS=ready: control, target, drain" {
		t.Fatalf("heard %q first\n%s", first, daemon.Log())
	}
	// at once: whoever is ordered behind the unit begins now
	testenv.MustRun(t, "farlog", "status", "--control", address)
	for range 3 {
		if got := nextMessage(t, socket, heardMost); got != "WATCHDOG=1" {
			t.Fatalf("heard %q\n%s", got, daemon.Log())
		}
	}
	daemon.Stop()
	for got := ""; got != "STOPPING=1"; {
		if got = nextMessage(t, socket, heardMost); got != "STOPPING=1" && got != "WATCHDOG=1" {
			t.Fatalf("heard %q of a daemon that was stopped", got)
		}
	}
}

// A control plane whose etcd does not answer is not ready, and never says so.
func TestNotify_NotReadyBeforeItServes(t *testing.T) {
	testenv.SkipWhenShort(t)
	socket, path := notifySocket(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	daemon := testenv.StartUnder(t, notifyUnder(path, 0), nil, nil, "farlogd", "control", "--data-dir", t.TempDir(),
		"--listen", "127.0.0.1:0", "--metrics-listen", "off", "--etcd-endpoints", silent.Addr().String())
	if err := daemon.Wait(); err == nil || !strings.Contains(daemon.Log(), "etcd") {
		t.Fatalf("ended with %v, expected that its etcd does not answer\n%s", err, daemon.Log())
	}
	// what it has said lies there by now
	for got := "-"; got != ""; {
		if got = nextMessage(t, socket, 100*time.Millisecond); strings.Contains(got, "READY=1") {
			t.Errorf("a control plane without etcd said %q", got)
		}
	}
}
