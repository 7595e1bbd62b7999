package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/farlog/farlog/pkg/filelock"
	"golang.org/x/sys/unix"
)

const lockName = "farlogd.lock"

// lockDir keeps two control planes out of one etcd directory. etcd itself would wait for ever in silence. The lock is
// held until the file is closed.
func lockDir(dir string) (*os.File, error) {
	holder := fmt.Sprintf("pid=%d since=%s", os.Getpid(), time.Now().UTC().Format(time.RFC3339))
	lock, err := filelock.Acquire(filepath.Join(dir, lockName), holder)
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil,
			fmt.Errorf("etcd directory %q is locked by another farlogd (%s): stop it, or give another --data-dir",
				dir, held.Holder)
	}
	if err != nil {
		return nil, fmt.Errorf("lock etcd directory: %w", err)
	}
	if err := databaseIsFree(dir); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

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
