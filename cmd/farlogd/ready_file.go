package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// readyFile says that a daemon has started. The daemon has it locked (flock) for life, so that one which was left by a
// daemon that was killed is told from that of one which runs.
type readyFile struct {
	path string
	file *os.File // of this daemon, locked; nil: it has not written one
}

// clear removes what a dead daemon has left. That of one which runs is not touched.
func (r *readyFile) clear() error {
	if r.path == "" {
		return nil
	}
	file, err := os.OpenFile(r.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open --ready-file %q: %w", r.path, errors.Unwrap(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return err // a pipe, say, or of a daemon that runs
	}
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove --ready-file %q of a daemon that has died: %w", r.path, errors.Unwrap(err))
	}
	return nil
}

// write puts the line there, whole.
func (r *readyFile) write(line []byte) error {
	if r.path == "" {
		return nil
	}
	if err := writeWhole(r.path, line); err != nil {
		return err
	}
	file, err := os.Open(r.path)
	if err != nil {
		return err
	}
	r.file = file
	return unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
}

// remove takes it away when the daemon stops; one that it did not write may be that of a daemon which runs.
func (r *readyFile) remove() error {
	if r.file == nil {
		return nil
	}
	defer r.file.Close()
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
