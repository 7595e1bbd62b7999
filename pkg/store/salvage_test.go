package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

var salvageHow = store.SalvageOptions{By: "J. Doe", Why: "a test"}

func (f *fixture) salvage(how store.SalvageOptions) (*store.Store, store.SalvageReport) {
	f.t.Helper()
	damaged, err := store.Open("/store", f.options())
	if err != nil {
		f.t.Fatal(err)
	}
	reports, err := damaged.Salvage(context.Background(), "/whole", f.options(), how)
	if err != nil || len(reports) != 1 {
		f.t.Fatalf("%+v, %v", reports, err)
	}
	whole, err := store.Open("/whole", f.options())
	if err != nil {
		f.t.Fatal(err)
	}
	return whole, reports[0]
}

// all reads a stream, control records and superseded ones included.
func all(t *testing.T, s *store.Store) (items []store.Item) {
	t.Helper()
	reader, err := s.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for {
		item, err := reader.Next()
		if err == io.EOF {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		item.Raw, item.Payload = bytes.Clone(item.Raw), bytes.Clone(item.Payload)
		items = append(items, item)
	}
}

// expectSalvaged checks a salvaged store: it verifies, it has each record that was given, or a GAP in its place, and
// of those no more than are allowed.
func (f *fixture) expectSalvaged(whole *store.Store, lostMax int, what string) (gaps []store.Item) {
	f.t.Helper()
	report, err := whole.Verify(context.Background(), store.VerifyOptions{})
	if err != nil || !report.OK() {
		f.t.Fatalf("%s: %+v, %v", what, report.Streams, err)
	}
	salvaged := map[uint64]store.Item{}
	for _, item := range all(f.t, whole) {
		if !item.Flags.IsPad() {
			salvaged[item.Seq] = item
		}
	}
	lost := 0
	for _, rec := range f.given {
		if rec.Flags.IsPad() {
			continue
		}
		item, isThere := salvaged[rec.Seq]
		switch {
		case !isThere:
			f.t.Fatalf("%s: seq %d is missing, and no GAP is in its place", what, rec.Seq)
		case bytes.Equal(item.Raw, rec.Raw):
		case item.Flags&record.FlagGap == 0:
			f.t.Fatalf("%s: seq %d is another record", what, rec.Seq)
		default:
			lost++
			gaps = append(gaps, item)
		}
	}
	if lost > lostMax {
		f.t.Fatalf("%s: %d records are lost, at most %d were damaged", what, lost, lostMax)
	}
	return gaps
}

// files are the names of a stream's files.
func (f *fixture) files() []string {
	f.t.Helper()
	names, err := f.fs.ReadDir(strings.TrimSuffix(streamPath, "/"))
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

// A single bit that flips anywhere in a stream costs at most the record that it is in: all others are in the salvaged
// store, byte for byte, and that verifies.
func TestSalvage_SingleBitFlips(t *testing.T) {
	step := 61
	if testing.Short() {
		step = 331
	}
	f := newFixture(t)
	f.fill(70)
	unknown := 0
	for _, name := range f.files() {
		whole, err := f.fs.Bytes(streamPath + name)
		if err != nil || len(whole) == 0 || name == "lock" {
			continue
		}
		for at := 0; at < len(whole); at += step {
			f.change(name, func(data []byte) []byte { data[at] ^= 1 << (at % 8); return data })
			salvaged, report := f.salvage(salvageHow)
			given := f.given
			if strings.Contains(report.Failure, "how many records that were is not known") {
				f.given = given[:len(given)-1] // the header of the last one
				unknown++
			} else if report.Failure != "" && !strings.Contains(report.Failure, ": not proved: ") {
				t.Fatalf("%s, byte %d: %s", name, at, report.Failure)
			}
			f.expectSalvaged(salvaged, 1, name)
			f.given = given
			f.change(name, func([]byte) []byte { return bytes.Clone(whole) })
			f.removeAll("/whole")
		}
	}
	if headers := record.OverheadLen / step; unknown > headers+1 {
		t.Errorf("the end of the stream is not known for %d flips, expected %d at most", unknown, headers+1)
	}
}

// removeAll takes a directory away.
func (f *fixture) removeAll(name string) {
	f.t.Helper()
	names, err := f.fs.ReadDir(name)
	if err == nil {
		for _, one := range names {
			f.removeAll(name + "/" + one)
		}
	}
	if err := f.fs.Remove(name); err != nil {
		f.t.Fatal(err)
	}
}

// The GAP says where the damage was, what it was, who salvaged and why; the report says the same; the drain goes on in
// the new store; no byte of the damaged one was changed.
func TestSalvage_GapSaysWhy(t *testing.T) {
	f := newFixture(t)
	f.fill(70)
	f.change("0000000001.seg", func(data []byte) []byte { data[5000] ^= 0x10; return data })
	before := map[string][]byte{}
	for _, name := range f.files() {
		before[name], _ = f.fs.Bytes(streamPath + name)
	}
	whole, report := f.salvage(salvageHow)
	gaps := f.expectSalvaged(whole, 1, "one byte")
	if len(gaps) != 1 || len(report.Gaps) != 1 || report.Gaps[0].Records != 1 ||
		report.Gaps[0].LSN != gaps[0].LSN || report.Gaps[0].Segment != "0000000001.seg" {
		t.Fatalf("gaps %+v, report %+v", gaps, report)
	}
	gap, err := record.DecodeGapPayload(gaps[0].Payload)
	if err != nil || gap.Count != 1 || !strings.HasPrefix(gap.Cause, "0000000001.seg, offset ") {
		t.Errorf("%+v, %v", gap, err)
	}
	for name, raw := range before {
		if now, err := f.fs.Bytes(streamPath + name); err != nil || !bytes.Equal(now, raw) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	if raw, err := f.fs.Bytes("/whole/salvage.json"); err != nil || !bytes.Contains(raw, []byte(`"by":"J. Doe"`)) {
		t.Errorf("salvage.json %q, %v", raw, err)
	}
	if f.app, err = whole.OpenStream(f.ring.Source); err != nil {
		t.Fatal(err)
	}
	f.ring.Append(30, 600)
	f.feed()
	f.close()
	f.expectSalvaged(whole, 1, "and on")
	if _, err := f.store.Salvage(context.Background(), "/whole", f.options(), salvageHow); !errors.Is(err,
		store.ErrInvalid) {
		t.Errorf("into a store that is there: %v", err)
	}
}

// A segment that is missing is a GAP for each of its records; so is one of which nothing is readable, and what is
// readable in the neighbours is there.
func TestSalvage_SegmentLost(t *testing.T) {
	for _, lose := range []func(f *fixture, name string) error{
		func(f *fixture, name string) error { return f.fs.Remove(streamPath + name) },
		func(f *fixture, name string) error {
			return f.fs.Change(streamPath+name, func(data []byte) []byte { clear(data); return data })
		},
	} {
		f := newFixture(t)
		f.fill(150)
		count := 0
		for _, item := range all(t, f.store) {
			if item.Segment == 2 && !item.Flags.IsPad() {
				count++
			}
		}
		if err := lose(f, "0000000002.seg"); err != nil {
			t.Fatal(err)
		}
		whole, report := f.salvage(salvageHow)
		if gaps := f.expectSalvaged(whole, count, "segment 2"); len(gaps) != count || count == 0 ||
			report.Failure != "" {
			t.Errorf("%d GAP records, expected %d; %+v", len(gaps), count, report)
		}
	}
}

// An EPOCH record that is damaged is a GAP that begins the epoch.
func TestSalvage_EpochRecordLost(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(15, 600)
	f.feed()
	f.ring.OpenEpoch()
	f.ring.Append(15, 600)
	f.feed()
	f.close()
	for _, item := range all(t, f.store) {
		if item.Flags&record.FlagEpoch != 0 && item.Epoch == 2 {
			name := filepath.Base(segmentName(item.Segment))
			f.change(name, func(data []byte) []byte { data[item.Offset+70] ^= 1; return data })
		}
	}
	whole, report := f.salvage(salvageHow)
	gaps := f.expectSalvaged(whole, 1, "EPOCH record")
	if len(gaps) != 1 || gaps[0].Flags != record.FlagGap|record.FlagEpoch || gaps[0].Epoch != 2 ||
		!strings.HasPrefix(report.Failure, "segment 1: not proved: ") {
		t.Errorf("%+v, %+v", gaps, report)
	}
}

// What lies beyond the last mark behind a damaged record is left to the ring, which may have all of it still; who knows
// that it has not takes it.
func TestSalvage_TailIsLeftToTheRing(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(10, 600)
	f.feed()
	synced := len(f.given)
	f.ring.Append(10, 600)
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records)); err != nil {
		t.Fatal(err)
	}
	f.given = append(f.given, f.ring.Records...)
	name := segmentName(1)
	offset := int64(4096)
	for _, rec := range f.given[:synced+2] {
		offset += int64(len(rec.Raw))
	}
	f.change(name, func(data []byte) []byte { data[offset+70] ^= 1; return data })
	damaged, err := store.Open("/store", f.options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := damaged.Salvage(t.Context(), "/other", f.options(), salvageHow); !errors.Is(err, store.ErrLocked) {
		t.Errorf("beside an appender: %v", err)
	}
	f.fs.Kill()
	whole, report := f.salvage(salvageHow)
	if items := all(t, whole); len(items) != synced+2 || len(report.Gaps) != 0 || len(report.Notes) != 1 {
		t.Fatalf("%d records, expected %d; %+v", len(items), synced+2, report)
	}
	f.removeAll("/whole")
	how := salvageHow
	how.WithTail = true
	whole, _ = f.salvage(how)
	if gaps := f.expectSalvaged(whole, 1, "with the tail"); len(gaps) != 1 {
		t.Errorf("%d GAP records", len(gaps))
	}
}

// Whatever operation of a salvage a crash meets: there is no new store yet, or it is complete; doing it again gives it.
func TestSalvage_CrashAtEachOperation(t *testing.T) {
	for after := 0; ; after++ {
		f := &fixture{t: t, fs: storetest.NewCrashFS(uint64(after)), ring: storetest.NewRing(testStream, 1)}
		f.open()
		f.fill(40)
		f.change("0000000001.seg", func(data []byte) []byte { data[5000] ^= 0x10; return data })
		damaged, err := store.Open("/store", f.options())
		if err != nil {
			t.Fatal(err)
		}
		f.fs.CrashAfter(after)
		_, err = damaged.Salvage(context.Background(), "/whole", f.options(), salvageHow)
		isCrashed := f.fs.IsCrashed()
		if err == nil == isCrashed {
			t.Fatalf("operation %d: crashed %v, %v", after, isCrashed, err)
		}
		f.fs.Crash()
		whole, err := store.Open("/whole", store.Options{FS: f.fs, SegmentBytes: crashSegmentBytes})
		if errors.Is(err, store.ErrNotAStore) {
			whole, _ = f.salvage(salvageHow)
		} else if err != nil {
			t.Fatalf("operation %d: %v", after, err)
		}
		f.expectSalvaged(whole, 1, "crash")
		if !isCrashed {
			return
		}
	}
}

// The same over real files.
func TestSalvage_RealFiles(t *testing.T) {
	dir := t.TempDir()
	options := store.Options{Create: true, SegmentBytes: store.SegmentBytesMin}
	opened, err := store.Open(filepath.Join(dir, "store"), options)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, ring: storetest.NewRing(testStream, 1), store: opened}
	if f.app, err = opened.OpenStream(f.ring.Source); err != nil {
		t.Fatal(err)
	}
	f.fill(100)
	name := filepath.Join(dir, "store", "streams", "desk7%2Forders", "0000000002.seg")
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	raw[6000] ^= 4
	if err := errors.Join(os.Chmod(name, 0o640), os.WriteFile(name, raw, 0o640)); err != nil {
		t.Fatal(err)
	}
	if _, err := opened.Salvage(t.Context(), filepath.Join(dir, "whole"), options, salvageHow); err != nil {
		t.Fatal(err)
	}
	whole, err := store.Open(filepath.Join(dir, "whole"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if gaps := f.expectSalvaged(whole, 1, "real files"); len(gaps) != 1 {
		t.Errorf("%d GAP records", len(gaps))
	}
}

// A record that a payload holds a copy of is not taken for one of the log when the record around it is damaged.
func TestSalvage_RecordInAPayload(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(5, 600)
	copied := append(make([]byte, record.AlignMin-record.HeaderLen), f.ring.Records[2].Raw...) // where one may begin
	f.ring.AppendPayload(append(copied, 1))
	f.ring.Append(5, 600)
	f.fill(5)
	var around store.Item
	for _, item := range all(t, f.store) {
		if bytes.Contains(item.Payload, f.given[2].Raw) {
			around = item
		}
	}
	last := around.Offset + int64(record.HeaderLen+len(around.Payload)) - 1
	f.change(segmentName(around.Segment), func(data []byte) []byte { data[last] ^= 1; return data })
	whole, _ := f.salvage(salvageHow)
	if gaps := f.expectSalvaged(whole, 1, "a record in a payload"); len(gaps) != 1 || gaps[0].Seq != around.Seq {
		t.Errorf("%+v", gaps)
	}
}

// A record in front of an EPOCH record is a GAP of the former epoch; the EPOCH record still begins its own.
func TestSalvage_RecordBeforeAnEpochLost(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(15, 600)
	f.feed()
	f.ring.OpenEpoch()
	f.ring.Append(15, 600)
	f.feed()
	f.close()
	var before store.Item
	for _, item := range all(t, f.store) {
		if item.Flags&record.FlagEpoch != 0 && item.Epoch == 2 {
			break
		}
		before = item
	}
	f.change(segmentName(before.Segment), func(data []byte) []byte { data[before.Offset+8] ^= 1; return data })
	whole, _ := f.salvage(salvageHow)
	if gaps := f.expectSalvaged(whole, 1, "before an epoch"); len(gaps) != 1 || gaps[0].Flags != record.FlagGap ||
		gaps[0].Epoch != 1 {
		t.Errorf("%+v", gaps)
	}
}

// An EPOCH record that went back and is lost is no reason to take what it replaced for the log: the salvage stops there
// and says so, whether records of the epoch follow in the same segment or in the next one.
func TestSalvage_RewindLost(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(15, 600)
	f.feed()
	back := f.given[8]
	f.ring.Records = append(f.ring.Records[:0], f.given...)
	f.ring.OpenEpochAt(back.LSN)
	f.ring.Release(back.LSN)
	f.ring.Append(60, 600)
	f.feed()
	f.close()
	for _, item := range all(t, f.store) {
		if item.Flags&record.FlagEpoch != 0 && item.Epoch == 2 {
			f.change(segmentName(item.Segment), func(data []byte) []byte { data[item.Offset+70] ^= 1; return data })
		}
	}
	_, report := f.salvage(salvageHow)
	if !strings.Contains(report.Failure, "the newer epoch went back") {
		t.Errorf("%+v", report)
	}
}

// A record of a sealed segment that was replaced by another sound one, with all its CRCs, is a failure: no signature of
// the store is on it.
func TestSalvage_RecordReplaced(t *testing.T) {
	f := newFixture(t)
	f.fill(70)
	if _, report := f.salvage(salvageHow); report.Failure != "" {
		t.Fatalf("nothing is damaged: %+v", report)
	}
	f.removeAll("/whole")
	for _, item := range all(t, f.store) {
		if item.Flags == 0 && item.Segment == 1 && len(item.Payload) > 0 {
			id := record.Identity{
				Salt: f.ring.Source.Salt, Align: f.ring.Source.Align, RecordLenMax: f.ring.Source.RecordLenMax,
			}
			item.Payload[0] ^= 1
			forged, err := record.AppendTo(nil, item.Header, item.Key, item.Payload, id)
			if err != nil {
				t.Fatal(err)
			}
			f.change(segmentName(1), func(data []byte) []byte { copy(data[item.Offset:], forged); return data })
			break
		}
	}
	_, report := f.salvage(salvageHow)
	if !strings.Contains(report.Failure, "segment 1: not proved: sha256") {
		t.Errorf("%+v", report)
	}
	if raw, err := f.fs.Bytes("/whole/salvage.json"); err != nil || !bytes.Contains(raw, []byte("not proved")) {
		t.Errorf("salvage.json %q, %v", raw, err)
	}
}

// The first segment that is missing is a failure with its number, and so is the last one without a manifest that
// checks; with one it is a GAP for each of its records.
func TestSalvage_FirstOrLastSegmentLost(t *testing.T) {
	f := newFixture(t)
	f.fill(150)
	names := f.files()
	last := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".json") {
			last = strings.TrimSuffix(name, ".json")
		}
	}
	for _, name := range names { // nothing is left behind the last sealed segment
		if strings.HasSuffix(name, ".seg") && strings.TrimSuffix(name, ".seg") >= last {
			if err := f.fs.Remove(streamPath + name); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, report := f.salvage(salvageHow)
	if len(report.Gaps) != 1 || report.Gaps[0].Segment != last+".seg" || report.Gaps[0].Records == 0 ||
		report.Failure != "" {
		t.Errorf("the last one: %+v", report)
	}
	f.removeAll("/whole")
	f.change(last+".json", func(data []byte) []byte { data[len(data)/2] ^= 1; return data })
	if err := f.fs.Remove(streamPath + "0000000001.seg"); err != nil {
		t.Fatal(err)
	}
	_, report = f.salvage(salvageHow)
	if !strings.Contains(report.Failure, "segment 1 is missing, with ") ||
		!strings.Contains(report.Failure, "how many records it had is not known") {
		t.Errorf("%+v", report)
	}
}
