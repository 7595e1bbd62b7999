//go:build cgo

package main

import (
	"bytes"
	"encoding/binary"
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

// endedRing is a ring in a file, and how its records lie.
type endedRing struct {
	t         *testing.T
	uri, path string
	whole     []byte
	records   []record.Header
}

func (r *endedRing) load() {
	r.t.Helper()
	var err error
	if r.whole, err = os.ReadFile(r.path); err != nil {
		r.t.Fatal(err)
	}
	image, file, err := openImage(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	r.records = nil
	walk := image.Walk()
	for rec, err := walk.Next(); err == nil; rec, err = walk.Next() {
		r.records = append(r.records, rec.Header)
	}
}

func newEndedRing(t *testing.T) *endedRing {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.ring")
	r := &endedRing{t: t, uri: "mem:" + path, path: path}
	newDrainedRing(t, r.uri)
	r.load()
	return r
}

// write gives the ring a byte that flipped in the payload of a record, and a durable hint as a crash leaves it.
func (r *endedRing) write(damaged int, hint uint64) {
	r.t.Helper()
	raw := append([]byte(nil), r.whole...)
	binary.LittleEndian.PutUint64(raw[record.DurableHintOffset:], hint)
	if damaged >= 0 {
		capacity := uint64(len(raw) - record.DataOffset)
		raw[record.DataOffset+(r.records[damaged].LSN+record.HeaderLen)%capacity] ^= 1
	}
	if err := os.WriteFile(r.path, raw, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *endedRing) salvage(into string, isWithTail bool) store.SalvageReport {
	r.t.Helper()
	how := store.SalvageOptions{By: "J. Doe", Why: "a test", WithTail: isWithTail}
	report, err := salvageRing(r.t.Context(), r.uri, into, store.Options{Create: true, SegmentBytes: 1 << 20}, how)
	if err != nil {
		r.t.Fatal(err)
	}
	return report
}

func (r *endedRing) append(from, count int, payload []byte) {
	r.t.Helper()
	writer, err := farlog.OpenWriter(r.uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible})
	if err != nil {
		r.t.Fatal(err)
	}
	for i := from; i < from+count; i++ {
		data := payload
		if data == nil {
			data = salvagePayload(i)
		}
		if _, err := writer.Append(farlog.Entry{Data: data}, time.Minute); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.load()
}

// The durable hint is behind what was acknowledged: then a damaged record is not taken for the end of the log in
// silence, neither with whole records behind it nor as the last one.
func TestRingSalvage_HintBehindTheDamage(t *testing.T) {
	r := newEndedRing(t)
	last := len(r.records) - 1
	for _, damaged := range []int{last / 2, last} {
		for _, isWithTail := range []bool{false, true} {
			r.write(damaged, r.records[last/3].LSN)
			into := filepath.Join(t.TempDir(), "store")
			report := r.salvage(into, isWithTail)
			switch behind := fmt.Sprintf("%d whole records lie behind", last-damaged); {
			case damaged == last:
				if !strings.Contains(report.Failure, "is not known") {
					t.Errorf("the last record, with tail %v: %+v", isWithTail, report)
				}
			case isWithTail:
				if report.Failure != "" || len(report.Gaps) != 1 {
					t.Errorf("with tail: %+v", report)
				}
				expectRecords(t, into, damaged, salvagedRecords)
			case !strings.Contains(report.Failure, behind):
				t.Errorf("expected %q: %+v", behind, report)
			}
		}
	}
	r.write(-1, r.records[last/3].LSN)
	if report := r.salvage(filepath.Join(t.TempDir(), "store"), false); report.Failure != "" {
		t.Errorf("nothing is damaged: %+v", report)
	}
}

// A record below the beginning of the newest epoch was acknowledged, whatever the hint says.
func TestRingSalvage_BelowTheNewestEpoch(t *testing.T) {
	r := newEndedRing(t)
	r.append(salvagedRecords, 10, nil)
	r.write(50, 0)
	into := filepath.Join(t.TempDir(), "store")
	if report := r.salvage(into, false); report.Failure != "" || len(report.Gaps) != 1 {
		t.Errorf("%+v", report)
	}
	expectRecords(t, into, 50, salvagedRecords+10)
}

// What is damaged in the ring and is in the store is no gap.
func TestRingSalvage_DamageThatTheStoreHas(t *testing.T) {
	r := newEndedRing(t)
	into := filepath.Join(t.TempDir(), "store")
	r.salvage(into, false)
	r.append(salvagedRecords, 10, nil)
	r.write(len(r.records)/2, r.records[len(r.records)-1].LSN)
	if report := r.salvage(into, false); report.Failure != "" || len(report.Gaps) != 0 || report.Records != 11 {
		t.Errorf("%+v", report)
	}
	expectRecords(t, into, 0, salvagedRecords+10)
}

// On a later lap old bytes lie behind the log: they are known by the store; a damaged last record is not taken for
// them.
func TestRingSalvage_LaterLap(t *testing.T) {
	r := newEndedRing(t)
	into := filepath.Join(t.TempDir(), "store")
	r.salvage(into, false)
	env := &environment{stdout: io.Discard, stderr: io.Discard}
	for range 3 {
		if err := runDrain(t.Context(), env, r.uri, into, drainOptions{segmentBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		r.append(0, 450, bytes.Repeat([]byte("order"), 200))
	}
	last := r.records[len(r.records)-1]
	if last.LSN < 1<<20 {
		t.Fatalf("lsn %d: the ring is on its first lap", last.LSN)
	}
	r.write(len(r.records)-1, 0)
	if report := r.salvage(into, true); !strings.Contains(report.Failure, "is not known") {
		t.Errorf("the last record is damaged: %+v", report)
	}
	r.write(-1, 0)
	if report := r.salvage(into, false); report.Failure != "" || len(report.Gaps) != 0 || report.Records != 1 {
		t.Errorf("nothing is damaged: %+v", report)
	}
}
