package target

import (
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// The rate of a writer on another host is that of the records that come to lie in the ring; what was the writer's own
// count before is not compared with it.
func TestMeasure_WriterOnAnotherHost(t *testing.T) {
	began := time.Unix(1000, 0)
	first := measure(&api.RingState{HeadSeq: 100, LagRecords: 20}, nil, rates{}, began)
	second := measure(&api.RingState{HeadSeq: 130, LagRecords: 50}, nil, first, began.Add(2*time.Second))
	if first.record != 0 || second.record != 30 {
		t.Errorf("rates %v and %v, expected 0 and 30 records/s", first.record, second.record)
	}
	counted := rates{since: began, records: 7, isCounted: true}
	if now := measure(&api.RingState{HeadSeq: 1 << 40}, nil, counted, began.Add(time.Second)); now.record != 0 {
		t.Errorf("another kind of count: %v records/s", now.record)
	}
}
