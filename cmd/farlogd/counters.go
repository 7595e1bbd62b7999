//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	countersDirDefault = "/dev/shm/farlog" // of the C core
	countersKept       = 24 * time.Hour    // behind their writer's end: whoever asks what it did last has a day
	countersInterval   = time.Hour
)

var countersName = regexp.MustCompile(`^[0-9a-f]{32}\.counters$`)

// counterSweep removes the counters of writers that are gone for long: there is a file for each ring that was ever
// written on this host. A living writer has its file locked; those of other users are theirs where this process may not
// remove them.
type counterSweep struct {
	dir    string
	logger *slog.Logger
	now    func() time.Time
	ended  map[string]endedCounters
}

// endedCounters is a file that nobody held when it was seen first.
type endedCounters struct {
	info fs.FileInfo
	seen time.Time
}

// sweepCounters is for the roles that read counters; one sweep a process is enough.
func (d *daemon) sweepCounters() {
	if d.hasSweep {
		return
	}
	d.hasSweep = true
	dir := d.settings.countersDir
	dir = cmp.Or(dir, countersDirDefault)
	if dir == countersDirDefault { // another one is its operator's
		if err := prepareCounters(dir); err != nil {
			d.logger.Warn("writers' counters are not shared, and not exported", "dir", dir, "error", err)
		}
	}
	sweep := &counterSweep{dir: dir, logger: d.logger, now: time.Now, ended: map[string]endedCounters{}}
	d.parts = append(d.parts, part{
		run: func(ctx context.Context, ready func()) error {
			ready()
			sweep.run(ctx)
			return nil
		},
		healthy: func() error { return nil },
		close:   func() error { return nil },
	})
}

// prepareCounters makes the directory, or takes it from a user who has made it before: its owner could take away what
// writers leave there. Writers put nothing into another user's.
func prepareCounters(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	file, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || os.Geteuid() == 0 && stat.Uid != 0:
		err = file.Chown(0, 0)
	case int(stat.Uid) != os.Geteuid():
		return nil // the super-user's, or of whoever runs the writers: they see to it
	}
	return errors.Join(err, file.Chmod(0o777|fs.ModeSticky))
}

func (s *counterSweep) run(ctx context.Context) {
	tick := time.NewTicker(countersInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.sweep()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (s *counterSweep) sweep() {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("counters of writers that ended cannot be searched", "dir", s.dir, "error", err)
	}
	still, removed := map[string]endedCounters{}, 0
	for _, entry := range entries {
		name := entry.Name()
		if !countersName.MatchString(name) {
			continue
		}
		ended, isRemoved := s.sweepFile(name)
		if isRemoved {
			removed++
		} else if ended != nil {
			still[name] = *ended
		}
	}
	s.ended = still
	if removed > 0 {
		s.logger.Info("removed counters of writers that ended", "dir", s.dir, "files", removed, "gone_for",
			countersKept)
	}
}

// sweepFile removes a file that nobody has held for long enough; nil: its writer lives, or it cannot be looked at.
func (s *counterSweep) sweepFile(name string) (ended *endedCounters, isRemoved bool) {
	path := filepath.Join(s.dir, name)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil, false
	}
	one, isKnown := s.ended[name]
	if !isKnown || !os.SameFile(one.info, info) {
		one = endedCounters{info, s.now()}
	}
	if s.now().Sub(one.seen) < countersKept {
		return &one, false
	}
	if there, err := os.Lstat(path); err != nil || !os.SameFile(there, info) {
		return nil, false // a new writer has put its own in this one's place
	}
	if os.Remove(path) != nil {
		return &one, false
	}
	return nil, true
}
