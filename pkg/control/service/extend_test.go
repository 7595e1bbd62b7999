package service

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// A ring takes the place of another while the stream's writer runs. Who has its newest grant is told of the new one,
// with a token of the same epoch that the ring's target is told as well, and it is recorded; whoever asks with another
// epoch, from another process or host, gets nothing; and with nothing to tell nothing is done.
func TestExtendWriter_RingReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := &sink{}
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstanceWith(t, etcd, Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t1", remoteRing("a", "t1"))
	answered := one.acquireFar("ofi")
	one.untilAdmission(1)
	one.confirm(1, 1)
	former := one.granted(answered).Members[0]
	request := &api.ExtendWriterRequest{
		Stream: "a", Epoch: 1, Holder: &api.Holder{Host: "beta"}, Transport: "ofi",
		RingUuids: [][]byte{former.RingUuid},
	}
	if response, err := one.control.ExtendWriter(one.context(), request); err != nil || len(response.Members) != 0 {
		t.Errorf("before anything has changed: %v, %v", response, err)
	}
	one.checkWriter(request, false)
	replaceRing(t, one, etcd)
	one.checkWriter(request, false)
	if response, err := one.control.ExtendWriter(one.context(), request); err != nil || len(response.Members) != 0 {
		t.Errorf("before the new ring is there: %v, %v", response, err)
	}
	fresh := remoteRing("a", "t1")
	fresh.RingUuid = bytes.Repeat([]byte{7}, grant.RingUUIDLen)
	one.reportTarget("t1", fresh)
	one.until("the new ring is bound", func() bool {
		return bytes.Equal(one.status("a").RingSpecs[0].RingUuid,
			fresh.RingUuid)
	})
	one.checkOthersRefused(request)
	one.checkWriter(request, true)
	response, err := one.control.ExtendWriter(one.context(), request)
	if err != nil || len(response.Members) != 1 {
		t.Fatalf("told %v, %v", response, err)
	}
	ring := response.Members[0].Ring
	admission := one.untilAdmission(1)
	if len(admission.Grants) != 1 || admission.Grants[0].Epoch != 1 ||
		!bytes.Equal(admission.Grants[0].Token, ring.Token) || len(ring.Token) != grant.TokenLen ||
		bytes.Equal(ring.Token, former.Token) {
		t.Errorf("the writer is told %v, the target %v", ring, admission)
	}
	if !bytes.Equal(ring.RingUuid, fresh.RingUuid) || ring.Uri != "ofi:tcp://alpha:7471/a" {
		t.Errorf("told of %v", ring)
	}
	now, _ := one.server.mirror.Load()
	if kept := now.Grants["a"].GetMembers(); len(kept) != 1 || !bytes.Equal(kept[0].RingUuid, ring.RingUuid) ||
		len(kept[0].Token) != 0 {
		t.Errorf("kept of the grant: %v; expected the new ring, and no token", kept)
	}
	request.RingUuids = [][]byte{ring.RingUuid}
	if response, err := one.control.ExtendWriter(one.context(), request); err != nil || len(response.Members) != 0 {
		t.Errorf("told again: %v, %v", response, err)
	}
	one.until("it is recorded once", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		events := slices.DeleteFunc(slices.Clone(s.events),
			func(event auditlog.Event) bool { return event.What != "ExtendWriter" })
		return len(events) == 1 && events[0].Outcome == "OK" && len(events[0].Changes) == 1 &&
			!bytes.Contains(events[0].Request, ring.Token)
	})
}

// A writer that says that it has ended is told nothing, not even of another ring, and its grant says so; not the next
// one's.
func TestExtendWriter_OneThatHasEnded(t *testing.T) {
	t.Parallel()
	one := startFar(t)
	answered := one.acquireFar("ofi")
	one.untilAdmission(1)
	one.confirm(1, 1)
	one.granted(answered)
	request := &api.ExtendWriterRequest{
		Stream: "a", Epoch: 1, Holder: &api.Holder{Host: "beta"}, Transport: "ofi",
		Closed: true,
	}
	if grant := one.status("a").LastGrant; grant.CloseTime != nil {
		t.Errorf("before it has ended: %v", grant)
	}
	other := proto.Clone(request).(*api.ExtendWriterRequest)
	other.Epoch = 2
	if response, err := one.control.ExtendWriter(one.context(), other); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of an epoch that was not granted: %v, %v", response, err)
	}
	if response, err := one.control.ExtendWriter(one.context(), request); err != nil || len(response.Members) != 0 {
		t.Fatalf("told %v, %v", response, err)
	}
	one.until("its end is known", func() bool { return one.status("a").LastGrant.CloseTime != nil })
	answered = one.acquireFar("ofi")
	one.untilAdmission(2)
	one.confirm(2, 2)
	one.granted(answered)
	if grant := one.status("a").LastGrant; grant.Epoch != 2 || grant.CloseTime != nil {
		t.Errorf("the next writer's: %v", grant)
	}
	if response, err := one.control.ExtendWriter(one.context(), request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of the epoch before: %v, %v", response, err)
	}
}

// checkWriter asks for a writer by CheckWriters, which says what ExtendWriter would do.
func (i *instance) checkWriter(request *api.ExtendWriterRequest, isChanged bool) {
	i.t.Helper()
	writer := &api.RunningWriter{
		Stream: request.Stream, Epoch: request.Epoch, Pid: request.Holder.Pid,
		RingUuids: request.RingUuids, Declared: settingsOf(i.status(request.Stream).Stream.Spec),
	}
	for what, wrong := range map[string]func(*api.RunningWriter, *api.CheckWritersRequest){
		"another epoch":   func(w *api.RunningWriter, _ *api.CheckWritersRequest) { w.Epoch = 2 },
		"another process": func(w *api.RunningWriter, _ *api.CheckWritersRequest) { w.Pid = 9 },
		"another host":    func(_ *api.RunningWriter, r *api.CheckWritersRequest) { r.Host = "gamma" },
		"no stream":       func(w *api.RunningWriter, _ *api.CheckWritersRequest) { w.Stream = "b" },
		"other terms": func(w *api.RunningWriter,
			_ *api.CheckWritersRequest,
		) {
			w.Declared.Policy = api.Policy_POLICY_REJECT
		},
		"another level": func(w *api.RunningWriter, _ *api.CheckWritersRequest) {
			w.Running = &api.WriterSettings{Level: api.Level_LEVEL_VISIBLE}
		},
		"never told": func(w *api.RunningWriter, _ *api.CheckWritersRequest) { w.Declared = nil },
		"":           func(*api.RunningWriter, *api.CheckWritersRequest) {},
	} {
		asked := proto.Clone(&api.CheckWritersRequest{
			Host:    request.Holder.Host,
			Writers: []*api.RunningWriter{writer, writer},
		}).(*api.CheckWritersRequest)
		wrong(asked.Writers[1], asked)
		response, err := i.control.CheckWriters(i.context(), asked)
		if err != nil || slices.Contains(response.Changed, 1) != (isChanged || what != "") ||
			slices.Contains(response.Changed, 0) != (isChanged || what == "another host") {
			i.t.Errorf("writers to be told, the second with %q: %v, %v", what, response, err)
		}
	}
}

// replaceRing puts a new ring in the place of the only one: there need not be several for this.
func replaceRing(t *testing.T, one *instance, etcd *etcd.Cluster) {
	t.Helper()
	m := state.NewMirror(etcd.Client(), slog.New(slog.DiscardHandler))
	go m.Run(one.context())
	now, err := m.Wait(one.context(), func(v *state.View) bool {
		return v.Epochs["a"] == 1 &&
			len(v.Rings["a"].GetRingUuid()) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	replaced := proto.Clone(now.Rings["a"]).(*api.RingSpec)
	replaced.Replacement = &api.Replacement{
		StartTime: timestamppb.Now(), FormerTarget: replaced.Target,
		FormerUuids: [][]byte{replaced.RingUuid}, By: "test", Reason: "test",
	}
	replaced.RingUuid = nil
	if _, err := setRings(one.context(), etcd.Client(), now, "a", map[int]*api.RingSpec{0: replaced}); err != nil {
		t.Fatal(err)
	}
}

// Between the look by which a writer is let in at another ring and the step that does it, a ring may be replaced once
// more, the stream granted to another writer, deleted, or changed: the step then fails, whichever it was, and nobody is
// told of anything.
func TestExtendWriter_ChangedSinceTheLook(t *testing.T) {
	t.Parallel()
	one := startFar(t)
	answered := one.acquireFar("ofi")
	one.untilAdmission(1)
	one.confirm(1, 1)
	one.granted(answered)
	request := &api.ExtendWriterRequest{Stream: "a", Epoch: 1, Holder: &api.Holder{Host: "beta"}, Transport: "ofi"}
	if response, err := one.control.ExtendWriter(one.context(), request); err != nil || len(response.Members) != 0 {
		t.Errorf("of a ring that is in no other's place, to a writer that does not name its own: %v, %v", response, err)
	}
	replaceRing(t, one, one.etcd)
	fresh := remoteRing("a", "t1")
	fresh.RingUuid = bytes.Repeat([]byte{7}, grant.RingUUIDLen)
	one.reportTarget("t1", fresh)
	one.until("the new ring is bound", func() bool {
		return bytes.Equal(one.status("a").RingSpecs[0].RingUuid,
			fresh.RingUuid)
	})
	for _, key := range []string{
		etcd.KeyRings + reconcile.MemberKey("a", 0), etcd.KeyEpochs + "a",
		etcd.KeyStreams + "a", etcd.KeyDeletions + "a",
	} {
		now, _ := one.server.mirror.Load()
		changed := ringsChangedFor(now, request)
		if len(changed) != 1 {
			t.Fatalf("the rings %v are others, expected one", changed)
		}
		found, err := one.etcd.Client().Get(one.context(), key)
		if err != nil {
			t.Fatal(err)
		}
		value := "" // of a deletion: there is none, and a later one is enough
		if len(found.Kvs) == 1 {
			value = string(found.Kvs[0].Value)
		}
		if _, err := one.etcd.Client().Put(one.context(), key, value); err != nil {
			t.Fatal(err)
		}
		if response, err := one.server.extend(one.context(), now, request, changed); !errors.Is(err,
			grant.ErrRingsChanged) {
			t.Errorf("%s was written since: %v, %v", key, response, err)
		}
		if admission := one.untilAdmission(1); len(admission.Grants) != 0 {
			t.Errorf("%s was written since, and the target is told %v", key, admission)
		}
		one.until("the control plane has seen it", func() bool {
			now,
				_ := one.server.mirror.Load()
			return now.Revision > found.Header.Revision
		})
	}
}

// Who is told of another ring is who has the newest grant, by everything that names it; and a grant that is being given
// counts from its epoch on.
func TestIsGrantOf_OneOfItIsAnother(t *testing.T) {
	t.Parallel()
	request := &api.ExtendWriterRequest{Stream: "a", Epoch: 3, Holder: &api.Holder{Host: "beta", Pid: 7}}
	for what, one := range map[string]struct {
		identity string
		epoch    uint32
		granted  uint32
		host     string
		pid      uint32
		isOf     bool
	}{
		"its own":                             {"desk", 3, 3, "beta", 7, true},
		"another identity":                    {"other", 3, 3, "beta", 7, false},
		"another host":                        {"desk", 3, 3, "gamma", 7, false},
		"another process":                     {"desk", 3, 3, "beta", 8, false},
		"a later epoch, not yet anybody's":    {"desk", 4, 3, "beta", 7, false},
		"a grant that is older than an epoch": {"desk", 3, 2, "beta", 7, false},
	} {
		v := &state.View{
			Epochs: map[string]uint32{"a": one.epoch},
			Grants: map[string]*api.Grant{"a": {
				Epoch:  one.granted,
				Holder: &api.Holder{Identity: "desk", Host: one.host, Pid: one.pid},
			}},
		}
		if err := isGrantOf(v, request, one.identity); (err == nil) != one.isOf {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Of a stream that is being deleted, or that is not there, nobody is told anything.
func TestExtendWriter_StreamThatGoes(t *testing.T) {
	t.Parallel()
	one := startFar(t)
	answered := one.acquireFar("ofi")
	one.untilAdmission(1)
	one.confirm(1, 1)
	one.granted(answered)
	request := &api.ExtendWriterRequest{Stream: "a", Epoch: 1, Holder: &api.Holder{Host: "beta"}}
	if err := one.delete("a"); err != nil {
		t.Fatal(err)
	}
	if response, err := one.control.ExtendWriter(one.context(),
		request); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "is being deleted") {
		t.Errorf("of a stream that is being deleted: %v, %v", response, err)
	}
	request.Stream = "b"
	if response, err := one.control.ExtendWriter(one.context(), request); status.Code(err) != codes.NotFound {
		t.Errorf("of no stream: %v, %v", response, err)
	}
	request.Holder = &api.Holder{Host: "be\nta"}
	if response, err := one.control.ExtendWriter(one.context(), request); status.Code(err) != codes.InvalidArgument {
		t.Errorf("to a host that is none: %v, %v", response, err)
	}
}

// checkOthersRefused extends the writer's grant as somebody else.
func (i *instance) checkOthersRefused(request *api.ExtendWriterRequest) {
	i.t.Helper()
	for what, change := range map[string]func(*api.ExtendWriterRequest){
		"another epoch":   func(r *api.ExtendWriterRequest) { r.Epoch = 2 },
		"another process": func(r *api.ExtendWriterRequest) { r.Holder.Pid = 9 },
		"another host":    func(r *api.ExtendWriterRequest) { r.Holder.Host = "gamma" },
	} {
		asked := proto.Clone(request).(*api.ExtendWriterRequest)
		change(asked)
		if response, err := i.control.ExtendWriter(i.context(), asked); status.Code(err) != codes.FailedPrecondition {
			i.t.Errorf("%s: %v, %v", what, response, err)
		}
	}
}
