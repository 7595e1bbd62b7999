package query_test

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/query"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// damaged is a stream in which GAP records stand for records that had a time once.
type damaged struct {
	*testing.T
	rng    *rand.Rand
	ring   *storetest.Ring
	now    time.Time
	before time.Time // of the last record that is there
	lost   []time.Time
	spans  []store.Window // from the record before what is lost until behind the next one
	stores []*store.Store
}

// newDamaged makes a store with runs of GAP records everywhere: with the time of the record before, as a salvage does,
// or of much later, as a drain does.
func newDamaged(t *testing.T, segmentBytes int64, count, lenMax int) *damaged {
	t.Helper()
	d := &damaged{
		T: t, rng: rand.New(rand.NewPCG(4, uint64(segmentBytes))), ring: storetest.NewRing("a", 4),
		now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC),
	}
	for range count {
		d.put(lenMax)
		if d.rng.IntN(5) == 0 {
			d.lose(1+d.rng.IntN(3), lenMax, d.rng.IntN(2) == 0)
		}
		if d.rng.IntN(100) == 0 {
			d.lose(60, lenMax, d.rng.IntN(2) == 0)
		}
	}
	d.put(lenMax)
	d.store(segmentBytes)
	return d
}

// store puts all of the ring into a store.
func (d *damaged) store(segmentBytes int64) {
	d.Helper()
	dir := filepath.Join(d.TempDir(), "store")
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: segmentBytes})
	if err != nil {
		d.Fatal(err)
	}
	appender, err := opened.OpenStream(d.ring.Source)
	if err != nil {
		d.Fatal(err)
	}
	for _, rec := range d.ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			d.Fatal(err)
		}
	}
	if err := appender.Close(); err != nil {
		d.Fatal(err)
	}
	d.stores = []*store.Store{opened}
}

func (d *damaged) put(lenMax int) {
	d.now = d.now.Add(time.Second)
	d.ring.SetClock(d.now)
	d.ring.AppendPayload(make([]byte, d.rng.IntN(lenMax)))
	d.before = time.Unix(0, int64(d.ring.Records[len(d.ring.Records)-1].TimestampNS))
	if n := len(d.spans); n > 0 && d.spans[n-1].To == 0 {
		d.spans[n-1].To = uint64(d.before.UnixNano()) + 1
	}
}

func (d *damaged) lose(count, lenMax int, isSalvage bool) {
	if n := len(d.spans); n == 0 || d.spans[n-1].To != 0 {
		d.spans = append(d.spans, store.Window{From: uint64(d.before.UnixNano())})
	}
	for range count {
		d.now = d.now.Add(time.Second)
		d.lost = append(d.lost, d.now)
		at := d.before
		if !isSalvage {
			at = d.now.Add(30 * time.Second)
		}
		d.ring.SetClock(at.Add(-time.Microsecond))
		d.ring.AppendGapPayload(record.RefusedGap("damaged", record.GapPayloadLen+d.rng.IntN(lenMax)))
	}
}

// found are the GAP records that a query of a window names.
func (d *damaged) found(w store.Window) (count int, q *query.Query) {
	d.Helper()
	_, q = answer(d.T, d.stores, query.Request{Window: w})
	for _, gaps := range q.Gaps() {
		count += gaps.Count
	}
	return count, q
}

// What is missing of a time is named, though the GAP record in its place is of another time, in another entry of the
// index or another segment; and none is named that cannot be of the time.
func TestGaps_OfWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		segmentBytes  int64
		count, lenMax int
	}{{store.SegmentBytesMin, 200, 200}, {256 << 10, 300, 3000}} {
		d := newDamaged(t, c.segmentBytes, c.count, c.lenMax)
		_, q := d.found(store.Window{})
		all, segments := q.Extent()
		if segments < 3 {
			t.Fatalf("%d segments, expected some", segments)
		}
		for i, at := range d.lost {
			if testing.Short() && i%5 != 0 {
				continue
			}
			w := store.Window{From: uint64(at.UnixNano()), To: uint64(at.UnixNano()) + 1}
			count, q := d.found(w)
			if count == 0 {
				t.Fatalf("a record of %s is missing, and no GAP record is named", at)
			}
			if read, _ := q.Extent(); read.Bytes == all.Bytes {
				t.Errorf("%s: %d of %d bytes have to be read", at, read.Bytes, all.Bytes)
			}
		}
		for i := 1; i < len(d.spans); i++ {
			w := store.Window{From: d.spans[i-1].To, To: d.spans[i].From}
			if w.From >= w.To || testing.Short() && i%5 != 0 {
				continue
			}
			if count, _ := d.found(w); count != 0 {
				t.Fatalf("nothing is missing from %d to %d, and %d GAP records are named", w.From, w.To, count)
			}
		}
	}
}

// A GAP record of a route says of when the records were that are missing.
func TestGaps_OfARoute(t *testing.T) {
	d := &damaged{
		T: t, rng: rand.New(rand.NewPCG(1, 1)), ring: storetest.NewRing("a", 4),
		now: time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC),
	}
	d.put(10)
	payload := make([]byte, record.GapPayloadLen)
	from, to := d.now.Add(2*time.Minute), d.now.Add(4*time.Minute)
	for i, value := range []uint64{1, 3, 2, 4, uint64(from.UnixNano()), uint64(to.UnixNano()), 3} {
		binary.LittleEndian.PutUint64(payload[8*i:], value)
	}
	d.now = d.now.Add(10 * time.Minute)
	d.ring.SetClock(d.now)
	d.ring.AppendGapPayload(payload)
	d.put(10)
	d.store(store.SegmentBytesMin)
	for minute, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 5: 0, 9: 0, 10: 0} {
		at := from.Add(time.Duration(minute-2) * time.Minute)
		w := store.Window{From: uint64(at.UnixNano()), To: uint64(at.Add(time.Minute).UnixNano())}
		if count, _ := d.found(w); count != want {
			t.Errorf("minute %d: %d GAP records are named, expected %d", minute, count, want)
		}
	}
}
