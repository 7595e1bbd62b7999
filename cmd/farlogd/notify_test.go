package main

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// listenAsSystemd takes what the daemon says to systemd, message by message.
func listenAsSystemd(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return socket
}

// heard is the next message; "": there is none now.
func heard(t *testing.T, socket *net.UnixConn, wait time.Duration) string {
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

// watching starts a watchdog of an interval, and gives what ends it.
func watching(t *testing.T, n *notifier, interval time.Duration) {
	t.Helper()
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(interval.Microseconds(), 10))
	done := make(chan error)
	go func() { done <- n.watch(t.Context()) }()
	t.Cleanup(func() { // the test's context is done by now
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNotify_ReadyHasStatus(t *testing.T) {
	socket := listenAsSystemd(t)
	n := &notifier{logger: slog.New(slog.DiscardHandler)}
	if err := n.ready("ready: drain"); err != nil {
		t.Fatal(err)
	}
	if got := heard(t, socket, time.Minute); got != "READY=1\nSTATUS=ready: drain" {
		t.Errorf("heard %q", got)
	}
}

// systemd waits for ever for what it does not hear: the daemon ends.
func TestNotify_SocketIsGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	n := &notifier{logger: slog.New(slog.DiscardHandler)}
	if err := n.ready("ready: drain"); err == nil || !strings.Contains(err.Error(), "NOTIFY_SOCKET") {
		t.Errorf("got %v, expected an error that names NOTIFY_SOCKET", err)
	}
}

// hangs is of a daemon whose drain hangs while it is true.
type hangs struct{ atomic.Bool }

func (h *hangs) stalled(time.Time) error {
	if h.Load() {
		return errors.New("drain: hangs")
	}
	return nil
}

// What systemd hears while no role hangs, stops when one does, and goes on when it does.
func TestWatchdog_ARoleHangs(t *testing.T) {
	socket := listenAsSystemd(t)
	var role hangs
	role.Store(true)
	n := &notifier{
		logger: slog.New(slog.DiscardHandler), stalled: role.stalled, isHeldUp: func() bool { return false },
	}
	watching(t, n, 40*time.Millisecond)
	for range 10 { // some intervals: each has four looks
		if got := heard(t, socket, 20*time.Millisecond); got != "" {
			t.Fatalf("heard %q of a daemon whose drain hangs", got)
		}
	}
	role.Store(false)
	for range 5 {
		if got := heard(t, socket, time.Minute); got != "WATCHDOG=1" {
			t.Fatalf("heard %q of a daemon whose roles work", got)
		}
	}
}

// A daemon whose thread waits for a device is slow, and is not ended.
func TestWatchdog_DeviceHoldsItUp(t *testing.T) {
	socket := listenAsSystemd(t)
	var role hangs
	role.Store(true)
	n := &notifier{
		logger: slog.New(slog.DiscardHandler), stalled: role.stalled, isHeldUp: func() bool { return true },
	}
	watching(t, n, 40*time.Millisecond)
	for range 3 {
		if got := heard(t, socket, time.Minute); got != "WATCHDOG=1" {
			t.Fatalf("heard %q", got)
		}
	}
}

func TestWatchdog_IsOffWithoutAnInterval(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	n := &notifier{logger: slog.New(slog.DiscardHandler)}
	if err := n.watch(t.Context()); err != nil {
		t.Error(err)
	}
	t.Setenv("WATCHDOG_USEC", "soon")
	if err := n.watch(t.Context()); err == nil {
		t.Error("WATCHDOG_USEC=soon is taken for an interval, or for none")
	}
}

func TestThreadState_IsBehindTheName(t *testing.T) {
	for stat, want := range map[string]byte{
		"17 (farlogd) S 1 17 17": 'S', "17 (a) R) D) D 1 17": 'D', "17 (farlogd)": 0, "": 0, "17 (farlogd) ": 0,
	} {
		if got := threadState([]byte(stat)); got != want {
			t.Errorf("%q: state %q, expected %q", stat, got, want)
		}
	}
	own, err := os.ReadFile("/proc/thread-self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if state := threadState(own); state != 'R' {
		t.Errorf("the thread that reads its own state is in %q", state)
	}
}
