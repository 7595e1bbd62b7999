// Package archivefs lets farlog read an archive without the libraries of object storage: farlog-archive runs beside it
// and serves the files of the archive over its standard input and output (net/rpc). For pkg/store it is one more file
// system, so every command that reads a store reads an archive.
package archivefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/rpc"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/farlog/farlog/pkg/store"
)

// Command of farlog-archive that serves.
const Command = "serve-files"

const (
	service = "Archive"
	scheme  = "s3://"
)

// IsURL reports whether a path names an archive.
func IsURL(path string) bool { return strings.HasPrefix(path, scheme) }

// Answer is what every call of the service answers. What went wrong is a field: net/rpc passes on texts alone.
type Answer struct {
	IsMissing bool   // there is no such file or directory
	Failure   string // anything else; "" = none
}

func (a Answer) err() error {
	if a.IsMissing {
		return fs.ErrNotExist
	}
	if a.Failure != "" {
		return errors.New(a.Failure)
	}
	return nil
}

// Part is a range of an open file.
type Part struct {
	File int
	Off  int64
	Len  int
}

// Names in a directory.
type Names struct {
	Answer
	Names []string
}

// Opened is an open file.
type Opened struct {
	Answer
	File int
	Size int64
}

// Bytes of a file; fewer than asked for at its end.
type Bytes struct {
	Answer
	Bytes []byte
}

// FS is an archive as a file system that can only be read. Any goroutine.
type FS struct {
	dir    string
	client *rpc.Client
}

// Open starts a program, farlog-archive, which serves the archive at a URL until this process ends. The directory of
// the store is that of Dir.
func Open(program, url string, stderr io.Writer) (*FS, error) {
	cmd := exec.Command(program, Command, "--archive-url", url)
	cmd.Stderr = stderr
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	return connect(url, pipes{from, to})
}

func connect(url string, to io.ReadWriteCloser) (*FS, error) {
	f := &FS{dir: path.Clean(url), client: rpc.NewClient(to)}
	var answer Answer
	if err := f.call("Open", url, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if err := answer.err(); err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	return f, nil
}

type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// Dir is the directory of the store.
func (f *FS) Dir() string { return f.dir }

// call answers with an error when the other side is gone: what went wrong there is in the answer.
func (f *FS) call(method string, question, answer any) error {
	if err := f.client.Call(service+"."+method, question, answer); err != nil {
		return fmt.Errorf("farlog-archive ended: %s", err) // by no error that means a missing file or its end
	}
	return nil
}

// inside is the name that the service knows a file by.
func (f *FS) inside(name string) string {
	return path.Clean("./" + strings.TrimPrefix(path.Clean(name), f.dir))
}

var errReadOnly = fmt.Errorf("an archive can only be read: %w", os.ErrPermission)

// OpenFile opens a file to read it.
func (f *FS) OpenFile(name string, flag int, _ fs.FileMode) (store.File, error) {
	if flag != os.O_RDONLY {
		return nil, errReadOnly
	}
	var answer Opened
	if err := f.call("OpenFile", f.inside(name), &answer); err != nil {
		return nil, err
	}
	return &file{fs: f, name: f.inside(name), number: answer.File, size: answer.Size}, answer.err()
}

// ReadDir gives the names in a directory.
func (f *FS) ReadDir(name string) ([]string, error) {
	var answer Names
	if err := f.call("ReadDir", f.inside(name), &answer); err != nil {
		return nil, err
	}
	return answer.Names, answer.err()
}

// Mkdir and the next ones refuse.
func (f *FS) Mkdir(string, fs.FileMode) error { return errReadOnly }

// Rename refuses.
func (f *FS) Rename(string, string) error { return errReadOnly }

// Remove refuses.
func (f *FS) Remove(string) error { return errReadOnly }

// SyncDir refuses.
func (f *FS) SyncDir(string) error { return errReadOnly }

// Lock refuses.
func (f *FS) Lock(string, string) (io.Closer, error) { return nil, errReadOnly }

// IsAt compares names: nothing changes in an archive that was listed.
func (f *FS) IsAt(name string, opened io.Closer) (bool, error) {
	is, isFile := opened.(*file)
	return isFile && is.name == f.inside(name), nil
}

type file struct {
	fs     *FS
	name   string
	number int
	size   int64
}

func (f *file) ReadAt(raw []byte, off int64) (done int, err error) {
	for done < len(raw) {
		part := raw[done:min(done+readMax, len(raw))]
		var answer Bytes
		if err := f.fs.call("ReadAt", Part{f.number, off + int64(done), len(part)}, &answer); err != nil {
			return done, err
		}
		n := copy(part, answer.Bytes)
		done += n
		if err := answer.err(); err != nil {
			return done, err
		}
		if n < len(part) {
			return done, io.EOF
		}
	}
	return done, nil
}

func (f *file) Close() error {
	var answer Answer
	if err := f.fs.call("Close", f.number, &answer); err != nil {
		return err
	}
	return answer.err()
}

func (f *file) Size() (int64, error)               { return f.size, nil }
func (f *file) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (f *file) Truncate(int64) error               { return errReadOnly }
func (f *file) Allocate(int64) error               { return errReadOnly }
func (f *file) Zero(int64, int64) error            { return errReadOnly }
func (f *file) Sync() error                        { return errReadOnly }
func (f *file) SetReadOnly() error                 { return errReadOnly }
