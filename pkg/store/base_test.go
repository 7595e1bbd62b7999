package store_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

var readEverything = store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true}

// removeBefore removes with the appender of the fixture, or without one when that is closed.
func (f *fixture) removeBefore(segment uint64) *store.Base {
	f.t.Helper()
	base, err := f.store.RemoveBefore(testStream, store.Removal{Before: segment, Policy: "test", By: "tester"})
	if err != nil {
		f.t.Fatal(err)
	}
	return base
}

// behind gives what was given from the first record of a segment on.
func (f *fixture) behind(segment uint64) []storetest.Record {
	f.t.Helper()
	for _, item := range f.read(readEverything) {
		if item.Segment != segment {
			continue
		}
		for i, rec := range f.given {
			if bytes.Equal(rec.Raw, item.Raw) {
				return f.given[i:]
			}
		}
	}
	f.t.Fatalf("segment %d holds nothing that was given", segment)
	return nil
}

func (f *fixture) expect(want []storetest.Record) {
	f.t.Helper()
	got := f.read(readEverything)
	if len(got) != len(want) {
		f.t.Fatalf("reader gives %d records, expected %d", len(got), len(want))
	}
	for i, item := range got {
		if !bytes.Equal(item.Raw, want[i].Raw) {
			f.t.Fatalf("record %d is that of lsn %d, expected lsn %d", i, item.LSN, want[i].LSN)
		}
	}
	if report := f.verify(); report.Failure != nil {
		f.t.Fatal(report.Statement())
	}
}

func TestRemoveBefore_StreamBeginsAtTheBase(t *testing.T) {
	f := newFixture(t)
	f.fill(120)
	all, err := f.store.StreamBytes(testStream)
	if err != nil {
		t.Fatal(err)
	}
	want := f.behind(3)
	base := f.removeBefore(3)
	if base.Segment != 3 || base.RemovedSegments != 2 || base.NextLSN != want[0].LSN || base.NextSeq != want[0].Seq ||
		base.Policy != "test" || base.RemovedBy != "tester" || base.ArchivedAt != "" {
		t.Fatalf("base is %+v", base)
	}
	f.expect(want)
	names, err := f.fs.ReadDir(strings.TrimSuffix(streamPath, "/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "0000000001.") || strings.HasPrefix(name, "0000000002.") {
			t.Errorf("%s is still there", name)
		}
	}
	if now, err := f.store.StreamBytes(testStream); err != nil || now != all {
		t.Errorf("stream had %d bytes, and %d with those that were removed: %v", all, now, err)
	}
	report := f.verify()
	if report.Base == nil || !strings.Contains(report.Statement(), "2 segments") ||
		!strings.Contains(report.Statement(), "without an archive") {
		t.Errorf("verify says %q", report.Statement())
	}

	f.open()
	f.ring.Append(60, 600)
	from := len(f.given)
	f.feed()
	want = append(want[:len(want):len(want)], f.given[from:]...)
	f.close()
	f.expect(want)
	want = f.behind(5)
	if second := f.removeBefore(5); second.RemovedSegments != 4 || second.PreviousSHA256 == base.PreviousSHA256 {
		t.Errorf("second base is %+v", second)
	}
	f.expect(want)
}

// TestRemoveBefore_BesideTheAppender: the stream begins with the segment that is written, and goes on when it is opened
// again: its state comes from the base.
func TestRemoveBefore_BesideTheAppender(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(80, 600)
	f.feed()
	items := f.read(readEverything)
	newest := items[len(items)-1].Segment
	want := f.behind(newest)
	if _, err := f.app.RemoveBefore(store.Removal{Before: newest, Policy: "test"}); err != nil {
		t.Fatal(err)
	}
	f.expect(want)
	f.fs.Kill()
	f.open()
	from := len(f.given)
	f.ring.Append(80, 600)
	f.feed()
	f.close()
	want = append(want[:len(want):len(want)], f.given[from:]...)
	f.expect(want)
	if _, err := f.app.RemoveBefore(store.Removal{Before: newest + 1}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed appender removes: %v", err)
	}
}

func TestRemoveBefore_OnlyWhatIsSealedAndContinued(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(80, 600)
	f.feed()
	items := f.read(readEverything)
	newest := items[len(items)-1].Segment
	for _, before := range []uint64{newest + 1, newest + 2, newest + 9} {
		if _, err := f.app.RemoveBefore(store.Removal{Before: before}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("removal before %d of %d: %v", before, newest, err)
		}
	}
	if _, err := f.store.RemoveBefore(testStream, store.Removal{Before: 2}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("removal without the stream's lock: %v", err)
	}
	f.expect(f.given)
	f.close()
	f.change("0000000002.json", flip(40))
	if _, err := f.store.RemoveBefore(testStream, store.Removal{Before: 3}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("removal of a segment whose manifest is damaged: %v", err)
	}
	f.change("0000000002.json", flip(40))
	f.expect(f.given)
}

func TestBase_WhatIsBeforeItIsRemovedAndNotMissing(t *testing.T) {
	f := newFixture(t)
	f.fill(120)
	beside, err := f.store.OpenReader(testStream, readEverything)
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	first, err := beside.Next()
	if err != nil {
		t.Fatal(err)
	}
	lsn, place := first.LSN, first.Place()
	want := f.behind(4)
	f.removeBefore(4)

	// It has the first segment open, and reads that to its end.
	for err == nil {
		_, err = beside.Next()
	}
	if !errors.Is(err, store.ErrRemoved) {
		t.Errorf("reader in a removed segment: %v", err)
	}
	r, err := f.store.OpenReader(testStream, readEverything)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.SeekLSN(lsn); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("seek to a removed lsn: %v", err)
	}
	place.LSN++
	if err := r.SeekPlace(place); !errors.Is(err, store.ErrRemoved) {
		t.Errorf("seek to a removed place: %v", err)
	}
	base := r.Base()
	for _, place := range []store.Place{
		{}, {Generation: base.Generation, Epoch: base.LastEpoch, LSN: base.LastLSN + 1},
	} {
		if err := r.SeekPlace(place); err != nil {
			t.Fatal(err)
		}
		if item, err := r.Next(); err != nil || !bytes.Equal(item.Raw, want[0].Raw) {
			t.Errorf("from %s on comes lsn %d, expected %d: %v", place, item.LSN, want[0].LSN, err)
		}
	}
}

// TestBase_ReaderAtTheEndOfARemovedSegmentSaysSo: it had seen no segment behind it.
func TestBase_ReaderAtTheEndOfARemovedSegmentSaysSo(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(3, 600)
	f.feed()
	r, err := f.store.OpenReader(testStream, readEverything)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	readAll(t, r)
	f.ring.Append(120, 600)
	f.feed()
	if _, err := f.app.RemoveBefore(store.Removal{Before: 4, Policy: "test"}); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = r.Next()
	}
	if !errors.Is(err, store.ErrRemoved) {
		t.Errorf("reader waits for what was removed: %v", err)
	}
}

// resign signs a base manifest that was changed.
func (f *fixture) resign(name string, change func(b *store.Base)) {
	t, s := f.t, f.store
	t.Helper()
	raw, err := f.fs.Bytes(streamPath + name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Base      store.Base `json:"base"`
		Signature string     `json:"signature"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	change(&file.Base)
	body, err := json.Marshal(file.Base)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := s.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	raw = fmt.Appendf(nil, "{\"base\":%s,\"signature\":\"%s\"}\n", body, hex.EncodeToString(signature))
	f.change(name, func([]byte) []byte { return raw })
}

// removeSegments takes all that is left of a stream, but for its base manifest.
func removeSegments(f *fixture) {
	names, err := f.fs.ReadDir(strings.TrimSuffix(streamPath, "/"))
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".base") {
			continue
		}
		if err := f.fs.Remove(streamPath + name); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestBase_OneThatDoesNotFitIsDamage(t *testing.T) {
	const name = "0000000003.base"
	signed := func(change func(b *store.Base)) func(f *fixture) {
		return func(f *fixture) { f.resign(name, change) }
	}
	remove := func(names ...string) func(f *fixture) {
		return func(f *fixture) {
			for _, name := range names {
				if err := f.fs.Remove(streamPath + name); err != nil {
					f.t.Fatal(err)
				}
			}
		}
	}
	for what, damage := range map[string]func(f *fixture){
		"none":            remove(name),
		"a flipped bit":   func(f *fixture) { f.change(name, flip(60)) },
		"another store":   signed(func(b *store.Base) { b.StoreUUID = strings.Repeat("0", 36) }),
		"another stream":  signed(func(b *store.Base) { b.Stream = "desk7/other" }),
		"another number":  signed(func(b *store.Base) { b.Segment = 4 }),
		"another lsn":     signed(func(b *store.Base) { b.NextLSN += 64 }),
		"another seq":     signed(func(b *store.Base) { b.NextSeq++ }),
		"another epoch":   signed(func(b *store.Base) { b.LastEpoch++ }),
		"another gen":     signed(func(b *store.Base) { b.Generation++ }),
		"no time":         signed(func(b *store.Base) { b.RemovedAt = "yesterday" }),
		"another segment": signed(func(b *store.Base) { b.SegmentSHA256 = strings.Repeat("ab", 32) }),
		"no segment":      remove("0000000003.seg"),
		"none behind it":  removeSegments,
		"a later hole":    remove("0000000004.seg"),
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			f.fill(140)
			f.removeBefore(3)
			damage(f)
			r, err := f.store.OpenReader(testStream, readEverything)
			if err == nil {
				_, err = io.Copy(io.Discard, itemReader{r})
				r.Close()
			}
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("reader: %v", err)
			}
			report, err := f.store.Verify(context.Background(), store.VerifyOptions{})
			if err != nil || report.OK() {
				t.Errorf("verify is content: %v", err)
			}
			if _, err := f.store.OpenStream(f.ring.Source); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("appender: %v", err)
			}
		})
	}
}

// itemReader lets io.Copy read a stream to its end.
type itemReader struct{ r *store.Reader }

func (i itemReader) Read(p []byte) (int, error) {
	_, err := i.r.Next()
	return min(1, len(p)), err
}

func TestBase_ManifestAndFormerBasesAreVerified(t *testing.T) {
	f := newFixture(t)
	f.fill(250)
	f.removeBefore(3)
	f.removeBefore(5)
	if report := f.verify(); report.Failure != nil || report.SealedSegments < 2 {
		t.Fatal(report.Statement())
	}
	names := []string{"0000000003.base", "0000000005.base"}
	for what, damage := range map[string]func(){
		"manifest": func() {
			f.resign(names[1], func(b *store.Base) { b.ManifestSHA256 = strings.Repeat("ab", 32) })
		},
		"fewer removed":   func() { f.resign(names[1], func(b *store.Base) { b.RemovedRecords = 1 }) },
		"former base":     func() { f.change(names[0], flip(60)) },
		"no former bases": func() { f.change(names[0], func([]byte) []byte { return nil }) },
	} {
		kept := map[string][]byte{}
		for _, name := range names {
			kept[name], _ = f.fs.Bytes(streamPath + name)
		}
		damage()
		if report := f.verify(); report.Failure == nil {
			t.Errorf("%s: verify is content", what)
		}
		for name, raw := range kept {
			f.change(name, func([]byte) []byte { return raw })
		}
	}
	if err := f.fs.Remove(streamPath + names[0]); err != nil {
		t.Fatal(err)
	}
	if report := f.verify(); report.Failure == nil {
		t.Error("verify does not miss a former base manifest")
	}
}

func TestBase_BetweenTwoRings(t *testing.T) {
	f := newFixture(t)
	f.fill(40)
	first := f.ring
	f.ring = storetest.NewRing(testStream, 2)
	f.open()
	f.fill(60)
	var begin uint64
	for _, item := range f.read(readEverything) {
		if item.Generation == 2 {
			begin = item.Segment
			break
		}
	}
	want := f.behind(begin)
	base := f.removeBefore(begin)
	if base.Generation != 1 || base.RingUUID != first.Source.RingUUID.String() {
		t.Fatalf("base is %+v", base)
	}
	f.expect(want)
	if _, err := f.store.OpenStream(first.Source); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a ring whose records were all removed came back: %v", err)
	}
	f.open()
	from := len(f.given)
	f.ring.Append(10, 600)
	f.feed()
	f.close()
	f.expect(append(want[:len(want):len(want)], f.given[from:]...))
	if items := f.read(readEverything); items[0].Generation != 2 {
		t.Errorf("stream begins with generation %d, expected 2", items[0].Generation)
	}
}

// TestBase_Anchors: an anchor of the point where the base begins is compared with it; one before proves nothing.
func TestBase_Anchors(t *testing.T) {
	f := newFixture(t)
	anchors := map[uint64]store.Anchor{} // the last of each segment
	for range 30 {
		f.ring.Append(5, 600)
		f.feed()
		if anchor, ok := f.app.Anchor(); ok {
			anchors[anchor.Segment] = anchor
		}
	}
	f.close()
	verify := func(anchors ...store.Anchor) store.StreamReport {
		report, err := f.store.Verify(context.Background(), store.VerifyOptions{Anchors: anchors})
		if err != nil {
			t.Fatal(err)
		}
		return report.Streams[0]
	}
	f.removeBefore(3)
	f.open()
	end, _ := f.app.Anchor()
	f.close()
	if r := verify(end, anchors[1]); r.Failure != nil || !r.IsEndProved || r.RemovedAnchors != 1 ||
		len(r.Anchors) != 1 {
		t.Errorf("a newer anchor beside an old one: %s", r.Statement())
	}
	if r := verify(anchors[1]); r.Failure == nil {
		t.Errorf("an anchor of what was removed proves the end: %s", r.Statement())
	}
	base, err := f.store.Base(testStream)
	if err != nil {
		t.Fatal(err)
	}
	at := store.Anchor{
		StoreUUID: base.StoreUUID, Stream: base.Stream, RingUUID: base.RingUUID, Generation: base.Generation,
		Segment: 2, Offset: 8192, Epoch: base.LastEpoch, NextLSN: base.NextLSN, NextSeq: base.NextSeq,
		SHA256: base.SegmentSHA256, SealedSegment: 2, ManifestSHA256: base.ManifestSHA256,
	}
	if r := verify(at); r.Failure != nil || len(r.Anchors) != 1 {
		t.Errorf("an anchor of the base's own point: %s", r.Statement())
	}
	other := at
	other.SHA256 = strings.Repeat("ab", 32)
	if r := verify(other); r.Failure == nil {
		t.Errorf("an anchor of another last removed segment: %s", r.Statement())
	}
	other = at
	other.ManifestSHA256 = strings.Repeat("ab", 32)
	if r := verify(other); r.Failure == nil {
		t.Errorf("an anchor of another last removed manifest: %s", r.Statement())
	}
}
