package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rewindRing feeds a store with records that a power cut of the region undoes afterwards, twice, the second time
// further back.
func rewindRing(t *testing.T) (f *fixture, counting []storetest.Record) {
	f = newFixture(t)
	f.ring.Append(60, 600)
	keep := f.ring.Records
	first, second := keep[40], keep[30]
	feedAll := func() {
		for _, rec := range f.ring.Records {
			if _, _, err := f.app.Append(rec.Raw); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.app.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	feedAll()
	f.given = append(f.given, keep...)
	f.ring.OpenEpochAt(first.LSN)
	f.ring.Append(20, 600)
	feedAll()
	f.given = append(f.given, f.ring.Records[40:]...)
	f.ring.OpenEpochAt(second.LSN)
	f.ring.Append(30, 600)
	feedAll()
	f.given = append(f.given, f.ring.Records[30:]...)
	f.close()
	return f, f.ring.Records
}

func TestReader_SupersededRecordsAreLeftOut(t *testing.T) {
	f, counting := rewindRing(t)
	items := f.read(store.ReaderOptions{IncludeControl: true})
	if len(items) != len(counting) {
		t.Fatalf("read %d records, expected %d", len(items), len(counting))
	}
	for i, item := range items {
		if !bytes.Equal(item.Raw, counting[i].Raw) || item.IsSuperseded {
			t.Fatalf("record %d: lsn %d of epoch %d, expected lsn %d of epoch %d", i, item.LSN, item.Epoch,
				counting[i].LSN, counting[i].Epoch)
		}
	}
	all := f.read(store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if len(all) != len(f.given) {
		t.Fatalf("with superseded ones: read %d records, expected %d", len(all), len(f.given))
	}
	report := f.verify()
	var records, control, superseded uint64
	for _, item := range all {
		switch {
		case item.Flags.IsPad():
		case item.IsSuperseded:
			superseded++
		case item.Flags.IsControl():
			control++
		default:
			records++
		}
	}
	if report.Failure != nil || report.Records != records || report.ControlRecords != control ||
		report.Superseded != superseded || superseded == 0 {
		t.Fatalf("%s: %+v, expected %d, %d, %d", report.Statement(), report, records, control, superseded)
	}
}

func TestReader_SeekAfterARewindFindsWhatCounts(t *testing.T) {
	f, counting := rewindRing(t)
	for _, want := range counting {
		r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.SeekLSN(want.LSN); err != nil {
			t.Fatal(err)
		}
		if item, err := r.Next(); err != nil || !bytes.Equal(item.Raw, want.Raw) {
			t.Fatalf("sought lsn %d, got lsn %d of epoch %d, %v", want.LSN, item.LSN, item.Epoch, err)
		}
		r.Close()
	}
}

func TestOpenStream_RingFormattedAnewBeginsAGeneration(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(50, 500)
	f.feed()
	f.close()
	old := f.ring
	f.ring = storetest.NewRing(testStream, 2)
	f.open()
	if last := f.app.Last(); last.OK {
		t.Fatalf("stands at %+v of a ring that it has never seen", last)
	}
	f.ring.Append(50, 500)
	f.feed()
	f.close()
	report := f.verify()
	if report.Failure != nil || len(report.Generations) != 2 || report.Generations[1].FirstLSN != 0 {
		t.Fatalf("%s: %+v", report.Statement(), report.Generations)
	}
	if !strings.Contains(report.Statement(), "formatted again") {
		t.Errorf("statement %q does not tell of the new ring", report.Statement())
	}
	if items := f.read(store.ReaderOptions{IncludeControl: true}); len(items) != len(f.given) {
		t.Errorf("read %d records, expected %d", len(items), len(f.given))
	}
	if _, err := f.store.OpenStream(old.Source); !errors.Is(err, store.ErrInvalid) ||
		!strings.Contains(err.Error(), "cannot come back") {
		t.Errorf("old ring: got %v", err)
	}
	changed := f.ring.Source
	changed.RecordLenMax *= 2
	if _, err := f.store.OpenStream(changed); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("same ring with another record_len_max: got %v", err)
	}
}

// A segment is begun and the power goes before a record is in it; a reader waits at its start; then the stream gets
// another ring, whose records fill that segment and the next ones before the reader looks again. The crash comes at
// each operation in turn.
func TestReader_SegmentThatARingLeftEmptyIsAnotherRings(t *testing.T) {
	emptied := 0
	for _, isSynced := range []bool{false, true} {
		for operation := range 12 {
			if leaveSegmentEmpty(t, operation, isSynced) {
				emptied++
			}
		}
	}
	if emptied == 0 {
		t.Error("no crash left a segment empty")
	}
}

func leaveSegmentEmpty(t *testing.T, operation int, isSynced bool) (isEmptied bool) {
	t.Helper()
	disk := storetest.NewCrashFS(uint64(operation))
	options := store.Options{Create: true, FS: disk, SegmentBytes: crashSegmentBytes, IsSynchronous: true}
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatalf("crash at operation %d: %v", operation, err)
		}
	}
	reopen := func(ring *storetest.Ring) (*store.Store, *store.Appender) {
		s, err := store.Open("/store", options)
		check(err)
		app, err := s.OpenStream(ring.Source)
		check(err)
		return s, app
	}
	first, second := storetest.NewRing(testStream, 1), storetest.NewRing(testStream, 2)
	_, app := reopen(first)
	for range 3 {
		first.AppendPayload(make([]byte, 3000))
	}
	_, _, err := app.Append(storetest.Batch(first.Records))
	check(errors.Join(err, app.Sync()))
	first.AppendPayload(make([]byte, 3900)) // does not go into the first segment
	disk.CrashAfter(operation)
	_, _, err = app.Append(first.Records[len(first.Records)-1].Raw)
	if err == nil {
		_ = app.Sync() // the crash may come as well
	}
	disk.Kill()

	s, app := reopen(second)
	r, err := s.OpenReader(testStream, store.ReaderOptions{
		IncludeControl: true, IncludeSuperseded: true,
		SyncedOnly: isSynced, IsOpenFast: true,
	})
	check(err)
	defer r.Close()
	check(r.SeekStart())
	before := 0
	for ; err == nil; before++ {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("crash at operation %d: %v", operation, err)
	}
	second.Append(100, 900)
	for _, rec := range second.Records {
		_, _, err := app.Append(rec.Raw)
		check(err)
	}
	check(app.Sync())
	for _, rec := range second.Records {
		item, err := r.Next()
		check(err)
		if !bytes.Equal(item.Raw, rec.Raw) || item.Generation != 2 {
			t.Fatalf("crash at operation %d: lsn %d of generation %d, expected lsn %d of generation 2", operation,
				item.LSN, item.Generation, rec.LSN)
		}
		isEmptied = isEmptied || item.Segment == 2
	}
	check(app.Close())
	return isEmptied
}

// TestReader_SeekEqualsSkipping seeks positions and times at random in random stores and compares with a walk from the
// start.
func TestReader_SeekEqualsSkipping(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fs := storetest.NewCrashFS(1)
		ring := storetest.NewRing(testStream, rapid.Uint64().Draw(rt, "seed"))
		s, err := store.Open("/store", store.Options{
			Create: true, FS: fs, SegmentBytes: crashSegmentBytes,
			IsSynchronous: true,
		})
		if err != nil {
			rt.Fatal(err)
		}
		a, err := s.OpenStream(ring.Source)
		if err != nil {
			rt.Fatal(err)
		}
		ring.Append(rapid.IntRange(1, 80).Draw(rt, "records"), 900)
		for _, rec := range ring.Records {
			if _, _, err := a.Append(rec.Raw); err != nil {
				rt.Fatal(err)
			}
		}
		if rapid.Bool().Draw(rt, "closed") {
			if err := a.Close(); err != nil {
				rt.Fatal(err)
			}
		}
		r, err := s.OpenReader(testStream, store.ReaderOptions{IncludeControl: true})
		if err != nil {
			rt.Fatal(err)
		}
		defer r.Close()
		for range 8 {
			at := rapid.IntRange(0, len(ring.Records)-1).Draw(rt, "record")
			lsn := ring.Records[at].LSN
			if rapid.Bool().Draw(rt, "between") && at > 0 {
				lsn -= 64
			}
			want := ring.Records[firstAtOrAfter(ring.Records,
				func(rec storetest.Record) bool { return rec.LSN >= lsn })]
			if err := r.SeekLSN(lsn); err != nil {
				rt.Fatal(err)
			}
			if item, err := r.Next(); err != nil || item.LSN != want.LSN {
				rt.Fatalf("sought lsn %d: got %d, %v, expected %d", lsn, item.LSN, err, want.LSN)
			}
			ts := ring.Records[at].TimestampNS - rapid.Uint64Range(0, 1).Draw(rt, "before")
			want = ring.Records[firstAtOrAfter(ring.Records,
				func(rec storetest.Record) bool { return rec.TimestampNS >= ts })]
			if err := r.SeekTime(time.Unix(0, int64(ts))); err != nil {
				rt.Fatal(err)
			}
			if item, err := r.Next(); err != nil || item.LSN != want.LSN {
				rt.Fatalf("sought time %d: got lsn %d, %v, expected %d", ts, item.LSN, err, want.LSN)
			}
		}
	})
}

func firstAtOrAfter(records []storetest.Record, is func(storetest.Record) bool) int {
	for i, rec := range records {
		if is(rec) {
			return i
		}
	}
	return len(records)
}

// TestReader_FollowsALiveAppender reads and verifies on a real file system while an appender with work in the
// background rolls through many small segments: every record comes once, in order, whole.
func TestReader_FollowsALiveAppender(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	s, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{Create: true, SegmentBytes: 32 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(testStream, seed)
	ring.Append(3000, 300)
	a, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	appended := make(chan error, 1)
	go func() { appended <- appendAll(a, ring.Records, rng) }()
	r, err := s.OpenReader(testStream, store.ReaderOptions{IncludeControl: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, want := range ring.Records {
		item, err := r.Wait(ctx, 100*time.Microsecond)
		if err != nil || !bytes.Equal(item.Raw, want.Raw) {
			t.Fatalf("record %d: got lsn %d, %v, expected lsn %d", i, item.LSN, err, want.LSN)
		}
		if i%500 == 0 {
			if report, err := s.Verify(ctx, store.VerifyOptions{}); err != nil || !report.OK() {
				t.Fatalf("verify beside the appender: %v, %v", report, err)
			}
		}
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if report, err := s.Verify(ctx, store.VerifyOptions{}); err != nil || !report.OK() ||
		report.Streams[0].SealedSegments < 10 {
		t.Fatalf("verify: %+v, %v", report, err)
	}
}

func appendAll(a *store.Appender, records []storetest.Record, rng *rand.Rand) error {
	for len(records) > 0 {
		count := min(1+rng.IntN(20), len(records))
		if _, _, err := a.Append(storetest.Batch(records[:count])); err != nil {
			return err
		}
		if rng.IntN(3) == 0 {
			if err := a.Sync(); err != nil {
				return err
			}
		}
		records = records[count:]
	}
	return a.Close()
}

func TestReader_UnknownStream(t *testing.T) {
	f := newFixture(t)
	if _, err := f.store.OpenReader("desk8", store.ReaderOptions{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("reader: got %v", err)
	}
	if _, err := f.store.Verify(context.Background(), store.VerifyOptions{Stream: "desk8"}); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("verify: got %v", err)
	}
	f.close()
	if names, err := f.store.Streams(); err != nil || len(names) != 1 || names[0] != testStream {
		t.Errorf("streams %v, %v", names, err)
	}
}

func TestReader_SealedSegmentWithDamageIsAnErrorAndNotAnEnd(t *testing.T) {
	f := newFixture(t)
	f.fill(200)
	f.change("0000000002.seg", flip(4096+60))
	r, err := f.store.OpenReader(testStream, store.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for err == nil {
		_, err = r.Next()
	}
	var corrupt *store.CorruptError
	if !errors.As(err, &corrupt) || !strings.HasSuffix(corrupt.Path, "0000000002.seg") || corrupt.Offset != 4096 {
		t.Fatalf("got %v", err)
	}
}
