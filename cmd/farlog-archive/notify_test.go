package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// heard is what systemd has been sent; "": nothing for so long.
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

// The unit is active once the store is this process's, although nothing answers where the storage should be; a second
// process for the same store never says that it is.
func TestRun_NotifiesOnceTheStoreIsItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("AWS_ACCESS_KEY_ID", "desk")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret")
	dir := filepath.Join(t.TempDir(), "store")
	if _, err := store.Open(dir, store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"run", dir, "--retain", "1h", "--archive-url", "s3://worm/desk7", "--archive-endpoint", "http://127.0.0.1:1",
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- run(ctx, args, &bytes.Buffer{}, &bytes.Buffer{}) }()
	if got, want := heard(t, socket, time.Minute), "READY=1\nSTATUS=archives "+dir+" in s3://worm/desk7"; got != want {
		t.Errorf("heard %q, expected %q", got, want)
	}
	var talk bytes.Buffer
	if code := run(t.Context(), args, &bytes.Buffer{}, &talk); code != exitFailure ||
		!strings.Contains(talk.String(), "archive.lock") {
		t.Errorf("second process: exit code %d: %s; expected that the store is locked", code, talk.String())
	}
	if got := heard(t, socket, 100*time.Millisecond); got != "" {
		t.Errorf("heard %q of a second process", got)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d when it was stopped", code)
	}
}
