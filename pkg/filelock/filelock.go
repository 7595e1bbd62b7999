// Package filelock keeps two processes out of one thing by a lock on a file. The kernel gives the lock back when the
// process dies, however it dies, so that whoever is named as its holder is alive.
package filelock

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// holderLenMax bounds what is read of a holder's text.
const holderLenMax = 256

// HeldError says that another process, or another opening of the file in this one, has the lock.
type HeldError struct {
	Path   string
	Holder string // as it says itself, if the kernel says that it is the one
}

// Error implements error.
func (e *HeldError) Error() string { return fmt.Sprintf("lock %q is held: %s", e.Path, e.Holder) }

// Acquire makes a lock file if there is none, locks it and writes into it who holds it. It does not wait: a *HeldError
// says that it is held; every other error says that nobody knows, and leaves it unlocked too. The lock is held until
// the file is closed, so the file has to be kept. It is a flock(2): C's locks of a ring's roles, which are of fcntl(2),
// are others.
func Acquire(path, holder string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	closeToOthers(file)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &HeldError{path, holderOf(file)}
		}
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	// The text only helps people: a full disk keeps nobody out.
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt([]byte(holder+"\n"), 0)
	}
	return file, nil
}

// closeToOthers takes a lock's file, as an earlier version made it, from those who could open it: they could hold it.
func closeToOthers(file *os.File) {
	if info, err := file.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		_ = file.Chmod(0o600) // another user's own is his
	}
}

// writtenIn is what a holder has written into the file; "" = nothing.
func writtenIn(file *os.File) string {
	text := make([]byte, holderLenMax)
	count, _ := file.ReadAt(text, 0) // one that cannot be read is not known
	return strings.TrimSpace(string(text[:count]))
}
