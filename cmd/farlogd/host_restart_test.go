//go:build cgo

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/hostagent"
)

// agentRing is a ring, and what an agent grants of it.
func agentRing(t *testing.T, dir string) func(context.Context, hostagent.Request) (hostagent.Grant, error) {
	t.Helper()
	uri := "mem:" + filepath.Join(dir, "ring")
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20, StreamName: "a"}); err != nil {
		t.Fatal(err)
	}
	status, err := farlog.Inspect(uri)
	if err != nil {
		t.Fatal(err)
	}
	var epoch atomic.Uint32
	return func(context.Context, hostagent.Request) (hostagent.Grant, error) {
		return hostagent.Grant{
			URI: uri, Epoch: epoch.Add(1), RingUUIDs: [][16]byte{status.RingUUID}, Tokens: [][]byte{nil},
			Terms: hostagent.Terms{Level: uint32(farlog.LevelVisible)},
		}, nil
	}
}

// startAgent listens until stop, as farlogd host does between two starts.
func startAgent(t *testing.T, socket string, acquire func(context.Context, hostagent.Request) (hostagent.Grant,
	error),
) (stop func()) {
	t.Helper()
	extend := func(context.Context, hostagent.ExtendRequest) ([]hostagent.Extension, hostagent.Terms, error) {
		return nil, hostagent.Terms{Level: uint32(farlog.LevelVisible)}, nil
	}
	server, err := hostagent.Listen(hostagent.Config{
		Socket: socket, Acquire: acquire, Questions: hostagent.Questions{Extend: extend},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	return func() {
		cancel()
		if err := errors.Join(<-ended, server.Close()); err != nil {
			t.Error(err)
		}
	}
}

// An agent that is restarted while a program opens a stream is waited for: one that is not there yet, one that left
// its socket behind, and one that has received the question and goes without an answer.
func TestAgent_StartedAnewDuringAnOpening(t *testing.T) {
	dir, err := os.MkdirTemp("", "agent-") // whose path is short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	acquire, socket := agentRing(t, dir), filepath.Join(dir, "s")
	open := func() <-chan error {
		opened := make(chan error, 1)
		go func() {
			writer, err := farlog.OpenWriter("farlog://a?agent="+socket, farlog.WriterOptions{CountersDir: dir})
			if err == nil {
				_, err = writer.Append(farlog.Entry{Data: []byte("x")}, time.Minute)
				err = errors.Join(err, writer.Close())
			}
			opened <- err
		}()
		return opened
	}
	notYet := func(what string, opened <-chan error) {
		t.Helper()
		select {
		case err := <-opened:
			t.Fatalf("%s: the opening has ended: %v", what, err)
		case <-time.After(50 * time.Millisecond): // long enough for one that does not wait
		}
	}
	opened := open()
	notYet("no agent yet", opened)
	stop := startAgent(t, socket, acquire)
	if err := <-opened; err != nil {
		t.Errorf("an agent that came later: %v", err)
	}
	stop()
	asked, mute := make(chan struct{}, 1), make(chan struct{})
	stop = startAgent(t, socket, func(ctx context.Context, _ hostagent.Request) (hostagent.Grant, error) {
		asked <- struct{}{}
		<-ctx.Done() // it is stopped before it has an answer
		close(mute)
		return hostagent.Grant{}, ctx.Err()
	})
	opened = open()
	<-asked
	stop()
	<-mute
	notYet("its agent has gone", opened)
	stop = startAgent(t, socket, acquire)
	if err := <-opened; err != nil {
		t.Errorf("an agent that was started again: %v", err)
	}
	stop()
	_, err = farlog.OpenWriter("farlog://a?agent="+filepath.Join(dir, "nowhere", "s"), farlog.WriterOptions{})
	if !errors.Is(err, farlog.ErrNotFound) || !strings.Contains(err.Error(), "no host agent") {
		t.Errorf("where there never was an agent: %v", err)
	}
}
