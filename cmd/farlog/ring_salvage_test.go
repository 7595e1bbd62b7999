//go:build cgo

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const salvagedRecords = 120

// newDrainedRing is a ring with acknowledged records, the first of which a store has.
func newDrainedRing(t *testing.T, uri string) {
	t.Helper()
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: 1 << 20, StreamName: "desk7/orders"}); err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible})
	if err != nil {
		t.Fatal(err)
	}
	for i := range salvagedRecords {
		if _, err := writer.Append(farlog.Entry{Data: salvagePayload(i)}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
}

func salvagePayload(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "order %4d,", i), 1+i%7) }

// A single bit that flips anywhere in the records of a ring costs at most the record that it is in: all others come
// into the store, which verifies, and the ring is not changed.
func TestRingSalvage_SingleBitFlips(t *testing.T) {
	dir := t.TempDir()
	uri, path := "mem:"+filepath.Join(dir, "orders.ring"), filepath.Join(dir, "orders.ring")
	newDrainedRing(t, uri)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	status, err := farlog.Inspect(uri)
	if err != nil {
		t.Fatal(err)
	}
	step := 193
	if testing.Short() {
		step = 1009
	}
	unknown := 0
	how := store.SalvageOptions{By: "J. Doe", Why: "a test"}
	for at := record.DataOffset; at < record.DataOffset+int(status.AppendedLSN); at += step {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		into := filepath.Join(dir, fmt.Sprintf("store-%d", at))
		options := store.Options{Create: true, SegmentBytes: store.SegmentBytesDefault >> 4, FS: unsyncedFS{store.OS}}
		report, err := salvageRing(t.Context(), uri, into, options, how)
		expected := salvagedRecords
		if strings.Contains(report.Failure, "how many that were is not known") {
			expected-- // the header of the last one
			unknown++
		} else if err != nil || report.Failure != "" {
			t.Fatalf("byte %d: %+v, %v", at, report, err)
		}
		expectRecords(t, into, at, expected)
		now, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(now[record.DataOffset:], damaged[record.DataOffset:]) {
			t.Fatalf("byte %d: the ring's records were changed: %v", at, err)
		}
		if err := os.RemoveAll(into); err != nil {
			t.Fatal(err)
		}
	}
	if unknown > 1+record.OverheadLen/step {
		t.Errorf("the end of the ring is not known for %d flips", unknown)
	}
}

// unsyncedFS is of stores that no crash will meet.
type unsyncedFS struct{ store.FS }

func (unsyncedFS) SyncDir(string) error { return nil }

// expectRecords checks that all records are in the store, but for one at most, which is a GAP.
func expectRecords(t *testing.T, dir string, at, expected int) {
	t.Helper()
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report, err := opened.Verify(t.Context(), store.VerifyOptions{}); err != nil || !report.OK() {
		t.Fatalf("byte %d: %+v, %v", at, report, err)
	}
	reader, err := opened.OpenReader("desk7/orders", store.ReaderOptions{IncludeControl: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	lost, next := 0, 0
	for item, err := reader.Next(); err == nil; item, err = reader.Next() {
		switch {
		case item.Flags&record.FlagGap != 0:
			lost++
			if item.Flags&record.FlagEpoch == 0 {
				next++
			}
		case item.Flags == 0:
			if !bytes.Equal(item.Payload, salvagePayload(next)) {
				t.Fatalf("byte %d: record %d is %q", at, next, item.Payload)
			}
			next++
		}
	}
	if next != expected || lost > 1 {
		t.Fatalf("byte %d: %d records, %d of them lost", at, next, lost)
	}
}

// A ring that a writer holds, and a store that has less than the ring has released, are refused. A salvage that is done
// again adds nothing.
func TestRingSalvage_Refused(t *testing.T) {
	dir := t.TempDir()
	uri := "mem:" + filepath.Join(dir, "orders.ring")
	newDrainedRing(t, uri)
	how := store.SalvageOptions{By: "J. Doe", Why: "a test"}
	options := store.Options{Create: true, SegmentBytes: 1 << 20}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible})
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, "first")
	if _, err := salvageRing(t.Context(), uri, first, options, how); err == nil ||
		!strings.Contains(err.Error(), "a writer holds it") {
		t.Errorf("beside a writer: %v", err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := salvageRing(t.Context(), uri, first, options, how); err != nil {
			t.Fatal(err)
		}
		expectRecords(t, first, 0, salvagedRecords)
	}
	env := &environment{stdout: io.Discard, stderr: io.Discard}
	if err := runDrain(t.Context(), env, uri, first, drainOptions{segmentBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(dir, "second")
	if _, err := salvageRing(t.Context(), uri, second, options, how); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("into a store that has less than the ring has released: %v", err)
	}
}
