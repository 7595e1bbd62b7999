package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/farlog/farlog/pkg/query"
)

// compareOutputs compare the files of a bundle with what is derived from its evidence. A difference ends nothing: each
// file has its own.
type compareOutputs struct {
	dir     string
	missing map[string]bool // files that are not looked into
	failed  func(name string, err error)
}

func (c *compareOutputs) create(name string) (output, error) {
	if c.missing[name] {
		return nothing{}, nil
	}
	file, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, err
	}
	return &comparer{name: name, file: file, line: 1, failed: c.failed}, nil
}

func (c *compareOutputs) parquet(name string) (query.Encoder, output, error) {
	if c.missing[name] {
		return nothingEncoder{}, nothing{}, nil
	}
	file, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	encoder, err := query.NewParquetComparer(file, info.Size(), fields())
	if err != nil {
		c.failed(name, err)
		return nothingEncoder{}, comparedParquet{file}, nil
	}
	return &comparingEncoder{encoder, name, c.failed}, comparedParquet{file}, nil
}

// comparer compares what is written with a file.
type comparer struct {
	name   string
	file   *os.File
	off    int64
	line   uint64
	isDone bool // a difference was found
	failed func(name string, err error)
}

const compareChunk = 64 << 10

func (c *comparer) Write(raw []byte) (int, error) {
	there := make([]byte, min(len(raw), compareChunk))
	for rest := raw; len(rest) > 0 && !c.isDone; {
		want := rest[:min(len(rest), compareChunk)]
		n, err := io.ReadFull(c.file, there[:len(want)])
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return 0, err
		}
		c.compare(there[:n], want)
		rest = rest[len(want):]
	}
	return len(raw), nil
}

func (c *comparer) compare(got, want []byte) {
	at := 0
	for at < len(got) && got[at] == want[at] {
		at++
	}
	c.line += uint64(bytes.Count(want[:at], []byte{'\n'}))
	c.off += int64(at)
	if at == len(want) {
		return
	}
	c.isDone = true
	what := fmt.Sprintf("%.60q", got[at:])
	if at == len(got) {
		what = "its end"
	}
	c.failed(c.name, fmt.Errorf("line %d, offset %d: %s, the evidence says %.60q", c.line, c.off, what, want[at:]))
}

// close looks for what comes behind.
func (c *comparer) close(isWhole bool) error {
	if isWhole && !c.isDone {
		if n, _ := c.file.Read(make([]byte, 1)); n > 0 {
			c.failed(c.name, fmt.Errorf("line %d, offset %d: more than the evidence has", c.line, c.off))
		}
	}
	return c.file.Close()
}

// comparingEncoder keeps the first difference.
type comparingEncoder struct {
	query.Encoder
	name   string
	failed func(name string, err error)
}

func (e *comparingEncoder) Write(row *query.Row) error {
	e.note(e.Encoder.Write(row))
	return nil
}

func (e *comparingEncoder) Close() error {
	e.note(e.Encoder.Close())
	return nil
}

func (e *comparingEncoder) note(err error) {
	if err == nil {
		return
	}
	e.failed(e.name, err)
	e.Encoder = nothingEncoder{}
}

// nothing takes what is compared with nothing.
type nothing struct{}

func (nothing) Write(raw []byte) (int, error) { return len(raw), nil }
func (nothing) close(bool) error              { return nil }

type nothingEncoder struct{}

func (nothingEncoder) Write(*query.Row) error { return nil }
func (nothingEncoder) Close() error           { return nil }

// comparedParquet is read by its encoder.
type comparedParquet struct{ *os.File }

func (c comparedParquet) close(bool) error { return c.Close() }
