package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/filelock"
	"golang.org/x/sys/unix"
)

// syncsMax is how many syncs are under way at once: each keeps a thread, and the file system makes those that wait
// together durable by one commit. A process has not more than 10,000 threads.
const syncsMax = 64

var syncs = make(chan struct{}, syncsMax)

// limited runs one sync among those that may be under way.
func limited(sync func() error) error {
	syncs <- struct{}{}
	defer func() { <-syncs }()
	return sync()
}

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	file, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, plainPathError(err)
	}
	return &osFile{file}, nil
}

func (osFS) Mkdir(name string, perm fs.FileMode) error { return plainPathError(os.Mkdir(name, perm)) }

func (osFS) Rename(from, to string) error { return plainPathError(os.Rename(from, to)) }
func (osFS) Remove(name string) error     { return plainPathError(os.Remove(name)) }

func (osFS) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, plainPathError(err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

func (osFS) SyncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return plainPathError(err)
	}
	err = limited(dir.Sync)
	if closeErr := dir.Close(); err == nil {
		err = closeErr
	}
	return plainPathError(err)
}

func (osFS) Lock(name, holder string) (io.Closer, error) {
	lock, err := filelock.Acquire(name, holder)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("%w: %s", ErrLocked, held.Holder)
	}
	if err != nil {
		return nil, plainPathError(err)
	}
	return lock, nil
}

func (osFS) IsAt(name string, file io.Closer) (bool, error) {
	opened, isFile := file.(interface{ Stat() (fs.FileInfo, error) })
	if !isFile {
		return false, fmt.Errorf("%w: %T is no file of this system", ErrInvalid, file)
	}
	ours, err := opened.Stat()
	if err != nil {
		return false, plainPathError(err)
	}
	there, err := os.Stat(name)
	if isNotExist(err) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, plainPathError(err)
	}
	return os.SameFile(ours, there), nil
}

// plainPathError takes the operation and the path off an error of package os: the store's own text names both.
func plainPathError(err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case errors.As(err, &pathErr):
		return pathErr.Err
	case errors.As(err, &linkErr):
		return linkErr.Err
	}
	return err
}

type osFile struct{ *os.File }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, plainPathError(err)
	}
	if info.IsDir() {
		return 0, unix.EISDIR
	}
	return info.Size(), nil
}

func (f *osFile) Truncate(size int64) error {
	return plainPathError(f.File.Truncate(size))
}

// Allocate looks first whether there is as much as the file lacks: ext4 takes all that is free before it says that this
// is too little, and those who write beside us would have nothing meanwhile.
func (f *osFile) Allocate(size int64) error {
	var disk unix.Statfs_t
	var has unix.Stat_t
	if err := unix.Fstatfs(int(f.Fd()), &disk); err == nil && disk.Blocks > 0 &&
		unix.Fstat(int(f.Fd()), &has) == nil &&
		disk.Bfree < uint64(max(size-has.Blocks*statBlockLen, 0))/uint64(disk.Bsize) {
		return unix.ENOSPC
	}
	err := f.fallocate(0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.Truncate(size)
	}
	return err
}

const statBlockLen = 512 // the unit of stat's st_blocks, whatever the file system's is

// fallocate tries again what a signal interrupted: the runtime sends itself some, and nothing restarts this call.
func (f *osFile) fallocate(mode uint32, off, length int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), mode, off, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Zero lets the file system do it where it can (ext4, xfs: at once; tmpfs: by giving the pages back and taking new
// ones).
func (f *osFile) Zero(off, length int64) error {
	if length <= 0 {
		return nil
	}
	if err := f.fallocate(unix.FALLOC_FL_ZERO_RANGE, off, length); !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	err := f.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length)
	if err == nil {
		return f.fallocate(unix.FALLOC_FL_KEEP_SIZE, off, length)
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return f.writeZeros(off, length)
}

func (f *osFile) writeZeros(off, length int64) error {
	zeros := make([]byte, min(length, 1<<20))
	for length > 0 {
		n, err := f.WriteAt(zeros[:min(length, int64(len(zeros)))], off)
		if err != nil {
			return plainPathError(err)
		}
		off, length = off+int64(n), length-int64(n)
	}
	return nil
}

func (f *osFile) WriteAt(raw []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(raw, off)
	return n, plainPathError(err)
}

func (f *osFile) Sync() error {
	return limited(func() error {
		for {
			if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}

func (f *osFile) SetReadOnly() error { return plainPathError(f.Chmod(0o440)) }

// holderText says who takes a lock: it is what the next one is told.
func holderText() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("host=%s pid=%d program=%s", host, os.Getpid(), path.Base(os.Args[0]))
}
