package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const lockName = "farlogd.lock"

// dirLock keeps two control planes out of one etcd directory. etcd itself would wait for ever in silence. The kernel
// gives the lock back when the process dies, however it dies.
type dirLock struct{ file *os.File }

func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock %q: %w", path, errors.Unwrap(err))
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := readHolder(path)
		file.Close()
		return nil, fmt.Errorf("etcd directory %q is locked by another farlogd (%s): stop it, or give another --data-dir",
			dir, holder)
	}
	if err := databaseIsFree(dir); err != nil {
		file.Close()
		return nil, err
	}
	text := fmt.Sprintf("pid=%d since=%s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	if err := errors.Join(file.Truncate(0), writeAt(file, text)); err != nil {
		file.Close()
		return nil, fmt.Errorf("write lock %q: %w", path, err)
	}
	return &dirLock{file: file}, nil
}

func (l *dirLock) release() { l.file.Close() }

// databaseIsFree looks whether some other program, such as an etcd server run by hand, has etcd's database open.
func databaseIsFree(dir string) error {
	path := filepath.Join(dir, "member", "snap", "db")
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open etcd database %q: %w", path, errors.Unwrap(err))
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("etcd database %q is locked by another process: stop it, or give another --data-dir", path)
	}
	return nil
}

func readHolder(path string) string {
	text, err := os.ReadFile(path)
	if holder := strings.TrimSpace(string(text)); err == nil && holder != "" {
		return holder
	}
	return "holder unknown"
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}
