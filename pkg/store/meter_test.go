package store_test

import (
	"errors"
	"io"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestMeter_AgreesWithAllSegments: a meter that looks at the newest segments only gives what a look at all of them
// gives, while records come, segments are sealed and removed, rings change and the power is cut.
func TestMeter_AgreesWithAllSegments(t *testing.T) {
	seed := seedOf(t)
	for world := range uint64(20) {
		w := newWorld(seed + world)
		var meter *store.Meter
		for range 15 {
			if err := w.life(); err != nil {
				t.Fatalf("seed %d: %v", seed+world, err)
			}
			if w.fs.CrashAfter(-1); w.open() != nil {
				t.Fatalf("seed %d: cannot be opened", seed+world)
			}
			if err := w.checkOpened(); err != nil {
				t.Fatal(err)
			}
			if meter == nil {
				meter = w.store.NewMeter(testStream)
			}
			for range 5 {
				if err := errors.Join(w.feed(), w.sync()); err != nil {
					t.Fatal(err)
				}
				got, err := meter.Bytes()
				all, allErr := w.store.StreamBytes(testStream)
				if err != nil || allErr != nil || got != all || w.synced > 0 && got == 0 {
					t.Fatalf("seed %d: measured %d (%v), all segments have %d (%v)", seed+world, got, err, all, allErr)
				}
			}
			if err := w.app.Close(); err != nil {
				t.Fatal(err)
			}
			w.synced = len(w.accepted)
		}
	}
}

// TestMeter_OpensNoSegmentBeforeTheNewest: what a second look costs does not grow with the stream.
func TestMeter_OpensNoSegmentBeforeTheNewest(t *testing.T) {
	f := newFixture(t)
	f.fill(200)
	counting := storetest.NewFaultFS(f.fs)
	counted, err := store.Open("/store", store.Options{FS: counting, SegmentBytes: crashSegmentBytes})
	if err != nil {
		t.Fatal(err)
	}
	meter := counted.NewMeter(testStream)
	all, err := meter.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	first := len(counting.Calls())
	if got, err := meter.Bytes(); err != nil || got != all {
		t.Fatalf("%d, %v, before %d", got, err, all)
	}
	if again := len(counting.Calls()) - first; again > 10 || first < 2*again {
		t.Errorf("%d calls at first, %d when nothing has changed", first, again)
	}
}

// TestReader_ParkedGoesOn: a reader that is parked anywhere gives the same records as one that is not.
func TestReader_ParkedGoesOn(t *testing.T) {
	f := newFixture(t)
	f.fill(80)
	for _, options := range []store.ReaderOptions{{IncludeControl: true}, {SyncedOnly: true, IsOpenFast: true}} {
		want := f.read(options)
		r, err := f.store.OpenReader(testStream, options)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			item, err := r.Next()
			if errors.Is(err, io.EOF) && i == len(want) {
				break
			}
			if err != nil || item.LSN != want[i].LSN || item.Epoch != want[i].Epoch {
				t.Fatalf("record %d is at lsn %d, %v", i, item.LSN, err)
			}
			if i%3 == 0 {
				if err := r.Park(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := r.Park(); err != nil {
			t.Fatal(err)
		}
		f.open()
		f.ring.Append(1, 100)
		f.feed()
		f.close()
		if item, err := r.Next(); err != nil || item.LSN <= want[len(want)-1].LSN {
			t.Fatalf("what came while it was parked: lsn %d, %v", item.LSN, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReader_SealedSegmentWithoutItsLastMark: a power cut may take the last mark of a segment whose manifest is
// durable. Its records are synced all the same, also where no other segment has begun behind it.
func TestReader_SealedSegmentWithoutItsLastMark(t *testing.T) {
	f := newFixture(t)
	f.fill(5)
	want := len(f.given)
	f.ring = storetest.NewRing(testStream, 7)
	f.open() // another ring: the last segment of the one before is sealed
	f.close()
	f.change("0000000001.seg", func(raw []byte) []byte {
		clear(raw[512:2048])
		return raw
	})
	if got := len(f.read(store.ReaderOptions{IncludeControl: true, SyncedOnly: true, IsOpenFast: true})); got != want {
		t.Errorf("%d records, expected %d", got, want)
	}
}
