//go:build cgo

package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// Counters of a living writer stay however long it lives, those of one that is gone for a day, and what is not counters
// for ever.
func TestCounterSweep_RemovesWhatNobodyHolds(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	uri := "mem:" + filepath.Join(t.TempDir(), "ring")
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "notes.counters")
	if err := os.WriteFile(foreign, []byte("notes"), 0o600); err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{Level: farlog.LevelVisible, CountersDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	status, err := farlog.Inspect(uri)
	if err != nil {
		t.Fatal(err)
	}
	sweep := &counterSweep{
		dir: dir, logger: slog.New(slog.DiscardHandler), now: func() time.Time { return now },
		ended: map[string]endedCounters{},
	}
	expect := func(after time.Duration, isThere bool) {
		t.Helper()
		now = now.Add(after)
		sweep.sweep()
		if _, err := farlog.ReadCounters(dir, status.RingUUID); (err == nil) != isThere || !isThere &&
			!errors.Is(err, farlog.ErrNotFound) {
			t.Fatalf("counters are there: %v, expected %v", err, isThere)
		}
	}
	expect(0, true)
	expect(100*time.Hour, true)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	expect(0, true)
	expect(countersKept-time.Minute, true)
	if writer, err = farlog.OpenWriter(uri, farlog.WriterOptions{
		Level:       farlog.LevelVisible,
		CountersDir: dir,
	}); err != nil {
		t.Fatal(err)
	}
	expect(time.Hour, true)
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	expect(time.Hour, true)
	expect(countersKept+time.Minute, false)
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
}

// A directory of counters that another user has made before is taken from him, and a link in its place is not followed.
func TestPrepareCounters(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs the super-user")
	}
	const nobody = 65534
	dir := filepath.Join(t.TempDir(), "counters")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is there to do
		if err := prepareCounters(dir); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(dir)
		if err != nil || info.Mode() != fs.ModeDir|fs.ModeSticky|0o777 || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Fatalf("%v, %v: expected the super-user's, mode 1777", info, err)
		}
	}
	link := dir + ".link"
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(elsewhere)
	if err != nil {
		t.Fatal(err)
	}
	if err := prepareCounters(link); err == nil {
		t.Error("a link was followed")
	}
	if after, err := os.Stat(elsewhere); err != nil || after.Mode() != before.Mode() {
		t.Errorf("%v, %v: expected mode %v", after.Mode(), err, before.Mode())
	}
}

// Counters that another user has left under the name of a granted ring are not believed.
func TestHostWriter_OwnsItsCounters(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs the super-user")
	}
	dir, uuid := t.TempDir(), strings.Repeat("ab", 16)
	path := countersPath(dir, uuid)
	if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chown(path, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]bool{"": true, "1234": true, "1235": false, "0": false} {
		if got := (hostWriter{RingUUID: uuid, Owner: owner}).owns(dir); got != want {
			t.Errorf("granted to %q: %v, expected %v", owner, got, want)
		}
	}
	if err := os.Chown(path, 0, 0); err != nil {
		t.Fatal(err)
	}
	if !(hostWriter{RingUUID: uuid, Owner: "1234"}).owns(dir) {
		t.Error("the super-user's are not believed")
	}
}
