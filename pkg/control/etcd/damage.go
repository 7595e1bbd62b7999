package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// DamagedError: what the embedded server has written in Dir is not what is there now. It does not pass by itself.
type DamagedError struct {
	Dir string
	Err error // which file, and what is wrong with it
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf(
		"etcd in %q is damaged: %v: move that directory away, start farlogd again, and restore a backup: "+
			"farlog control restore FILE",
		e.Dir,
		e.Err,
	)
}

// Unwrap gives what is wrong.
func (e *DamagedError) Unwrap() error { return e.Err }

// checkFiles finds the damage that an etcd server would not survive: at a page of its database that is none bbolt ends
// the process, by a panic in a goroutine of its own or by SIGBUS; and a server that finds its database without its log
// begins a new log, whose entries it then takes for ones that the database has.
func checkFiles(dir string, progress *checkProgress) error {
	path := filepath.Join(dir, "member", "snap", "db")
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open etcd database %q: %w", path, errors.Unwrap(err))
	}
	defer file.Close()
	index, err := checkDatabase(progress.counted(file))
	if err != nil {
		return asDamage(dir, fmt.Errorf("database %q: %w", path, err))
	}
	logs := filepath.Join(dir, "member", "wal")
	switch {
	case wal.Exist(logs):
		progress.beginPhase()
		if err := checkLog(logs); err != nil {
			return asDamage(dir, fmt.Errorf("write-ahead log %q: %w", logs, err))
		}
	case index > 0:
		return &DamagedError{Dir: dir, Err: fmt.Errorf("write-ahead log %q is missing: the database is at its entry %d",
			logs, index)}
	}
	return nil
}

// checkLog reports what is wrong with a log. What a power cut tore off its end is mended by etcd.
func checkLog(dir string) (err error) {
	defer func() {
		if cause := recover(); cause != nil { // of bytes that are no message
			err = fmt.Errorf("%v", cause)
		}
	}()
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err == nil && len(snapshots) == 0 {
		err = errors.New("it names no snapshot, as each log of etcd does")
	}
	return err
}

// asDamage makes damage of an error unless it is one of the kernel's, such as a full disk, or of a deadline: these may
// pass.
func asDamage(dir string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return &DamagedError{Dir: dir, Err: err}
}
