package merge_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const (
	second = uint64(time.Second)
	begin  = 1763700000 * second

	orderDir     = "/store/merged/order"
	firstSegment = orderDir + "/0000000001.seg"
	entryBytes   = 128 // of an entry of a stream with a short name
)

// world is a store with streams, its merge, and a clock, in a file system that can be cut off.
type world struct {
	fs     *storetest.CrashFS
	store  *store.Store
	feeds  []*feed
	merger *merge.Merger
	now    time.Time
	// seen is what readers have been given of the order so far: it may only grow.
	seen []merge.Entry
}

// feed is one stream: a writer, its ring and its drain.
type feed struct {
	name   string
	source store.Source
	app    *store.Appender
	cursor record.Cursor
	ring   []storetest.Record // all that the ring has had, of which some may have been undone
}

func newWorld(seed uint64, streams int) (*world, error) {
	w := &world{fs: storetest.NewCrashFS(seed), now: time.Unix(0, int64(begin))}
	for i := range streams {
		w.feeds = append(w.feeds, &feed{name: fmt.Sprintf("desk%d/orders", i), source: store.Source{
			StreamName: fmt.Sprintf("desk%d/orders", i), StreamID: uint32(i + 1), RingUUID: record.UUID{byte(i + 1)},
			Salt: seed | 1, Align: 64, RecordLenMax: 4096,
		}})
	}
	return w, w.openStore()
}

func (w *world) openStore() (err error) {
	w.store, err = store.Open("/store", store.Options{
		Create: true, FS: w.fs, SegmentBytes: store.SegmentBytesMin,
		IsSynchronous: true, Now: func() time.Time { return w.now },
	})
	return err
}

func (w *world) openMerge() (err error) {
	w.merger, err = merge.Open(w.store, merge.Options{
		LateLimit: time.Second, AheadLimit: time.Minute,
		SegmentBytes: store.SegmentBytesMin, Now: func() time.Time { return w.now },
	})
	return err
}

// open opens a feed's stream; what the store lost is still in the ring.
func (f *feed) open(s *store.Store) (err error) {
	if f.app == nil {
		f.app, err = s.OpenStream(f.source)
	}
	return err
}

// put appends one record to the ring.
func (f *feed) put(ts uint64, flags record.Flags, payload string) {
	h := record.Header{
		Flags: flags, Epoch: f.cursor.Epoch, LSN: f.cursor.LSN, Seq: f.cursor.Seq,
		StreamID: f.source.StreamID, TimestampNS: ts, Class: 1,
	}
	body := []byte(payload)
	if flags&record.FlagEpoch != 0 {
		h.Epoch++
		body = record.EpochPayload{PrevEpoch: f.cursor.Epoch, StartLSN: h.LSN, RingUUID: f.source.RingUUID}.Encode()
	}
	raw, err := record.AppendTo(nil, h, nil, body, record.Identity{
		Salt: f.source.Salt, Align: f.source.Align,
		RecordLenMax: f.source.RecordLenMax,
	})
	if err != nil {
		panic(err)
	}
	h, _ = record.ParseHeader(raw)
	f.ring = append(f.ring, storetest.Record{Header: h, Raw: raw})
	f.cursor.Advance(h, f.source.Align)
}

// rewind undoes the last records of the ring, as a power cut of the region does with what was not acknowledged, and
// opens the next epoch there.
func (f *feed) rewind(count int, ts uint64) {
	if at := f.ring[len(f.ring)-min(count, len(f.ring)-1):]; len(at) > 0 {
		f.cursor.LSN, f.cursor.Seq = at[0].LSN, at[0].Seq
		f.ring = f.ring[:len(f.ring)-len(at)]
	}
	f.put(ts, record.FlagEpoch, "")
}

// drain brings what the store does not have yet.
func (f *feed) drain(s *store.Store, isSynced bool) error {
	if err := f.open(s); err != nil {
		return err
	}
	last := f.app.Last()
	for _, rec := range f.ring {
		if last.OK && !(rec.Epoch > last.Epoch || rec.Epoch == last.Epoch && rec.LSN > last.LSN) {
			continue
		}
		if _, _, err := f.app.Append(rec.Raw); err != nil {
			return err
		}
	}
	if isSynced {
		return f.app.Sync()
	}
	return nil
}

// settle steps until nothing moves, without waiting.
func (w *world) settle() error {
	for range 3 { // the second look at streams that had become silent, and the flush
		for {
			isMoved, err := w.merger.Step()
			if err != nil {
				return err
			}
			if !isMoved {
				break
			}
		}
	}
	return nil
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// entries reads the whole order, and each record of it.
func (w *world) entries() ([]merge.Entry, error) {
	r, err := merge.OpenReader(w.store)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []merge.Entry
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if item.Index != uint64(len(all)) || item.Record.TimestampNS != item.TimestampNS ||
			item.Record.Seq != item.Seq {
			return nil, fmt.Errorf("entry %d is %+v, its record %+v", len(all), item.Entry, item.Record.Header)
		}
		all = append(all, item.Entry)
	}
}

// look checks that what was given before is still there, unchanged, and that the order is one.
func (w *world) look() error {
	all, err := w.entries()
	if err != nil {
		return err
	}
	if len(all) < len(w.seen) {
		return fmt.Errorf("%d entries, %d had been given", len(all), len(w.seen))
	}
	places := map[string]store.Place{}
	for i, e := range all {
		if i < len(w.seen) && plain(e) != plain(w.seen[i]) {
			return fmt.Errorf("entry %d is %v, %v had been given", i, plain(e), plain(w.seen[i]))
		}
		if i > 0 && (e.OrderNS < all[i-1].OrderNS || e.OrderNS == all[i-1].OrderNS && e.Stream < all[i-1].Stream) {
			return fmt.Errorf("entry %d goes back", i)
		}
		if e.Flags == 0 && e.OrderNS != e.TimestampNS {
			return fmt.Errorf("entry %d has another time than its record, and does not say why", i)
		}
		if !places[e.Stream].IsBefore(e.Place) {
			return fmt.Errorf("entry %d: stream %s goes back to %s", i, e.Stream, e.Place)
		}
		places[e.Stream] = e.Place
	}
	w.seen = all
	return nil
}

// plain is an entry without what only its file knows.
func plain(e merge.Entry) string {
	return fmt.Sprint(e.Stream, e.Place, e.OrderNS, e.TimestampNS, e.Flags, e.RecordFlags, e.RecordCRC)
}

// orderBytes gives the bytes of the order: all segments without their marks, but those that have not begun, and what
// belongs to them.
func (w *world) orderBytes() ([]byte, error) {
	names, err := w.fs.ReadDir(orderDir)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, name := range names {
		if name == "lock" || strings.HasSuffix(name, ".tail") {
			continue
		}
		raw, err := w.fs.Bytes(path.Join(orderDir, name))
		if err != nil {
			return nil, err
		}
		raw = bytes.Clone(raw)
		if strings.HasSuffix(name, ".seg") {
			clear(raw[512:4096])
		}
		if len(bytes.Trim(raw, "\x00")) == 0 {
			continue
		}
		all = append(append(all, name...), raw...)
	}
	return all, nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkWhole compares the order with all that the streams hold: every record once, heartbeats and PADs apart.
func (w *world) checkWhole() error {
	want := map[string]int{}
	total := 0
	for _, f := range w.feeds {
		r, err := w.store.OpenReader(f.name, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for {
			item, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if item.Flags&(record.FlagPad|record.FlagHeartbeat) == 0 {
				want[fmt.Sprint(f.name, item.Place(), item.CRC)]++
				total++
			}
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	for _, e := range w.seen {
		want[fmt.Sprint(e.Stream, e.Place, e.RecordCRC)]--
	}
	for which, left := range want {
		if left != 0 {
			return fmt.Errorf("record %s is in the order %d times too few", which, left)
		}
	}
	if len(w.seen) != total {
		return fmt.Errorf("%d entries for %d records", len(w.seen), total)
	}
	return nil
}
