package fixlog

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// FeedOptions say how much is fed and how fast.
type FeedOptions struct {
	Count    uint64        // messages; 0 = without end
	PacedFor time.Duration // so long in the published capture's shape, then as fast as they are taken
	Seed     uint64        // of the pacer
	// OnProgress is called with the number of messages written, about every thousand messages or at each pause.
	OnProgress func(sent uint64)
}

const (
	feedBufferLen     = 256 << 10
	progressEvery     = 1024
	lengthPrefixBytes = 4
)

// Feed writes messages to a pipe as farlog append --format length-prefixed reads them: 4 bytes of length, little
// endian, and the message. It stops after Count messages or when ctx is done, and returns how many it wrote. While it
// is paced, what is due is written at once, so that a burst arrives as one.
func Feed(ctx context.Context, w io.Writer, generator *Generator, options FeedOptions) (sent uint64, err error) {
	out := bufio.NewWriterSize(w, feedBufferLen)
	pacer, start := NewPacer(options.Seed), time.Now()
	isPaced := options.PacedFor > 0
	for options.Count == 0 || sent < options.Count {
		if isPaced {
			due := pacer.Next()
			isPaced = due < options.PacedFor
			if err := waitUntil(ctx, start.Add(due), out); err != nil {
				return sent, feedError(ctx, sent, err)
			}
		}
		if err := writePrefixed(out, generator.Next(time.Now().UnixNano()).Bytes); err != nil {
			return sent, feedError(ctx, sent, err)
		}
		sent++
		if sent%progressEvery == 0 {
			if options.OnProgress != nil {
				options.OnProgress(sent)
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
	if err := out.Flush(); err != nil {
		return sent, feedError(ctx, sent, err)
	}
	if options.OnProgress != nil {
		options.OnProgress(sent)
	}
	return sent, ctx.Err()
}

// waitUntil sends off what is buffered and sleeps, when the time has not come yet.
func waitUntil(ctx context.Context, due time.Time, out *bufio.Writer) error {
	wait := time.Until(due)
	if wait <= 0 {
		return nil
	}
	if err := out.Flush(); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func writePrefixed(out *bufio.Writer, message []byte) error {
	var prefix [lengthPrefixBytes]byte
	binary.LittleEndian.PutUint32(prefix[:], uint32(len(message)))
	if _, err := out.Write(prefix[:]); err != nil {
		return err
	}
	_, err := out.Write(message)
	return err
}

func feedError(ctx context.Context, sent uint64, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("feed message %d: %w", sent, err)
}
