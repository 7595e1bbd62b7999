package archivefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/rpc"
	"os"
	"path"
	"sync"

	"github.com/farlog/farlog/pkg/store"
)

// readMax bounds what one call reads; a longer read is several calls.
const readMax = 4 << 20

// Serve serves the files in a directory of a file system, which open gives on the first call, until the other side
// closes, or ends: then the context of open is done, so that no call is waited for whose answer nobody reads.
func Serve(ctx context.Context, from io.ReadCloser, to io.WriteCloser,
	open func(context.Context) (store.FS, string, error),
) error {
	inTime, end := context.WithCancel(ctx)
	defer end()
	server := rpc.NewServer()
	err := server.RegisterName(service, &Service{
		open: func() (store.FS, string, error) { return open(inTime) }, files: map[int]store.File{},
	})
	if err != nil {
		return err
	}
	server.ServeConn(pipes{ending{from, end}, to})
	return nil
}

// ending says when there is nothing more to read. The next call is waited for while others are answered.
type ending struct {
	io.ReadCloser
	end func()
}

func (e ending) Read(raw []byte) (int, error) {
	n, err := e.ReadCloser.Read(raw)
	if err != nil {
		e.end()
	}
	return n, err
}

// Service answers the calls of an FS.
type Service struct {
	open func() (store.FS, string, error)

	mutex sync.Mutex
	fsys  store.FS
	dir   string
	files map[int]store.File
	last  int
}

func answerOf(err error) Answer {
	if err == nil {
		return Answer{}
	}
	return Answer{Failure: err.Error()}
}

// answerOfName is answerOf where a name was looked for, which may be there or not. Elsewhere a missing file is another
// one, such as that of the credentials, and is named.
func answerOfName(err error) Answer {
	if errors.Is(err, fs.ErrNotExist) {
		return Answer{IsMissing: true}
	}
	return answerOf(err)
}

// Open comes first.
func (s *Service) Open(_ string, answer *Answer) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var err error
	s.fsys, s.dir, err = s.open()
	*answer = answerOf(err)
	return nil
}

// ReadDir gives the names in a directory.
func (s *Service) ReadDir(name string, answer *Names) error {
	names, err := s.fsys.ReadDir(path.Join(s.dir, name))
	*answer = Names{answerOfName(err), names}
	return nil
}

// OpenFile opens a file to read it.
func (s *Service) OpenFile(name string, answer *Opened) error {
	opened, err := s.fsys.OpenFile(path.Join(s.dir, name), os.O_RDONLY, 0)
	if err == nil {
		answer.Size, err = opened.Size()
	}
	if answer.Answer = answerOfName(err); err != nil {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last++
	s.files[s.last], answer.File = opened, s.last
	return nil
}

// ReadAt reads a range.
func (s *Service) ReadAt(part Part, answer *Bytes) error {
	opened, err := s.file(part.File)
	if err == nil && (part.Len < 0 || part.Len > readMax) {
		err = fmt.Errorf("read of %d bytes, expected at most %d", part.Len, readMax)
	}
	if err != nil {
		answer.Answer = answerOf(err)
		return nil
	}
	raw := make([]byte, part.Len)
	n, err := opened.ReadAt(raw, part.Off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	*answer = Bytes{answerOf(err), raw[:n]}
	return nil
}

// Close closes a file.
func (s *Service) Close(number int, answer *Answer) error {
	opened, err := s.file(number)
	if err == nil {
		err = opened.Close()
	}
	*answer = answerOf(err)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.files, number)
	return nil
}

func (s *Service) file(number int) (store.File, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	opened, isThere := s.files[number]
	if !isThere {
		return nil, fmt.Errorf("file %d is not open", number)
	}
	return opened, nil
}
