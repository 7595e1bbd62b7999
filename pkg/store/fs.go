package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// FS is the store's only way to the outside: the product uses OS, crash tests use storetest.CrashFS. Names are
// slash-separated paths. Implementations are safe for use by many goroutines.
type FS interface {
	// OpenFile opens with the flags of package os.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	// ReadDir gives the names in a directory, sorted.
	ReadDir(name string) ([]string, error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// Lock takes the advisory lock of a file, made if need be, and writes holder into it. An error that wraps
	// ErrLocked, with the holder's text, when another has it. The lock goes when it is closed or its process ends.
	Lock(name, holder string) (io.Closer, error)
	// IsAt reports whether a name leads to what OpenFile or Lock has opened, and not to another file or to none.
	IsAt(name string, file io.Closer) (bool, error)
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Allocate makes the file size bytes long with all its blocks reserved; new bytes are zero.
	Allocate(size int64) error
	// Zero makes a part of the file zero and keeps its blocks reserved.
	Zero(off, length int64) error
	// Sync makes the bytes and the size durable (fdatasync).
	Sync() error
	// SetReadOnly takes the write permission off the file; open descriptors keep theirs.
	SetReadOnly() error
}

// readFile reads a whole file of at most limit bytes.
func readFile(fsys FS, name string, limit int64) ([]byte, error) {
	file, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("file of %d bytes, expected at most %d", size, limit)
	}
	raw := make([]byte, size)
	if n, err := file.ReadAt(raw, 0); err != nil && !(errors.Is(err, io.EOF) && int64(n) == size) {
		return nil, err
	}
	return raw, nil
}

// writeFile makes a file durable under a temporary name and renames it; the caller syncs the directory.
func writeFile(fsys FS, name string, raw []byte, perm fs.FileMode) error {
	tmp := name + tmpSuffix
	// What an attempt before left may be read-only.
	if err := fsys.Remove(tmp); err != nil && !isNotExist(err) {
		return wrap("remove", tmp, err)
	}
	if err := writeSynced(fsys, tmp, raw, perm); err != nil {
		return err
	}
	return wrap("rename", tmp, fsys.Rename(tmp, name))
}

func writeSynced(fsys FS, name string, raw []byte, perm fs.FileMode) error {
	file, err := fsys.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, perm)
	if err != nil {
		return wrap("create", name, err)
	}
	_, err = file.WriteAt(raw, 0)
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return wrap("write", name, err)
}
