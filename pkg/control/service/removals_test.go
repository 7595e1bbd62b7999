package service

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/report"
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

// reportBase reports a base of stream a, and returns the name of the report.
func (i *instance) reportBase(drain string, base *api.StoreBase) uint64 {
	i.t.Helper()
	return i.reportBases(drain, &api.DrainProgress{Stream: "a", Base: base})
}

func (i *instance) reportBases(drain string, progress ...*api.DrainProgress) uint64 {
	i.t.Helper()
	state := &api.DrainState{
		Agent:    &api.Agent{Id: drain, Host: "h", StoreUuid: bytes.Repeat([]byte{1}, 16)},
		Progress: progress,
	}
	response, err := i.drain.ReportDrain(i.context(), &api.ReportDrainRequest{State: state})
	if err != nil {
		i.t.Fatal(err)
	}
	return response.Report
}

// putAll puts what many tests of a second would take: streams, their assignments to d1, events that wait.
func (i *instance) putAll(puts []clientv3.Op) {
	i.t.Helper()
	for batch := range slices.Chunk(puts, etcd.BatchMax) {
		put, err := i.etcd.Client().Txn(i.context()).Then(batch...).Commit()
		if err == nil {
			err = i.server.mirror.WaitRevision(i.context(), put.Header.Revision)
		}
		if err != nil {
			i.t.Fatal(err)
		}
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
	began := time.Now().Add(-time.Second) // JSON leaves out the monotonic clock
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
	// Of that of segment 5, which both were told at the same time, one may not have known that the other recorded it.
	if len(events) == 3 && events[2].ID == events[1].ID {
		events = events[:2]
	}
	if len(events) != 2 {
		t.Fatalf("%d events %+v, expected those of segment 3 and 5", len(events), events)
	}
	for i, segment := range []uint64{3, 5} {
		got, want := events[i], baseAt(segment)
		text, removed := strings.Join(got.Changes, ""), want.RemoveTime.AsTime().Format(time.RFC3339Nano)
		if got.Stream != "a" || got.Outcome != "OK" || got.Time.Before(began) || !strings.Contains(text, removed) ||
			!strings.Contains(text, want.Policy) || !strings.Contains(string(got.Request), "sha256") ||
			!strings.Contains(string(got.Request), removed) {
			t.Errorf("event %+v of %v", got, want)
		}
	}
}

// A rule removes segments of many streams at once: each report of their drain records some, the report itself is stored
// and its drain lives, and the drain is asked for all of its state again until none is left.
func TestRemovals_OfManyStreamsAtOnce(t *testing.T) {
	t.Parallel()
	const count = 2*removalsMax + 50
	s := new(sink)
	one := startInstanceWith(t, etcdtest.Open(t, t.TempDir()), Config{IsSole: true, Audit: s.record})
	one.create("a") // whatever waits for a first stream
	puts, progress := []clientv3.Op(nil), []*api.DrainProgress(nil)
	for n := range count {
		name := fmt.Sprintf("b%03d", n)
		stream, err := etcd.Encode(&api.Stream{Spec: &api.StreamSpec{Name: name}, StreamId: uint32(1000 + n)})
		if err != nil {
			t.Fatal(err)
		}
		assignment, err := etcd.Encode(&api.Assignment{
			Stream: name, Drain: "d1", StoreUuid: bytes.Repeat([]byte{1}, 16), Generation: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		puts = append(puts, clientv3.OpPut(etcd.KeyStreams+name, stream),
			clientv3.OpPut(etcd.KeyAssignments+name, assignment))
		progress = append(progress, &api.DrainProgress{Stream: name})
	}
	one.putAll(puts)
	for i, want := range []int{removalsMax, 2 * removalsMax, count, count} {
		for _, part := range progress {
			part.Base = baseAt(3)
		}
		name := one.reportBases("d1", progress...)
		if got := one.countUnder(etcd.KeyPastBases, 0); got != want || (name == 0) != (want < count) {
			t.Errorf("report %d: %d removals are recorded, the report's name is %d; expected %d, and a name when none "+
				"is left", i, got, name, want)
		}
		if one.view().LiveDrains["d1"] == nil || len(one.view().Drains["d1"].GetProgress()) != count {
			t.Errorf("report %d: the drain does not live, or its report is not stored", i)
		}
	}
	one.until("all are in the audit stream", func() bool { return len(s.removals()) >= count })
	ids := map[string]bool{}
	for _, event := range s.removals() {
		ids[event.ID] = true
	}
	if len(ids) != count {
		t.Errorf("%d events, expected one of each stream", len(ids))
	}
}

// A removal that cannot be recorded fails no report: the drain lives, and the next report is recorded.
func TestRemovals_ThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	s := new(sink)
	one := startInstanceWith(t, etcdtest.Open(t, t.TempDir()), Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.assign(1)
	closed, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err == nil {
		err = closed.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	good := one.server.bases
	one.server.bases = report.NewBases(closed, one.server.mirror)
	one.reportBase("d1", baseAt(3))
	if one.view().LiveDrains["d1"] == nil || one.view().Drains["d1"] == nil {
		t.Error("the drain does not live, or its report is not stored")
	}
	one.server.bases = good
	one.reportBase("d1", baseAt(3))
	one.until("it is in the audit stream", func() bool { return len(s.removals()) == 1 })
}

// What drains report takes none of the room that is kept for the calls of administrators: it waits.
func TestRemovals_LeaveRoomForAdministrators(t *testing.T) {
	t.Parallel()
	s := &sink{failure: errors.New("the audit stream is full")}
	one := startInstanceWith(t, etcdtest.Open(t, t.TempDir()), Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.assign(1)
	var puts []clientv3.Op
	for n := range auditlog.PendingMax / 2 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s0-%d", etcd.KeyAuditEvents, n), `{"outcome":"OK"}`))
	}
	one.putAll(puts)
	one.until("removals wait", func() bool { return !one.server.recorder.HasRoomForAgents(t.Context()) })
	one.reportBase("d1", baseAt(3))
	if got := one.countUnder(etcd.KeyPastBases, 0); got != 0 {
		t.Error("a removal is recorded, and half of the events that may wait do so")
	}
	one.create("b") // an administrator's call is done
	s.set(nil)
	one.until("it is recorded later", func() bool {
		one.reportBase("d1", baseAt(3))
		return len(s.removals()) > 0
	})
}

// A removal that an instance without an audit stream was told of is recorded by the next that has one.
func TestRemovals_WhileNothingIsRecorded(t *testing.T) {
	t.Parallel()
	cluster, s := etcdtest.Open(t, t.TempDir()), new(sink)
	one := startInstanceWith(t, cluster, Config{IsSole: true})
	one.create("a")
	one.assign(1)
	if one.reportBase("d1", baseAt(3)) == 0 {
		t.Error("the report has no name: the drain would tell all of its state each time")
	}
	if got := one.countUnder(etcd.KeyPastBases, 0); got != 0 {
		t.Error("a removal counts as recorded, and there is no audit stream")
	}
	one.stop()
	two := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.record})
	two.reportBase("d1", baseAt(3))
	two.until("it is in the audit stream", func() bool { return len(s.removals()) == 1 })
}
