package store_test

import (
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store/storetest"
)

// The first segment of another ring, with a damaged header, is told from the ring before by its records; and the last
// one keeps its mark, so that damage below it is none of a torn end.
func TestSalvage_HeaderOfAnotherRing(t *testing.T) {
	f := newFixture(t)
	f.fill(70)
	first := len(f.given)
	f.ring = storetest.NewRing(testStream, 2)
	f.open()
	f.ring.Append(70, 600)
	f.feed()
	f.close()
	items := all(t, f.store)
	of := items[first]
	if of.Generation != 2 {
		t.Fatalf("record %d is of generation %d", first, of.Generation)
	}
	f.change(segmentName(of.Segment), func(data []byte) []byte { data[60] ^= 1; return data })
	last := items[len(items)-3]
	f.change(segmentName(last.Segment), func(data []byte) []byte {
		data[60] ^= 1
		data[last.Offset+70] ^= 1
		return data
	})
	whole, report := f.salvage(salvageHow)
	if got := all(t, whole); len(got) < len(items) || len(report.Gaps) != 1 || report.Gaps[0].Records != 1 {
		t.Errorf("%d records of %d: %+v", len(got), len(items), report)
	}
	f.removeAll("/whole")
	f.change(segmentName(last.Segment), func(data []byte) []byte { clear(data[512:1536]); return data })
	if _, report = f.salvage(salvageHow); !strings.Contains(report.Failure, "how far it was synced is not known") {
		t.Errorf("without a mark: %+v", report)
	}
}
