package store_test

import (
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// A stream goes on with another ring after a crash that took the mark of its last segment. The mark that recovery
// writes there is checked by the salt of that segment's ring: a reader of what is synced finds all records.
func TestMark_IsOfTheRingOfItsSegment(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(10, 600)
	f.feed()
	f.fs.Kill()
	f.change(segmentName(1), func(data []byte) []byte {
		clear(data[512:4096]) // both marks
		return data
	})
	f.ring = storetest.NewRing(testStream, 2)
	f.open()
	synced := readEverything
	synced.SyncedOnly = true
	if items := f.read(synced); len(items) != len(f.given) {
		t.Errorf("%d records are synced, expected %d", len(items), len(f.given))
	}
	if err := f.readToEnd(store.ReaderOptions{SyncedOnly: true}); err != nil {
		t.Error(err)
	}
}
