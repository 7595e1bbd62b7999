package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// clockedStore is a store of many segments whose writer's clock was set ahead and back again.
func clockedStore(t *testing.T, seed uint64) *fixture {
	t.Helper()
	return clockedStoreOf(t, seed, crashSegmentBytes, 80, 600, 10, 11, 14, 12, 13, 9, 20)
}

func clockedStoreOf(t *testing.T, seed uint64, segmentBytes int64, count, lenMax int, hours ...int) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(seed), ring: storetest.NewRing(testStream, seed)}
	options := f.options()
	options.SegmentBytes = segmentBytes
	f.openWith(options)
	for _, hour := range hours {
		f.ring.SetClock(time.Date(2026, 11, 20, hour, 0, 0, 0, time.UTC))
		f.ring.Append(count, lenMax)
		f.feed()
	}
	f.close()
	return f
}

// within are the records of a window, of all that was given.
func (f *fixture) within(w store.Window) (want []storetest.Record) {
	for _, rec := range f.given {
		if rec.TimestampNS >= w.From && (w.To == 0 || rec.TimestampNS < w.To) {
			want = append(want, rec)
		}
	}
	return want
}

// expectWithin reads a window, and gives how much was read for it.
func (f *fixture) expectWithin(what string, w store.Window) (seen, planned store.Extent) {
	f.t.Helper()
	r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, Window: w})
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Close()
	planned = r.Extent()
	items, want := readAll(f.t, r), f.within(w)
	items = slices.DeleteFunc(items, func(item store.Item) bool { return !w.Has(item.TimestampNS) })
	if len(items) != len(want) {
		f.t.Fatalf("%s: window %+v has %d records, expected %d", what, w, len(items), len(want))
	}
	for i, item := range items {
		if !bytes.Equal(item.Raw, want[i].Raw) {
			f.t.Fatalf("%s: window %+v, record %d has lsn %d, expected %d", what, w, i, item.LSN, want[i].LSN)
		}
	}
	return r.Seen(), planned
}

// windows draws spans that begin and end at records, between them, and outside of all.
func (f *fixture) windows(rng *rand.Rand, count int) (list []store.Window) {
	at := func() uint64 { return f.given[rng.IntN(len(f.given))].TimestampNS + uint64(rng.IntN(3)) - 1 }
	list = append(list, store.Window{}, store.Window{From: 1}, store.Window{To: 1}, store.Window{From: 1 << 62})
	for range count {
		from := at()
		list = append(
			list,
			store.Window{From: from, To: from + 1 + uint64(rng.IntN(100_000))},
			store.Window{From: from},
			store.Window{To: from},
		)
	}
	return list
}

// A window gives what a reader of all gives in that time, also where a clock went back, with indexes and manifests or
// without. A short one is found without reading what is far from it.
func TestWindow_SameAsAllRecordsOfThatTime(t *testing.T) {
	f := clockedStore(t, 5)
	rng := rand.New(rand.NewPCG(5, 5))
	list := f.windows(rng, 15)
	for _, w := range list {
		f.expectWithin("whole", w)
	}
	all, _ := f.expectWithin("all", store.Window{})
	one := f.given[len(f.given)-40] // of an hour over which the clock was set once
	seen, planned := f.expectWithin("one record", store.Window{From: one.TimestampNS, To: one.TimestampNS + 1})
	if planned.Segments > all.Segments/3 || seen.Bytes > all.Bytes/3 {
		t.Errorf("one record: planned %+v, read %+v, and all is %+v", planned, seen, all)
	}
	if seen, _ := f.expectWithin("none", store.Window{From: 1, To: 2}); seen.Bytes > all.Bytes/10 {
		t.Errorf("no record: read %+v, and all is %+v", seen, all)
	}
	for number := range uint64(8) {
		f.change(fileName(number+2, ".idx"), func(data []byte) []byte { data[len(data)/2] ^= 1; return data })
	}
	for _, w := range list {
		f.expectWithin("with damaged indexes", w)
	}
	for number := range uint64(8) {
		for _, suffix := range []string{".idx", ".json"} {
			if err := f.fs.Remove(streamPath + fileName(number+2, suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, w := range list {
		f.expectWithin("without manifests", w)
	}
}

// Damage in what a window needs is an error, whatever the index says; damage elsewhere is not looked at.
func TestWindow_DamageInIt(t *testing.T) {
	f := clockedStore(t, 6)
	var before store.Item
	items := f.read(store.ReaderOptions{IncludeControl: true})
	for _, item := range items {
		if item.Segment == 3 {
			before = item // the last one of the segment
		}
	}
	f.change(fileName(3, ".seg"), func(data []byte) []byte { data[before.Offset+60] ^= 1; return data })
	for _, hasIndex := range []bool{true, false} {
		for i, item := range items {
			if item.Segment != 3 && i%40 != 0 {
				continue
			}
			w := store.Window{From: item.TimestampNS, To: item.TimestampNS + 1}
			r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, Window: w})
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for err == nil {
				if _, err = r.Next(); err == nil {
					count++
				}
			}
			r.Close()
			switch isDamaged := errors.Is(err, store.ErrCorrupt); {
			case item.LSN == before.LSN && !isDamaged:
				t.Errorf("index %v: the damaged record: %d records, %v", hasIndex, count, err)
			case (item.Segment == 2 || item.Segment == 4) && isDamaged: // GAP records at its border may be needed
			case item.Segment != 3 && (err != io.EOF || count == 0):
				t.Errorf("index %v, segment %d: %d records, %v", hasIndex, item.Segment, count, err)
			case item.Segment == 3 && !isDamaged && count == 0:
				t.Errorf("index %v, segment 3: no record and no damage", hasIndex)
			}
		}
		if hasIndex {
			if err := f.fs.Remove(streamPath + fileName(3, ".idx")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A reader with a window that has come to the end gives what comes later.
func TestWindow_GoesOnAtTheEnd(t *testing.T) {
	f := clockedStore(t, 7)
	f.open()
	last := f.given[len(f.given)-1].TimestampNS
	for _, from := range []uint64{0, last, last + 1} {
		r, err := f.store.OpenReader(testStream, store.ReaderOptions{
			IncludeControl: true, Window: store.Window{From: from, To: 1 << 62},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		count := len(readAll(t, r))
		given := len(f.given)
		f.ring.Append(60, 600)
		f.feed()
		if more := len(readAll(t, r)); more != len(f.given)-given {
			t.Errorf("from %d: %d records, then %d, expected %d", from, count, more, len(f.given)-given)
		}
	}
	f.close()
}

// In a large segment a window is found by the entries of its index.
func TestWindow_InLargeSegments(t *testing.T) {
	f := clockedStoreOf(t, 9, 512<<10, 150, 3000, 10, 12, 11, 13, 14)
	for _, w := range f.windows(rand.New(rand.NewPCG(9, 9)), 10) {
		f.expectWithin("large", w)
	}
	at := f.given[75].TimestampNS // in the middle of the first segment
	seen, planned := f.expectWithin("one record", store.Window{From: at, To: at + 1})
	seenAlways, always := f.expectWithin("none", store.Window{From: 1, To: 2}) // of what is not sealed
	// Its entry of the index, both neighbors, and one of the next segment.
	const near = 4*64<<10 + 16<<10
	if planned.Segments > always.Segments+2 || planned.Bytes > always.Bytes+near ||
		seen.Bytes > seenAlways.Bytes+near+64<<10 {
		t.Errorf("one record: planned %+v and read %+v, in any case %+v", planned, seen, always)
	}
}

// Where all that is there is sealed, as in an archive, a window ends at the last segment without reading it; what comes
// later is read.
func TestWindow_OnlySealedSegments(t *testing.T) {
	f := clockedStore(t, 8)
	newest := streamPath + fileName(f.newest()+1, ".seg")
	segment, err := f.fs.Bytes(newest)
	if err != nil {
		t.Fatal(err)
	}
	for number := f.newest() + 1; f.isThere(streamPath + fileName(number, ".seg")); number++ {
		if err := f.fs.Remove(streamPath + fileName(number, ".seg")); err != nil {
			t.Fatal(err)
		}
	}
	all := f.given
	f.given = all[:len(f.read(store.ReaderOptions{IncludeControl: true}))]
	for _, w := range f.windows(rand.New(rand.NewPCG(8, 8)), 15) {
		f.expectWithin("sealed", w)
	}
	if seen, _ := f.expectWithin("none", store.Window{From: 1, To: 2}); seen.Bytes != 0 {
		t.Errorf("no record: read %+v", seen)
	}
	later := store.Window{From: all[len(f.given)].TimestampNS}
	r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true, Window: later})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if items := readAll(t, r); len(items) != 0 || r.Seen().Bytes != 0 {
		t.Fatalf("%d records, read %+v", len(items), r.Seen())
	}
	if err := f.put(newest, bytes.NewReader(segment)); err != nil {
		t.Fatal(err)
	}
	if items := readAll(t, r); len(items) != len(all)-len(f.given) {
		t.Errorf("%d records came later, expected %d", len(items), len(all)-len(f.given))
	}
}

// entryTimes are the times of an entry of a forged index.
type entryTimes struct{ low, high uint64 }

// forgeIndex gives a segment an index that is whole, with an entry for each record. The first one has the times that
// the manifest says.
func (f *fixture) forgeIndex(number uint64, others entryTimes) {
	f.t.Helper()
	m, _, err := f.store.ReadManifest(testStream, number)
	if err != nil {
		f.t.Fatal(err)
	}
	var entries []uint64
	for _, item := range f.read(store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true}) {
		if item.Segment != number {
			continue
		}
		times := others
		if len(entries) == 0 {
			times = entryTimes{m.MinTimestampNS, m.MaxTimestampNS}
		} else if others.low == 0 {
			times = entryTimes{m.MaxTimestampNS, m.MaxTimestampNS}
		}
		entries = append(entries, item.LSN, item.Seq, times.low, times.high, uint64(item.Offset))
	}
	f.change(fileName(number, ".idx"), func(data []byte) []byte {
		forged := bytes.Clone(data[:56])
		binary.LittleEndian.PutUint32(forged[12:], uint32(len(entries)/5))
		binary.LittleEndian.PutUint32(forged[48:], 0)
		for _, word := range entries {
			forged = binary.LittleEndian.AppendUint64(forged, word)
		}
		return binary.LittleEndian.AppendUint32(forged, record.CRC32C(0, forged))
	})
}

// An index is not signed. One whose times make no sense hides nothing; one that a reader would believe, and is not what
// the records say, is found by Verify.
func TestWindow_ForgedIndex(t *testing.T) {
	f := clockedStore(t, 10)
	for number := range f.newest() - 1 {
		f.forgeIndex(number+1, entryTimes{math.MaxUint64, 1})
	}
	for _, w := range f.windows(rand.New(rand.NewPCG(10, 10)), 15) {
		f.expectWithin("inverted", w)
	}
	f = clockedStore(t, 10)
	if report := f.verify(); report.Failure != nil {
		t.Fatal(report.Statement())
	}
	f.forgeIndex(3, entryTimes{})
	if report := f.verify(); report.Failure == nil || report.Failure.Segment != fileName(3, ".idx") {
		t.Errorf("%s, expected the index", report.Statement())
	}
}

func fileName(number uint64, suffix string) string { return fmt.Sprintf("%010d%s", number, suffix) }
