package control

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// fed is a mirror that is told of changes as etcd tells it, and a reconciler's part that has no etcd either.
type fed struct {
	*mirror
	t         *rapid.T
	revision  int64
	unsettled map[string]bool
	told      map[string]proto.Message // what each agent has been told, by the key of its life
	changed   map[string]<-chan struct{}
}

func newFed(t *rapid.T) *fed {
	f := &fed{mirror: newMirror(nil, slog.New(slog.NewTextHandler(io.Discard, nil))), t: t, unsettled: map[string]bool{}, told: map[string]proto.Message{}, changed: map[string]<-chan struct{}{}}
	f.publish(newView(), nil)
	return f
}

// write makes changes; a nil value deletes.
func (f *fed) write(values map[string]proto.Message) {
	f.revision++
	response := &clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: f.revision}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		event := &clientv3.Event{Type: clientv3.EventTypeDelete, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: f.revision}}
		if values[key] != nil {
			text, err := encode(values[key])
			if err != nil {
				f.t.Fatal(err)
			}
			event.Type, event.Kv.Value = clientv3.EventTypePut, []byte(text)
		}
		response.Events = append(response.Events, event)
	}
	f.take(response)
}

func (f *fed) setEpoch(name string, epoch int) {
	f.revision++
	kv := &mvccpb.KeyValue{Key: []byte(keyEpochs + name), Value: []byte(strconv.Itoa(epoch)), ModRevision: f.revision}
	f.take(&clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: f.revision}, Events: []*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}}})
}

// settle plans what is dirty until nothing is, and carries it out.
func (f *fed) settle() {
	for range 100 {
		now, dirt := f.takeDirt()
		actions := reconcile.PlanOf(now.world(), dirt.Streams(now.world(), f.unsettled), f.unsettled, time.Now())
		if len(actions) == 0 && dirt.IsClean() {
			return
		}
		for _, action := range actions {
			f.carryOut(action)
		}
	}
	f.t.Fatal("what is planned does not come to an end")
}

func (f *fed) carryOut(action reconcile.Action) {
	now := f.view()
	changes := map[string]proto.Message{}
	switch {
	case action.Place != nil:
		changes[keyRings+reconcile.MemberKey(action.Stream(), int(action.Place.Member))] = action.Place
	case action.Renew != nil:
		changes[keyRings+reconcile.MemberKey(action.Stream(), int(action.Renew.Member))] = action.Renew
	case action.Bind != nil:
		changes[keyRings+reconcile.MemberKey(action.Stream(), int(action.Bind.Member))] = action.Bind
	case action.Assign != nil:
		changes[keyAssignments+action.Stream()] = action.Assign
	case action.IsEnd():
		_, writes, err := actionWrites(now, action)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, write := range writes[1:] {
			changes[string(write.KeyBytes())] = nil
		}
		deletion := proto.Clone(now.deletions[action.Stream()]).(*api.Deletion)
		if deletion.Stage = api.DeletionStage_DELETION_STAGE_REMOVING; action.Forget != "" {
			deletion.Stage = api.DeletionStage_DELETION_STAGE_ENDED
		}
		changes[keyDeletions+action.Stream()] = deletion
	}
	for member, change := range admissionsOf(action) {
		name := reconcile.MemberKey(action.Stream(), member)
		admission := new(api.Admission)
		if have := now.admissions[name]; have != nil {
			admission = proto.Clone(have).(*api.Admission)
		}
		if err := change(admission); err != nil {
			f.t.Fatal(err)
		}
		changes[keyAdmissions+name] = admission
	}
	f.write(changes)
}

func (f *fed) view() *view {
	now, _ := f.load()
	return now
}

// follow is what each agent's watch does: it asks again when it is told to.
func (f *fed) follow() {
	for i := range 3 {
		target, drain := fmt.Sprint("t", i), fmt.Sprint("d", i)
		f.followOne(keyLiveTargets+target, func(v *view) proto.Message { return v.ringsOf(target) })
		f.followOne(keyLiveDrains+drain, func(v *view) proto.Message { return v.assignmentsOf(&api.Agent{Id: drain}) })
	}
}

func (f *fed) followOne(agent string, wanted func(*view) proto.Message) {
	isTold := f.changed[agent] == nil
	select {
	case <-f.changed[agent]:
		isTold = true
	default:
	}
	now, changed := f.loadFor(agent)
	next := wanted(now)
	if !isTold && !proto.Equal(f.told[agent], next) {
		f.t.Fatalf("%s is not told of a change: from %v to %v", agent, f.told[agent], next)
	}
	f.told[agent], f.changed[agent] = next, changed
}

// checkIndices compares them with what they are of.
func (f *fed) checkIndices() {
	now := f.view()
	rings, given := map[string][]string{}, map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(now.rings)) {
		rings[now.rings[name].Target] = append(rings[now.rings[name].Target], name)
	}
	for _, name := range slices.Sorted(maps.Keys(now.assignments)) {
		given[now.assignments[name].Drain] = append(given[now.assignments[name].Drain], name)
	}
	for i := range 3 {
		target, drain := fmt.Sprint("t", i), fmt.Sprint("d", i)
		if !slices.Equal(rings[target], now.ringsAt.of[target]) || !slices.Equal(given[drain], now.givenTo.of[drain]) {
			f.t.Fatalf("%s has %q and is found with %q; %s has %q and is found with %q", target, rings[target], now.ringsAt.of[target], drain, given[drain], now.givenTo.of[drain])
		}
	}
}

// drawReport is what a target says of what is wanted of it, or not yet, or of something else.
func (f *fed) drawReport(target string) *api.TargetState {
	state := &api.TargetState{Agent: &api.Agent{Id: target, Host: f.drawHost()}}
	for _, name := range f.view().ringsAt.of[target] {
		ring := f.view().rings[name]
		if rapid.IntRange(0, 3).Draw(f.t, "reported") == 0 {
			continue
		}
		one := &api.RingState{Stream: ring.Stream.Spec.Name, Target: target, Uri: "mem:/" + name, RingUuid: ring.RingUuid}
		if rapid.IntRange(0, 3).Draw(f.t, "uuid") > 0 && len(one.RingUuid) == 0 {
			one.RingUuid = []byte("ring of " + name + target)
		}
		one.FarUris = rapid.SampledFrom([][]string{nil, {"ofi:tcp://x:2/a"}, {"ofi:tcp://127.0.0.1:2/a"}}).Draw(f.t, "far")
		one.WriterEpoch, one.EpochMin = rapid.Uint32Range(0, 2).Draw(f.t, "writer"), rapid.Uint32Range(0, 9).Draw(f.t, "fence")
		if one.IsMissing = rapid.IntRange(0, 5).Draw(f.t, "missing") == 0; one.IsMissing {
			one.RingUuid = nil
		}
		one.IsClosed, one.IsRemoved = rapid.Bool().Draw(f.t, "closed"), rapid.IntRange(0, 3).Draw(f.t, "removed") == 0
		state.Rings = append(state.Rings, one)
	}
	return state
}

// begin makes a fabric in which everything lives and nothing is reported yet, so that the changes find something to change.
func (f *fed) begin() {
	for i := range 3 {
		for _, prefix := range []string{keyLiveTargets + "t", keyLiveDrains + "d"} {
			agent := &api.Agent{Id: fmt.Sprint(prefix[len(prefix)-1:], i), Host: f.drawHost()}
			f.write(map[string]proto.Message{prefix + fmt.Sprint(i): agent})
		}
	}
	for i := range 4 {
		name := fmt.Sprint("s", i)
		f.write(map[string]proto.Message{keyStreams + name: &api.Stream{Spec: &api.StreamSpec{Name: name, RingSizeBytes: 100}}})
	}
	f.settle()
	for i := range 3 {
		f.write(map[string]proto.Message{keyTargets + fmt.Sprint("t", i): f.drawReport(fmt.Sprint("t", i))})
	}
	f.settle()
}

// report writes a report as an earlier control plane did, or in parts.
func (f *fed) report(id string) {
	state := f.drawReport(id)
	if rapid.Bool().Draw(f.t, "whole") {
		f.write(map[string]proto.Message{keyTargets + id: state})
		return
	}
	values := map[string]proto.Message{keyTargets + id: targetKind.with(state, nil)}
	for _, one := range f.view().targetRings.by[id] {
		values[targetKind.partKey(id, one.name)] = nil
	}
	for i, name := range targetKind.inOrder(state) {
		values[targetKind.partKey(id, name)] = state.Rings[i]
	}
	f.write(values)
	seen := f.view().targets[id]
	if !proto.Equal(seen, state) {
		f.t.Fatalf("in parts %v is shown as %v", state, seen)
	}
}

func (f *fed) drawHost() string {
	return rapid.SampledFrom([]string{"alpha", "beta"}).Draw(f.t, "host")
}

func (f *fed) drawChange() {
	id := fmt.Sprint(rapid.IntRange(0, 2).Draw(f.t, "agent"))
	name := fmt.Sprint("s", rapid.IntRange(0, 5).Draw(f.t, "stream"))
	agent := &api.Agent{Host: f.drawHost(), Addresses: rapid.SampledFrom([][]string{nil, {"10.0.0.1"}, {"127.0.0.1"}}).Draw(f.t, "addresses"),
		Streams: rapid.SampledFrom([][]string{nil, {"s1"}}).Draw(f.t, "right")}
	var life proto.Message
	switch rapid.IntRange(0, 8).Draw(f.t, "change") {
	case 0:
		if agent.Id = "t" + id; rapid.IntRange(0, 3).Draw(f.t, "lives") > 0 {
			life = agent
		}
		f.write(map[string]proto.Message{keyLiveTargets + "t" + id: life})
	case 1:
		if agent.Id = "d" + id; rapid.IntRange(0, 3).Draw(f.t, "lives") > 0 {
			life = agent
		}
		f.write(map[string]proto.Message{keyLiveDrains + "d" + id: life})
	case 2:
		agent.Id = "d" + id
		f.write(map[string]proto.Message{keyDrains + "d" + id: &api.DrainState{Agent: agent}})
	case 3:
		f.write(map[string]proto.Message{keyTargetSpecs + "alpha": &api.TargetSpec{Host: "alpha", CapacityBytes: rapid.SampledFrom([]uint64{0, 100, 200}).Draw(f.t, "capacity"), IsClosed: rapid.Bool().Draw(f.t, "closed")}})
	case 4:
		if f.view().streams[name] == nil {
			spec := &api.StreamSpec{Name: name, RingSizeBytes: 100, Members: rapid.Uint32Range(1, 2).Draw(f.t, "members"), TargetHost: rapid.SampledFrom([]string{"", "alpha"}).Draw(f.t, "wanted on")}
			f.write(map[string]proto.Message{keyStreams + name: &api.Stream{Spec: spec}, keyDeletions + name: nil})
		}
	case 5:
		if have := f.view().deletions[name]; f.view().streams[name] != nil && !reconcile.IsBeingDeleted(have) {
			f.write(map[string]proto.Message{keyDeletions + name: &api.Deletion{Name: name, Stage: api.DeletionStage_DELETION_STAGE_DRAINING, EpochMin: 3, IsRingLost: rapid.Bool().Draw(f.t, "lost")}})
		}
	case 6:
		if f.view().streams[name] != nil {
			f.setEpoch(name, rapid.IntRange(1, 3).Draw(f.t, "epoch"))
		}
	default:
		f.report("t" + id)
	}
}

// TestMirror_TellsWhatAChangeConcerns makes random changes and plans only the streams that the mirror says they concern: then a plan of all streams finds nothing
// that is left, every agent that is to be told something else was woken, and the indices are what they are of.
func TestMirror_TellsWhatAChangeConcerns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFed(t)
		f.begin()
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			f.drawChange()
			f.follow()
			f.settle()
			f.follow()
			f.checkIndices()
			if left := reconcile.Plan(f.view().world(), time.Now()); len(left) > 0 {
				t.Fatalf("a change left %s of %s undone", left[0].Verb(), left[0].Stream())
			}
		}
	})
}

// A target that does not live counts where it last said that it is. When that is another host, a stream that waits for room on the first one is planned again.
func TestNoteReport_FromAnotherHostLeavesRoomOnTheFirst(t *testing.T) {
	t.Parallel()
	state := func(host string) *api.TargetState { return &api.TargetState{Agent: &api.Agent{Id: "t1", Host: host}} }
	v, waiting := newView(), map[string]bool{"waits": true}
	v.streams["waits"] = new(api.Stream)
	for host, want := range map[string]int{"alpha": 0, "beta": 1} {
		touched := newTouched()
		touched.noteReport(v, "t1", state("alpha"), state(host))
		if planned := touched.Streams(v.world(), waiting); len(planned) != want {
			t.Errorf("alpha, then %s: %q are planned again, expected %d", host, planned, want)
		}
	}
}

// What a view shows and the prefixes that keys are told apart by are the same, and no prefix begins another one.
func TestKinds_AreThePrefixes(t *testing.T) {
	t.Parallel()
	have := slices.Sorted(maps.Keys(kinds))
	if want := slices.Sorted(slices.Values(prefixes)); !slices.Equal(have, want) {
		t.Errorf("a view shows %q, keys are told apart by %q: add the missing one to both", have, want)
	}
	for i, one := range have[1:] {
		if strings.HasPrefix(one, have[i]) {
			t.Errorf("prefix %q begins %q: a key of the second would be taken for one of the first", have[i], one)
		}
	}
}
