//go:build cgo

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

// drainAll releases all that is in the ring, as a drain would.
func drainAll(t *testing.T, drain *farlog.Reader) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for {
		batch, err := drain.Read(buf)
		if errors.Is(err, farlog.ErrNotYet) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := drain.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
			t.Fatal(err)
		}
	}
}

// The writer reuses bytes that tail has not printed: tail says what it missed and goes on at the head.
func TestTail_OvertakenSaysWhatItMissed(t *testing.T) {
	uri := "mem:" + filepath.Join(t.TempDir(), "orders.ring")
	if err := farlog.Format(uri, farlog.FormatOptions{
		SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4096,
		StreamName: "test/orders",
	}); err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelPosted})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	drain, err := farlog.OpenReader(uri, farlog.ReaderOptions{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	defer drain.Close()
	var stdout, stderr bytes.Buffer
	env := &environment{stdout: &stdout, stderr: &stderr}
	tail := &tailer{env: env, printer: recordPrinter{format: formatLines, writer: bufio.NewWriter(&stdout)}}
	if tail.consumer, err = consume.Open(consume.Config{
		RingURI: uri, BufferBytes: 4096,
		OnNotice: tail.notice,
	}); err != nil {
		t.Fatal(err)
	}
	defer tail.consumer.Close()
	stepAll := func() {
		t.Helper()
		for {
			isMore, err := tail.step()
			if err != nil {
				t.Fatal(err)
			}
			if !isMore {
				break
			}
		}
		if err := tail.printer.writer.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	appendOne := func(text string) {
		t.Helper()
		if _, err := writer.Append(farlog.Entry{Data: []byte(text)}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	appendOne("first")
	stepAll()
	for i := range 2000 { // twice round the ring
		appendOne(fmt.Sprintf("lost-%d", i))
		if i%50 == 0 {
			drainAll(t, drain)
		}
	}
	drainAll(t, drain)
	appendOne("last")
	stepAll()
	text := stdout.String()
	if !strings.Contains(text, " first\n") || !strings.HasSuffix(text, " last\n") || strings.Contains(text, "lost-0") {
		t.Errorf("printed %.300q, expected the first and the last record", text)
	}
	missed := regexp.MustCompile(`^missed lsn \d+ to \d+: they were drained before they were read, ` +
		`and are in no store that was given; --store DIR would have them\n$`)
	if !missed.MatchString(stderr.String()) {
		t.Errorf("said %q, expected what was missed", stderr.String())
	}
}

// What is in the store is printed before what is in the ring, each record once; a name goes on where it has printed.
func TestTail_StoreAndRingAreOneStream(t *testing.T) {
	dir := t.TempDir()
	uri, storeDir := "mem:"+filepath.Join(dir, "orders.ring"), filepath.Join(dir, "store")
	if err := farlog.Format(uri, farlog.FormatOptions{
		SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4096,
		StreamName: "test/orders",
	}); err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelPosted})
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	opened, err := store.Open(storeDir, store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	put := func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := writer.Append(farlog.Entry{
				Data: fmt.Appendf(nil, "order %d", i),
				Key:  fmt.Appendf(nil, "K%d", i), Class: uint16(i % 2),
			}, 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 10)
	ctx, cancel := context.WithCancel(context.Background())
	err = drain.Run(ctx, drain.Config{
		RingURI: uri, Store: opened, Logger: slog.New(slog.DiscardHandler),
		OnProgress: func(p drain.Progress) {
			if p.Records == 11 {
				cancel()
			}
		},
	})
	cancel()
	if err != nil {
		t.Fatal(err)
	}
	put(10, 15)
	tail := func(want int, args ...string) string {
		t.Helper()
		text, talk, code := runFarlog(t, append([]string{
			"tail", "--ring", uri, "--store", storeDir, "--from", "oldest",
			"--format", "raw",
		}, args...)...)
		if code != exitOK || talk != "" || strings.Count(text, "\n") != want {
			t.Fatalf("exit code %d, stderr %q, expected %d lines:\n%s", code, talk, want, text)
		}
		return text
	}
	if text := tail(15); !strings.HasPrefix(text, "order 0\n") || !strings.HasSuffix(text, "order 14\n") {
		t.Fatal(text)
	}
	tail(7, "--class", "1")
	tail(2, "--key", "K3", "--key", "K12")
	tail(15, "--name", "desk-risk", "--state-dir", dir)
	tail(0, "--name", "desk-risk", "--state-dir", dir)
	put(15, 17)
	tail(2, "--name", "desk-risk", "--state-dir", dir)
	if _, talk, code := runFarlog(t, "tail", "--ring", uri, "--from", "oldest"); code != exitUsage ||
		!strings.Contains(talk, "expected --store as well") {
		t.Fatalf("exit code %d, stderr %q", code, talk)
	}
}

// A signal that comes while the control plane has not answered yet ends a tail in order, as one does that comes later.
func TestTail_EndedWhileItWaitsForTheControlPlane(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // somebody is there, and says nothing
		if conn, err := listener.Accept(); err == nil {
			cancel()
			<-t.Context().Done()
			conn.Close()
		}
	}()
	env := &environment{stdout: io.Discard, stderr: io.Discard, control: listener.Addr().String(), isInsecure: true}
	if err := runTail(ctx, env, tailOptions{stream: "a", format: formatLines}); err != nil {
		t.Errorf("ended with %v, expected no error", err)
	}
}
