//go:build cgo

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	formatLines          = "lines"
	formatLengthPrefixed = "length-prefixed"
	chunkLen             = 256 << 10
	prefixLen            = 4
)

// recordInput cuts a stream of bytes into records. A goroutine reads ahead, so that a command that was told to stop
// does not hang in a read, and so that "nothing more is ready" can be told without a timer.
type recordInput struct {
	isPrefixed bool
	lenMax     int
	chunks     chan []byte
	failure    error // set before chunks is closed; nil at the end of the input
	isEnded    bool

	buf        []byte // what is not yet cut is buf[start:]
	start      int
	searched   int // no newline lies in buf[start:searched]
	count      uint64
	byteOffset uint64 // of buf[start] in the input
}

func newRecordInput(source io.Reader, format string, lenMax int) *recordInput {
	in := &recordInput{isPrefixed: format == formatLengthPrefixed, lenMax: lenMax, chunks: make(chan []byte, 2)}
	go in.readAhead(source)
	return in
}

func (in *recordInput) readAhead(source io.Reader) {
	defer close(in.chunks)
	for total := 0; ; {
		chunk := make([]byte, chunkLen)
		n, err := source.Read(chunk)
		total += n
		if n > 0 {
			in.chunks <- chunk[:n:n]
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			in.failure = fmt.Errorf("read input after %d bytes: %w", total, err)
			return
		}
	}
}

// next returns a record that has arrived, without waiting. It is a slice of the buffer, valid until more or wait.
func (in *recordInput) next() (record []byte, ok bool, err error) {
	if in.isPrefixed {
		record, ok, err = in.nextPrefixed()
	} else {
		record, ok, err = in.nextLine()
	}
	if ok {
		in.count++
	}
	return record, ok, err
}

func (in *recordInput) nextLine() ([]byte, bool, error) {
	at := bytes.IndexByte(in.buf[in.searched:], '\n')
	if at < 0 {
		in.searched = len(in.buf)
		if len(in.buf)-in.start > in.lenMax {
			return nil, false, in.tooLong(len(in.buf)-in.start, "at least ")
		}
		if in.isEnded && in.start < len(in.buf) { // the last line has no newline
			return in.cutRecord(len(in.buf), len(in.buf)), true, nil
		}
		return nil, false, nil
	}
	end := in.searched + at
	if end-in.start > in.lenMax {
		return nil, false, in.tooLong(end-in.start, "")
	}
	return in.cutRecord(end, end+1), true, nil
}

func (in *recordInput) nextPrefixed() ([]byte, bool, error) {
	left := len(in.buf) - in.start
	if left >= prefixLen {
		length := int(binary.LittleEndian.Uint32(in.buf[in.start:]))
		if length > in.lenMax {
			return nil, false, in.tooLong(length, "")
		}
		if left >= prefixLen+length {
			in.start += prefixLen
			in.byteOffset += prefixLen
			return in.cutRecord(in.start+length, in.start+length), true, nil
		}
	}
	if in.isEnded && left > 0 {
		return nil, false, fmt.Errorf("input ends inside record %d: it begins at byte %d and %d bytes of it are "+
			"there, expected a length of 4 bytes and as many bytes as it says", in.count+1, in.byteOffset, left)
	}
	return nil, false, nil
}

func (in *recordInput) cutRecord(end, next int) []byte {
	record := in.buf[in.start:end:end]
	in.byteOffset += uint64(next - in.start)
	in.start, in.searched = next, next
	return record
}

func (in *recordInput) tooLong(length int, atLeast string) error {
	return fmt.Errorf("input record %d at byte %d has %s%d bytes, expected at most %d, which is what the ring takes",
		in.count+1, in.byteOffset, atLeast, length, in.lenMax)
}

// more takes in what has arrived, without waiting. False: nothing has. The end of the input counts as an arrival,
// because a last line without a newline becomes a record by it.
func (in *recordInput) more() bool {
	if in.isEnded {
		return false
	}
	select {
	case chunk, isOpen := <-in.chunks:
		in.arrived(chunk, isOpen)
		return true
	default:
		return false
	}
}

// wait takes in what comes next. False: the input has ended, or ctx is done.
func (in *recordInput) wait(ctx context.Context) (bool, error) {
	if in.isEnded {
		return false, in.failure
	}
	select {
	case chunk, isOpen := <-in.chunks:
		in.arrived(chunk, isOpen)
		return true, nil // at the end too, as more
	case <-ctx.Done():
		return false, nil
	}
}

func (in *recordInput) arrived(chunk []byte, isOpen bool) {
	if !isOpen {
		in.isEnded = true
		return
	}
	if in.start == len(in.buf) {
		in.buf, in.searched = chunk, 0
	} else {
		in.searched -= in.start
		in.buf = slices.Concat(in.buf[in.start:], chunk)
	}
	in.start = 0
}
