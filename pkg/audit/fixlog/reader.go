// Package fixlog reads recordings of FIX traffic and makes fresh traffic from them: the generator replays a recording
// over and over with ids that never come twice, and the pacer says when each message is due.
//
// A recording is a text file, as it is or compressed with zstd. Each line is one message as one side of the session saw
// it:
//
//	<UTC nanoseconds since 1970> <I or O> <the raw message, fields ended by the byte 0x01>
//
// I is a message received, O a message sent. Lines are in the order of their times.
package fixlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// Direction says on which side of the recording engine a message was.
type Direction byte

// The two directions.
const (
	In  Direction = 'I'
	Out Direction = 'O'
)

// Entry is one line of a recording.
type Entry struct {
	TimestampNS int64
	Direction   Direction
	Message     []byte
}

const (
	lineLenMax   = 1 << 20
	zstdMagic    = "\x28\xb5\x2f\xfd"
	windowLenMax = 64 << 20
)

// Reader reads a recording message by message.
type Reader struct {
	lines *bufio.Scanner
	zstd  *zstd.Decoder
	file  *os.File
	line  int
}

// Open opens a recording by its path. The caller closes the reader.
func Open(path string) (*Reader, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	reader, err := NewReader(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open recording %s: %w", path, err), file.Close())
	}
	reader.file = file
	return reader, nil
}

// NewReader reads a recording from a stream, which stays the caller's to close. zstd is told by its first bytes.
func NewReader(source io.Reader) (*Reader, error) {
	buffered := bufio.NewReaderSize(source, 64<<10)
	magic, err := buffered.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	reader := &Reader{}
	var plain io.Reader = buffered
	if string(magic) == zstdMagic {
		reader.zstd, err = zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxWindow(windowLenMax))
		if err != nil {
			return nil, fmt.Errorf("read recording: %w", err)
		}
		plain = reader.zstd
	}
	reader.lines = bufio.NewScanner(plain)
	reader.lines.Buffer(make([]byte, 64<<10), lineLenMax)
	return reader, nil
}

// Next returns the next entry; its Message is valid until the next call. At the end it returns io.EOF.
func (r *Reader) Next() (Entry, error) {
	if !r.lines.Scan() {
		if err := r.lines.Err(); err != nil {
			return Entry{}, fmt.Errorf("read recording after line %d: %w", r.line, err)
		}
		return Entry{}, io.EOF
	}
	r.line++
	entry, err := parseLine(r.lines.Bytes())
	if err != nil {
		return Entry{}, fmt.Errorf("recording line %d: %w", r.line, err)
	}
	return entry, nil
}

// Close releases the decoder, and the file that Open opened.
func (r *Reader) Close() error {
	if r.zstd != nil {
		r.zstd.Close()
	}
	if r.file != nil {
		return r.file.Close()
	}
	return nil
}

// Load reads a whole recording into memory: about 20 MB for the one in testdata/fix.
func Load(path string) (entries []Entry, err error) {
	reader, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, fmt.Errorf("load %s: %w", path, err)
		}
		entry.Message = bytes.Clone(entry.Message)
		entries = append(entries, entry)
	}
}

func parseLine(line []byte) (Entry, error) {
	stamp, rest, hasRest := bytes.Cut(line, []byte{' '})
	direction, message, hasMessage := bytes.Cut(rest, []byte{' '})
	if !hasRest || !hasMessage || len(message) == 0 {
		return Entry{}, fmt.Errorf("%q: expected a time, a direction and a message", line[:min(len(line), 40)])
	}
	timestamp, err := strconv.ParseInt(string(stamp), 10, 64)
	if err != nil || timestamp < 0 {
		return Entry{}, fmt.Errorf("time %q: expected nanoseconds since 1970", stamp)
	}
	if len(direction) != 1 || direction[0] != byte(In) && direction[0] != byte(Out) {
		return Entry{}, fmt.Errorf("direction %q: expected I or O", direction)
	}
	return Entry{TimestampNS: timestamp, Direction: Direction(direction[0]), Message: message}, nil
}
