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
	acts    []auditlog.Event
}

func (s *sink) take(_ context.Context, records [][]byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure != nil {
		return s.failure
	}
	for _, record := range records {
		var act auditlog.Event
		if err := json.Unmarshal(record, &act); err != nil {
			return err
		}
		s.acts = append(s.acts, act)
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
	return slices.Clone(s.acts)
}

func (s *sink) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.acts)
}

// An act with more changes than a record of the audit stream holds comes in parts, and what was done before and behind
// it with it.
func TestActs_MoreChangesThanARecordHolds(t *testing.T) {
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
		return recorded.take(ctx, records)
	}})
	if _, err := one.control.ApplyFabric(t.Context(), &api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	one.create("behind")
	one.until("the act behind it is recorded", func() bool {
		recorded.mutex.Lock()
		defer recorded.mutex.Unlock()
		return slices.ContainsFunc(recorded.acts, func(act auditlog.Event) bool { return act.Stream == "behind" })
	})
	var parts []int
	told, id := map[string]bool{}, ""
	for _, act := range recorded.acts {
		if act.What != "ApplyFabric" {
			continue
		}
		if id = cmp.Or(id, act.ID); act.ID != id || act.Outcome != "OK" || act.Revision == 0 || act.Parts < 2 ||
			act.Who != "insecure" {
			t.Errorf("part %d of %d, id %s, %s by %s", act.Part, act.Parts, act.ID, act.Outcome, act.Who)
		}
		parts = append(parts, act.Part)
		for _, change := range act.Changes {
			told[change] = true
		}
	}
	if slices.Sort(parts); len(parts) < 2 || parts[0] != 1 || parts[len(parts)-1] != len(parts) || len(told) != count {
		t.Errorf("parts %v tell of %d changes, expected %d", parts, len(told), count)
	}
}

// What the sink did not take waits, in order, and is given to it when it takes again; nothing stays behind then.
func TestActs_WaitForTheirSink(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	s := &sink{failure: errors.New("no target yet")}
	one := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.take})
	for i := range 250 { // more than a batch
		one.create(fmt.Sprintf("s%03d", i))
	}
	if s.count() != 0 {
		t.Error("something was taken")
	}
	s.set(nil)
	one.until("all acts are taken", func() bool { return s.count() == 250 })
	for i, act := range s.acts {
		if act.Stream != fmt.Sprintf("s%03d", i) || act.Outcome != "OK" || act.Who != "insecure" ||
			act.What != "CreateStream" || act.Revision == 0 {
			t.Errorf("act %d: %+v", i, act)
		}
	}
	one.until("none waits any more", func() bool {
		got, err := cluster.Client().Get(t.Context(), etcd.KeyAuditEvents, clientv3.WithPrefix(),
			clientv3.WithCountOnly())
		return err == nil && got.Count == 0
	})
}

// In a control plane without any stream a backup may be restored, for which it must not have begun an audit stream on a
// target that has come back. So acts wait there for the first stream, and not longer when so many wait that no further
// one would be done soon, that stream's making and the restore among them.
func TestActs_WaitForTheFirstStream(t *testing.T) {
	t.Parallel()
	const most = auditlog.PendingMax / 2
	for name, enough := range map[string]func(one *instance){
		"a stream": func(one *instance) { one.create("a") },
		"many acts": func(one *instance) {
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
			Client: cluster.Client(), Logger: slog.New(slog.DiscardHandler), Sink: s.take,
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
			t.Errorf("%s: %d acts were taken before, %d are told to wait; expected none and 2", name, count,
				leader.Pending.Load())
		}
		enough(one)
		one.until(name+" lets the acts be taken", func() bool { return move() > 0 })
	}
}

// Every call that changes something is an act that is recorded: a new one that neither looks, by its name, nor is an
// agent's report has to be among them.
func TestActs_AreAllCallsThatChange(t *testing.T) {
	looks := regexp.MustCompile(`^(Get|List|Watch|Check|Report)[A-Z]`)
	acts := 0
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
				t.Errorf("%s.%s: is an act %t: expected each call to be one but Get, List, Watch, Check and Report; "+
					"add it to isAct", service.ServiceName, name, is)
			}
			if is {
				acts++
			}
		}
	}
	if acts < 23 {
		t.Errorf("%d calls are acts", acts)
	}
}

// A leader opens the audit stream again where it was written before and nobody holds it, and no oftener than somebody
// can tell of that; a stream that nobody wrote yet it leaves alone.
func TestActs_StreamIsHeldAnewByALeader(t *testing.T) {
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
			return s.take(ctx, records)
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
	acts := 0
	act := func() {
		t.Helper()
		acts++
		one.create(fmt.Sprintf("stream%d", acts))
		one.until("the act is recorded", func() bool { return s.count() == acts })
	}
	act()
	act()
	if count := opened.Load(); count != 0 {
		t.Errorf("a stream that nobody has written was opened %d times", count)
	}
	written := proto.Clone(unwritten).(*api.RingState)
	written.WriterEpoch, written.WriterHeld = 3, false
	one.reportTarget("t1", written)
	one.until("the stream is opened anew", func() bool { return opened.Load() > 0 })
	for range 3 {
		act()
	}
	if count, most := opened.Load(), 1+int32(time.Since(began)/auditlog.ReopenDelay); count > most {
		t.Errorf("opened %d times within %s, expected at most %d", count, time.Since(began), most)
	}
}
