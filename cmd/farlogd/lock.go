package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockRole keeps a second process with the same role out of the data directory: two drains would be one agent to the control plane and
// take each other's streams. The kernel gives the lock back when the process dies, so whoever is named by it is alive. The control plane
// and the target lock their own directories.
func (d *daemon) lockRole(role string) error {
	path := filepath.Join(d.settings.dataDir, role+".lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("open lock %q: %w", path, errors.Unwrap(err))
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder, _ := os.ReadFile(path) // a holder that cannot be read is named as unknown
		file.Close()
		return fmt.Errorf("data.dir %q is held by another %s (%s): stop it, or give another --data-dir", d.settings.dataDir, role,
			lockHolder(holder))
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(file, "pid=%d host=%s\n", os.Getpid(), d.settings.hostName)
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("lock %q: %w", path, err)
	}
	d.parts = append(d.parts, part{
		run:     func(_ context.Context, ready func()) error { ready(); return nil },
		healthy: func() error { return nil },
		close:   file.Close,
	})
	return nil
}

func lockHolder(text []byte) string {
	if holder := strings.TrimSpace(string(text)); holder != "" {
		return holder
	}
	return "holder unknown"
}
