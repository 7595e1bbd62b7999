package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
)

// sink keeps what it is given; while it fails it takes nothing.
type sink struct {
	mutex   sync.Mutex
	failure error
	acts    []Act
}

func (s *sink) take(_ context.Context, records [][]byte) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.failure != nil {
		return s.failure
	}
	for _, record := range records {
		var act Act
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

func (s *sink) all() []Act {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.acts)
}

func (s *sink) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.acts)
}

// An act with more changes than a record of the audit stream holds comes in parts, and what was done before and behind it with it.
func TestActs_MoreChangesThanARecordHolds(t *testing.T) {
	t.Parallel()
	const count = 2000
	fabric := &api.Fabric{}
	for i := range count {
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{Name: fmt.Sprintf("desk%d/%s", i, strings.Repeat("x", 40))})
	}
	etcd, recorded := openEtcd(t, t.TempDir()), &sink{}
	one := startInstanceWith(t, etcd, Config{IsSole: true, Audit: func(ctx context.Context, records [][]byte) error {
		for _, record := range records {
			if len(record) > actChangesMax*4/3 {
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
		return slices.ContainsFunc(recorded.acts, func(act Act) bool { return act.Stream == "behind" })
	})
	var parts []int
	told, id := map[string]bool{}, ""
	for _, act := range recorded.acts {
		if act.What != "ApplyFabric" {
			continue
		}
		if id = cmp.Or(id, act.ID); act.ID != id || act.Outcome != "OK" || act.Revision == 0 || act.Parts < 2 || act.Who != "insecure" {
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

// One that an earlier control plane left whole in etcd does not stand in the way of those behind it.
func TestActs_LargeOneOfBefore(t *testing.T) {
	act := Act{ID: "1", Outcome: "OK"}
	for i := range 3000 {
		act.Changes = append(act.Changes, fmt.Sprintf("new stream desk%d", i))
	}
	raw, err := json.Marshal(act)
	if err != nil {
		t.Fatal(err)
	}
	records, isReady := finished(raw, time.Now())
	var changes []string
	for _, record := range records {
		var part Act
		if err := json.Unmarshal(record, &part); err != nil || len(record) > actChangesMax*4/3 || part.ID != act.ID {
			t.Errorf("%d bytes: %v", len(record), err)
		}
		changes = append(changes, part.Changes...)
	}
	if !isReady || !slices.Equal(changes, act.Changes) {
		t.Errorf("%d records tell of %d changes, expected %d", len(records), len(changes), len(act.Changes))
	}
}

// What the sink did not take waits, in order, and is given to it when it takes again; nothing stays behind then.
func TestActs_WaitForTheirSink(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	s := &sink{failure: errors.New("no target yet")}
	one := startInstanceWith(t, etcd, Config{IsSole: true, Audit: s.take})
	for i := range 250 { // more than a batch
		one.create(fmt.Sprintf("s%03d", i))
	}
	if s.count() != 0 {
		t.Error("something was taken")
	}
	s.set(nil)
	one.until("all acts are taken", func() bool { return s.count() == 250 })
	for i, act := range s.acts {
		if act.Stream != fmt.Sprintf("s%03d", i) || act.Outcome != "OK" || act.Who != "insecure" || act.What != "CreateStream" || act.Revision == 0 {
			t.Errorf("act %d: %+v", i, act)
		}
	}
	one.until("none waits any more", func() bool {
		got, err := etcd.Client().Get(t.Context(), keyActs, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && got.Count == 0
	})
}

// An act whose control plane died in the middle of it is recorded as one whose outcome nobody wrote; one that is under way is left alone.
func TestActs_WithoutOutcome(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	r := &recorder{client: etcd.Client(), isOn: true}
	for name, began := range map[string]time.Time{"old": time.Now().Add(-2 * actPendingMax), "now": time.Now()} {
		act := r.begin(t.Context(), access.Local(), api.ControlService_CreateStream_FullMethodName, &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
		act.Time = began
		if err := r.put(t.Context(), act); err != nil {
			t.Fatal(err)
		}
	}
	s := &sink{}
	leader := &forwarder{client: etcd.Client(), logger: slog.New(slog.NewTextHandler(io.Discard, nil)), sink: s.take, waiting: new(atomic.Int64)}
	if _, err := leader.moveBatch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(s.acts) != 1 || s.acts[0].Stream != "old" || s.acts[0].Outcome != outcomeLost {
		t.Errorf("recorded %+v", s.acts)
	}
}

// When so many acts wait that nobody seems to take them, no further one is done; but who trades gets its grant.
func TestActs_TooManyWait(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	r := &recorder{client: etcd.Client(), isOn: true, waiting: actsWaitMax, counted: time.Now().Add(time.Hour)}
	isDone := false
	do := func() (any, error) { isDone = true; return nil, nil }
	_, err := r.act(t.Context(), access.Local(), api.ControlService_CreateStream_FullMethodName, &api.CreateStreamRequest{}, do)
	if reason, _ := checkRefusal(t, err); reason != reasonActs || status.Code(err) != codes.ResourceExhausted || isDone || !strings.Contains(err.Error(), "audit stream") {
		t.Errorf("done %v: %v", isDone, err)
	}
	for method, request := range map[string]any{
		api.ControlService_AcquireWriter_FullMethodName: &api.AcquireWriterRequest{},
		api.ControlService_ListStreams_FullMethodName:   &api.ListStreamsRequest{},
		api.ControlService_CreateStream_FullMethodName:  &api.CreateStreamRequest{IsDryRun: true},
	} {
		isDone = false
		if _, err := r.act(t.Context(), access.Local(), method, request, do); err != nil || !isDone {
			t.Errorf("%s: done %v, %v", method, isDone, err)
		}
	}
}

// In a control plane without any stream a backup may be restored, for which it must not have begun an audit stream on a target that has come back. So acts wait there for the first stream, and not
// longer when so many wait that no further one would be done soon, that stream's making and the restore among them.
func TestActs_WaitForTheFirstStream(t *testing.T) {
	t.Parallel()
	const most = actsWaitMax / 2
	for name, enough := range map[string]func(one *instance){
		"a stream": func(one *instance) { one.create("a") },
		"many acts": func(one *instance) {
			for first := 1; first < most; first += 100 {
				var puts []clientv3.Op
				for i := first; i < min(first+100, most); i++ {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s%d", keyActs, i), `{"outcome":"OK"}`))
				}
				if _, err := one.etcd.Client().Txn(t.Context()).Then(puts...).Commit(); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		etcd, s := openEtcd(t, t.TempDir()), &sink{}
		one := startInstanceWith(t, etcd, Config{IsSole: true})
		r := &recorder{client: etcd.Client(), isOn: true}
		if err := r.put(t.Context(), r.begin(t.Context(), access.Local(), api.ControlService_AcquireWriter_FullMethodName, &api.AcquireWriterRequest{Stream: "a"})); err != nil {
			t.Fatal(err)
		}
		if _, err := etcd.Client().Put(t.Context(), keyActs+"0", `{"outcome":"OK"}`); err != nil {
			t.Fatal(err)
		}
		leader := &forwarder{client: etcd.Client(), logger: slog.New(slog.DiscardHandler), sink: s.take, mirror: one.server.mirror, stream: auditName, waiting: new(atomic.Int64)}
		move := func() int {
			t.Helper()
			if _, err := leader.moveBatch(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			return s.count()
		}
		if count := move(); count != 0 || leader.waiting.Load() != 2 {
			t.Errorf("%s: %d acts were taken before, %d are told to wait; expected none and 2", name, count, leader.waiting.Load())
		}
		enough(one)
		one.until(name+" lets the acts be taken", func() bool { return move() > 0 })
	}
}

// What changes a stream's members is recorded with its reason, who did it, and what it changed or lost; so is a refusal. A look at what would be changed is not.
func TestActs_OfMembers(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	r, s := &recorder{client: etcd.Client(), isOn: true}, &sink{}
	replace, accept := api.ControlService_ReplaceMember_FullMethodName, api.ControlService_AcceptLoss_FullMethodName
	ring := &api.RingSpec{Member: 1, Target: "t4", Replacement: &api.Replacement{FormerTarget: "t2"}}
	for _, call := range []struct {
		method            string
		request, response any
		err               error
	}{
		{replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t2", Reason: "its host is gone"}, &api.ReplaceMemberResponse{Ring: ring}, nil},
		{accept, &api.AcceptLossRequest{Stream: "desk7/orders", Reason: "both are gone"}, &api.AcceptLossResponse{Losses: []string{"from lsn 4096 on"}}, nil},
		{replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t9", Reason: "a slip"}, nil, status.Error(codes.InvalidArgument, "no member is on t9")},
		{replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t2", Reason: "to see", IsDryRun: true}, &api.ReplaceMemberResponse{Ring: ring}, nil},
		{accept, &api.AcceptLossRequest{Stream: "desk7/orders", Reason: "to see", IsDryRun: true}, &api.AcceptLossResponse{}, nil},
	} {
		if _, err := r.act(t.Context(), access.Local(), call.method, call.request, func() (any, error) { return call.response, call.err }); !errors.Is(err, call.err) {
			t.Fatal(err)
		}
	}
	leader := &forwarder{client: etcd.Client(), logger: slog.New(slog.NewTextHandler(io.Discard, nil)), sink: s.take, waiting: new(atomic.Int64)}
	if _, err := leader.moveBatch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []struct{ what, outcome, reason, text string }{
		{"ReplaceMember", "OK", "its host is gone", "member 2 of stream desk7/orders: target t2 -> t4"},
		{"AcceptLoss", "OK", "both are gone", "from lsn 4096 on"},
		{"ReplaceMember", "INVALIDARGUMENT", "a slip", "no member is on t9"},
	}
	if len(s.acts) != len(want) {
		t.Fatalf("recorded %+v", s.acts)
	}
	for i, act := range s.acts {
		text := strings.Join(act.Changes, "; ") + act.Error
		if act.What != want[i].what || act.Outcome != want[i].outcome || act.Stream != "desk7/orders" || !strings.Contains(string(act.Request), want[i].reason) || text != want[i].text {
			t.Errorf("act %d: %+v", i, act)
		}
	}
}

// Every call that changes something is an act that is recorded: a new one that neither looks, by its name, nor is an agent's report has to be among them.
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
			is := isAct("/" + service.ServiceName + "/" + name)
			if is == looks.MatchString(name) {
				t.Errorf("%s.%s: is an act %t: expected each call to be one but Get, List, Watch, Check and Report; add it to isAct", service.ServiceName, name, is)
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

// A leader opens the audit stream anew where it was written before and nobody holds it, and no oftener than somebody can tell of that; a stream that nobody wrote yet it leaves alone.
func TestActs_StreamIsHeldAnewByALeader(t *testing.T) {
	t.Parallel()
	etcd, s := openEtcd(t, t.TempDir()), &sink{}
	var opened atomic.Int32
	began := time.Now()
	one := startInstanceWith(t, etcd, Config{IsSole: true, AuditStream: auditName, Audit: func(ctx context.Context, records [][]byte) error {
		if len(records) == 0 {
			opened.Add(1)
		}
		return s.take(ctx, records)
	}})
	spec, err := completeSpec(&api.StreamSpec{Name: auditName})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := createStream(t.Context(), one.server.config.Client, spec); err != nil {
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
	written.WriterEpoch, written.IsWriterHeld = 3, false
	one.reportTarget("t1", written)
	one.until("the stream is opened anew", func() bool { return opened.Load() > 0 })
	for range 3 {
		act()
	}
	if count, most := opened.Load(), 1+int32(time.Since(began)/actsReopen); count > most {
		t.Errorf("opened %d times within %s, expected at most %d", count, time.Since(began), most)
	}
}
