package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/farlog/farlog/pkg/filelock"
)

// lockRole keeps a second process with the same role out of the data directory: two drains would be one agent to the
// control plane and take each other's streams. The control plane and the target lock their own directories.
func (d *daemon) lockRole(role string) error {
	path := filepath.Join(d.settings.dataDir, role+".lock")
	lock, err := filelock.Acquire(path, fmt.Sprintf("pid=%d host=%s", os.Getpid(), d.settings.hostName))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("data.dir %q is held by another %s (%s): stop it, or give another --data-dir",
			d.settings.dataDir, role, held.Holder)
	}
	if err != nil {
		return fmt.Errorf("lock data.dir: %w", err)
	}
	d.parts = append(d.parts, part{
		run:     func(_ context.Context, ready func()) error { ready(); return nil },
		healthy: func() error { return nil },
		close:   lock.Close,
	})
	return nil
}
