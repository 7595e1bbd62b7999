package store_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestMark_OfAFullSegmentReachesItsEnd: records that nobody has synced yet fill a segment, and the next one is begun.
// The full one is synced then, and says by its mark where it ends, also before it has a manifest: what is zeroed below
// that is damage.
func TestMark_OfAFullSegmentReachesItsEnd(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(80, 600)
	for _, one := range f.ring.Records {
		if _, _, err := f.app.Append(storetest.Batch([]storetest.Record{one})); err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	ends := map[uint64]int64{}
	starts := map[uint64]int64{}
	for _, item := range f.read(store.ReaderOptions{IncludeControl: true}) {
		starts[item.Segment], ends[item.Segment] = item.Offset, item.Offset+int64(len(item.Raw))
	}
	if len(ends) < 3 {
		t.Fatalf("%d segments, expected full ones", len(ends))
	}
	for number, end := range ends {
		name := segmentName(number)
		f.change(name, func(data []byte) []byte {
			newest := max(binary.LittleEndian.Uint64(data[512:]), binary.LittleEndian.Uint64(data[1024:]))
			if newest != uint64(end) {
				t.Errorf("%s ends at offset %d, and its mark says %d", name, end, newest)
			}
			clear(data[starts[number]:])
			return data
		})
		err := store.WalkSegment(f.fs, streamPath+name, func(string, record.Record) error { return nil })
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("the last record of %s is zeroed: %v, expected %v", name, err, store.ErrCorrupt)
		}
	}
}
