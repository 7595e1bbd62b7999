package service

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// baseAt is what a drain reports of a store that begins at a segment.
func baseAt(segment uint64) *api.StoreBase {
	return &api.StoreBase{
		StoreUuid: bytes.Repeat([]byte{1}, 16), Segment: segment, RemovedSegments: segment - 1,
		RemovedRecords: 100 * segment, Policy: "retention of a: max-age 720h", RemovedBy: "host=h pid=1",
		RemoveTime: timestamppb.New(time.Unix(1_700_000_000+int64(segment), 0)), // any
		Sha256:     bytes.Repeat([]byte{byte(segment)}, 32),
	}
}

func (i *instance) reportBase(drain string, base *api.StoreBase) {
	i.t.Helper()
	state := &api.DrainState{
		Agent:    &api.Agent{Id: drain, Host: "h", StoreUuid: bytes.Repeat([]byte{1}, 16)},
		Progress: []*api.DrainProgress{{Stream: "a", Base: base}},
	}
	if _, err := i.drain.ReportDrain(i.context(), &api.ReportDrainRequest{State: state}); err != nil {
		i.t.Fatal(err)
	}
}

// removals are the events of removals in the audit stream.
func (s *sink) removals() (events []auditlog.Event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, one := range s.events {
		if one.What == "RemoveSegments" {
			events = append(events, one)
		}
	}
	return events
}

// Each removal that a stream's drain reports is an event of the audit stream, once, also when it is reported again, to
// another instance, or after a restart; that of another drain is none.
func TestRemovals_AreInTheAuditStreamOnce(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	s := new(sink)
	one := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.assign(1)
	one.reportBase("d1", nil)
	one.reportBase("d2", baseAt(9)) // which is not its drain
	for range 3 {
		one.reportBase("d1", baseAt(3))
	}
	one.until("the first is in the audit stream", func() bool { return len(s.removals()) > 0 })
	two := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.record})
	two.reportBase("d1", baseAt(3))
	two.reportBase("d1", baseAt(5))
	one.reportBase("d1", baseAt(5))
	if kept := one.view().Drains["d1"].Progress[0].Base; kept != nil {
		t.Errorf("the drain's report in etcd has the base %v, expected none", kept)
	}
	one.reportAnchor("d1", anchorAt(1, 3, 8192)) // behind them all
	one.until("the events are in the audit stream", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		return len(s.events) > 0 && s.events[len(s.events)-1].What == "ReportAnchor"
	})
	events := s.removals()
	if len(events) != 2 {
		t.Fatalf("%d events %+v, expected those of segment 3 and 5", len(events), events)
	}
	for i, segment := range []uint64{3, 5} {
		got, want := events[i], baseAt(segment)
		if got.Stream != "a" || got.Outcome != "OK" || !got.Time.Equal(want.RemoveTime.AsTime()) ||
			!strings.Contains(strings.Join(got.Changes, ""), want.Policy) ||
			!strings.Contains(string(got.Request), "sha256") {
			t.Errorf("event %+v of %v", got, want)
		}
	}
}
