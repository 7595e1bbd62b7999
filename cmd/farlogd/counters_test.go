//go:build cgo

package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
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
