//go:build cgo

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
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
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4096, StreamName: "test/orders"}); err != nil {
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
	tail := &tailer{uri: uri, buf: make([]byte, 4096), printer: recordPrinter{format: formatLines, writer: bufio.NewWriter(&stdout)}}
	if err := tail.open(farlog.StartHead); err != nil {
		t.Fatal(err)
	}
	defer func() { tail.reader.Close() }()
	stepAll := func() {
		t.Helper()
		for {
			isMore, err := tail.step(env)
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
		if _, err := writer.Append(farlog.Entry{Data: []byte(text)}, time.Second); err != nil {
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
	if !regexp.MustCompile(`^missed lsn \d+ to \d+: drained before it could be printed; it is in the store\n$`).MatchString(stderr.String()) {
		t.Errorf("said %q, expected what was missed", stderr.String())
	}
}
