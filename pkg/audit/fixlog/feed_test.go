package fixlog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
)

func newGenerator(t testing.TB) *Generator {
	t.Helper()
	generator, err := NewGenerator(loadRecording(t)[:5000], Options{Run: "F"})
	if err != nil {
		t.Fatal(err)
	}
	return generator
}

// What comes out of the pipe is the wanted number of whole messages, paced at first and then at full speed.
func TestFeed_WritesWholeMessages(t *testing.T) {
	var out bytes.Buffer
	const want = 12_000
	progress := uint64(0)
	sent, err := Feed(t.Context(), &out, newGenerator(t),
		FeedOptions{
			Count: want, PacedFor: 50 * time.Millisecond, Seed: 1,
			OnProgress: func(sent uint64) { progress = sent },
		})
	if err != nil || sent != want || progress != want {
		t.Fatalf("sent %d, told %d, %v; expected %d", sent, progress, err, want)
	}
	var message fix.Message
	for count := 0; ; count++ {
		var length uint32
		if err := binary.Read(&out, binary.LittleEndian, &length); errors.Is(err, io.EOF) && count == want {
			return
		} else if err != nil {
			t.Fatalf("message %d: %v", count, err)
		}
		if err := fix.Parse(out.Next(int(length)), &message); err != nil {
			t.Fatalf("message %d: %v", count, err)
		}
	}
}

func TestFeed_StopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Feed(ctx, io.Discard, newGenerator(t), FeedOptions{OnProgress: func(sent uint64) {
		if sent >= 10_000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, expected that it was canceled", err)
	}
}

func TestFeed_ClosedPipeIsAnError(t *testing.T) {
	reader, writer := io.Pipe()
	reader.Close()
	sent, err := Feed(t.Context(), writer, newGenerator(t), FeedOptions{})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("got %v after %d messages, expected a closed pipe", err, sent)
	}
}
