package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
)

// sink keeps what it is given; while it fails it takes nothing.
type sink struct {
	mutex   sync.Mutex
	failure error
	events  []auditlog.Event
}

func (s *sink) record(_ context.Context, records [][]byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure != nil {
		return s.failure
	}
	for _, record := range records {
		var event auditlog.Event
		if err := json.Unmarshal(record, &event); err != nil {
			return err
		}
		s.events = append(s.events, event)
	}
	return nil
}

func (s *sink) set(failure error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.failure = failure
}

func (s *sink) all() []auditlog.Event {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.events)
}

func (s *sink) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.events)
}

// An event with more changes than a record of the audit stream holds comes in parts, and what was done before and
// behind it with it.
func TestAudit_MoreChangesThanARecordHolds(t *testing.T) {
	t.Parallel()
	const count = 2000
	fabric := &api.Fabric{}
	for i := range count {
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{Name: fmt.Sprintf("desk%d/%s", i,
			strings.Repeat("x", 40))})
	}
	etcd, recorded := etcdtest.Open(t, t.TempDir()), &sink{}
	one := startInstanceWith(t, etcd, Config{IsSole: true, Audit: func(ctx context.Context, records [][]byte) error {
		for _, record := range records {
			if len(record) > auditlog.ChangesMax*4/3 {
				return fmt.Errorf("a record of %d bytes", len(record))
			}
		}
		return recorded.record(ctx, records)
	}})
	if _, err := one.control.ApplyFabric(t.Context(), &api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	one.create("behind")
	one.until("the event behind it is recorded", func() bool {
		recorded.mutex.Lock()
		defer recorded.mutex.Unlock()
		return slices.ContainsFunc(recorded.events, func(event auditlog.Event) bool { return event.Stream == "behind" })
	})
	var parts []int
	told, id := map[string]bool{}, ""
	for _, event := range recorded.events {
		if event.What != "ApplyFabric" {
			continue
		}
		if id = cmp.Or(id, event.ID); event.ID != id || event.Outcome != "OK" || event.Revision == 0 ||
			event.Parts < 2 ||
			event.Who != "insecure" {
			t.Errorf("part %d of %d, id %s, %s by %s", event.Part, event.Parts, event.ID, event.Outcome, event.Who)
		}
		parts = append(parts, event.Part)
		for _, change := range event.Changes {
			told[change] = true
		}
	}
	if slices.Sort(parts); len(parts) < 2 || parts[0] != 1 || parts[len(parts)-1] != len(parts) || len(told) != count {
		t.Errorf("parts %v tell of %d changes, expected %d", parts, len(told), count)
	}
}

// What the sink did not take waits, in order, and is given to it when it takes again; nothing stays behind then.
func TestAudit_WaitForTheirSink(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	s := &sink{failure: errors.New("no target yet")}
	one := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.record})
	for i := range 250 { // more than a batch
		one.create(fmt.Sprintf("s%03d", i))
	}
	if s.count() != 0 {
		t.Error("something was taken")
	}
	s.set(nil)
	one.until("all audit events are taken", func() bool { return s.count() == 250 })
	for i, event := range s.events {
		if event.Stream != fmt.Sprintf("s%03d", i) || event.Outcome != "OK" || event.Who != "insecure" ||
			event.What != "CreateStream" || event.Revision == 0 {
			t.Errorf("event %d: %+v", i, event)
		}
	}
	one.until("none waits any more", func() bool {
		got, err := cluster.Client().Get(t.Context(), etcd.KeyAuditEvents, clientv3.WithPrefix(),
			clientv3.WithCountOnly())
		return err == nil && got.Count == 0
	})
}

// In a control plane without any stream a backup may be restored, for which it must not have begun an audit stream on a
// target that has come back. So audit events wait there for the first stream, and not longer when so many wait that no
// further one would be done soon, that stream's making and the restore among them.
func TestAudit_WaitForTheFirstStream(t *testing.T) {
	t.Parallel()
	const most = auditlog.PendingMax / 2
	for name, enough := range map[string]func(one *instance){
		"a stream": func(one *instance) { one.create("a") },
		"many events": func(one *instance) {
			for first := 1; first < most; first += 100 {
				var puts []clientv3.Op
				for i := first; i < min(first+100, most); i++ {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%d", etcd.KeyAuditEvents, i), `{"outcome":"OK"}`))
				}
				if _, err := one.etcd.Client().Txn(t.Context()).Then(puts...).Commit(); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		cluster, s := etcdtest.Open(t, t.TempDir()), &sink{}
		one := startInstanceWith(t, cluster, Config{IsSole: true})
		r := auditlog.NewRecorder(cluster.Client(), "test", true)
		if err := r.Put(t.Context(), r.NewEvent(t.Context(), access.Local(),
			api.ControlService_AcquireWriter_FullMethodName, &api.AcquireWriterRequest{Stream: "a"})); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.Client().Put(t.Context(), etcd.KeyAuditEvents+"0", `{"outcome":"OK"}`); err != nil {
			t.Fatal(err)
		}
		leader := &auditlog.Forwarder{
			Client: cluster.Client(), Logger: slog.New(slog.DiscardHandler), Sink: s.record,
			Mirror: one.server.mirror, Stream: auditName, Pending: new(atomic.Int64),
		}
		move := func() int {
			t.Helper()
			if _, err := leader.ForwardBatch(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			return s.count()
		}
		if count := move(); count != 0 || leader.Pending.Load() != 2 {
			t.Errorf("%s: %d audit events were taken before, %d are told to wait; expected none and 2", name, count,
				leader.Pending.Load())
		}
		enough(one)
		one.until(name+" lets the audit events be taken", func() bool { return move() > 0 })
	}
}

// Every call that changes something is an audit event that is recorded: a new one that neither looks, by its name, nor
// is an agent's report has to be among them.
func TestAudit_AreAllCallsThatChange(t *testing.T) {
	looks := regexp.MustCompile(`^(Get|List|Watch|Check|Report)[A-Z]`)
	events := 0
	for _, service := range overHTTP {
		names := []string{}
		for _, one := range service.Methods {
			names = append(names, one.MethodName)
		}
		for _, one := range service.Streams {
			names = append(names, one.StreamName)
		}
		for _, name := range names {
			is := auditlog.IsRecorded("/" + service.ServiceName + "/" + name)
			if is == looks.MatchString(name) {
				t.Errorf(
					"%s.%s: is an audit event %t: expected each call to be one but Get, List, Watch, Check and "+
						"Report; add it to IsRecorded",
					service.ServiceName,
					name,
					is,
				)
			}
			if is {
				events++
			}
		}
	}
	if events < 23 {
		t.Errorf("%d calls are events", events)
	}
}

// A leader opens the audit stream again where it was written before and nobody holds it, and no oftener than somebody
// can tell of that; a stream that nobody wrote yet it leaves alone.
func TestAudit_StreamIsHeldAnewByALeader(t *testing.T) {
	t.Parallel()
	etcd, s := etcdtest.Open(t, t.TempDir()), &sink{}
	var opened atomic.Int32
	began := time.Now()
	one := startInstanceWith(t, etcd, Config{
		IsSole: true, AuditStream: auditName,
		Audit: func(ctx context.Context, records [][]byte) error {
			if len(records) == 0 {
				opened.Add(1)
			}
			return s.record(ctx, records)
		},
	})
	spec, err := fabric.CompleteStream(&api.StreamSpec{Name: auditName})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := fabric.CreateStream(t.Context(), one.server.config.Client, spec); err != nil {
		t.Fatal(err)
	}
	one.reportTarget("t1")
	one.reportDrain("d1")
	one.until("the audit stream is placed", func() bool { return len(one.status(auditName).RingSpecs) == 1 })
	unwritten := ring(auditName, "t1")
	one.reportTarget("t1", unwritten)
	one.until("its ring is bound", func() bool { return len(one.status(auditName).RingSpecs[0].RingUuid) > 0 })
	events := 0
	event := func() {
		t.Helper()
		events++
		one.create(fmt.Sprintf("stream%d", events))
		one.until("the event is recorded", func() bool { return s.count() == events })
	}
	event()
	event()
	if count := opened.Load(); count != 0 {
		t.Errorf("a stream that nobody has written was opened %d times", count)
	}
	written := proto.Clone(unwritten).(*api.RingState)
	written.WriterEpoch, written.WriterHeld = 3, false
	one.reportTarget("t1", written)
	one.until("the stream is opened again", func() bool { return opened.Load() > 0 })
	for range 3 {
		event()
	}
	if count, most := opened.Load(), 1+int32(time.Since(began)/auditlog.ReopenDelay); count > most {
		t.Errorf("opened %d times within %s, expected at most %d", count, time.Since(began), most)
	}
}
