package state_test

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/deletion"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// fed is a mirror that is told of changes as etcd tells it, and a reconciler's part that has no etcd either.
type fed struct {
	*state.Mirror
	t         *rapid.T
	revision  int64
	unsettled map[string]bool
	told      map[string]proto.Message // what each agent has been told, by the key of its life
	changed   map[string]<-chan struct{}
}

func newFed(t *rapid.T) *fed {
	f := &fed{
		Mirror: state.NewMirror(nil, slog.New(slog.NewTextHandler(io.Discard, nil))), t: t,
		unsettled: map[string]bool{}, told: map[string]proto.Message{}, changed: map[string]<-chan struct{}{},
	}
	state.PublishFirst(f.Mirror, state.NewView())
	return f
}

// write makes changes; a nil value deletes.
func (f *fed) write(values map[string]proto.Message) {
	f.revision++
	response := &clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: f.revision}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		event := &clientv3.Event{
			Type: clientv3.EventTypeDelete,
			Kv:   &mvccpb.KeyValue{Key: []byte(key), ModRevision: f.revision},
		}
		if values[key] != nil {
			text, err := etcd.Encode(values[key])
			if err != nil {
				f.t.Fatal(err)
			}
			event.Type, event.Kv.Value = clientv3.EventTypePut, []byte(text)
		}
		response.Events = append(response.Events, event)
	}
	state.ApplyEvents(f.Mirror, response)
}

func (f *fed) setEpoch(name string, epoch int) {
	f.revision++
	kv := &mvccpb.KeyValue{
		Key: []byte(etcd.KeyEpochs + name), Value: []byte(strconv.Itoa(epoch)),
		ModRevision: f.revision,
	}
	state.ApplyEvents(f.Mirror, &clientv3.WatchResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: f.revision},
		Events: []*clientv3.Event{{Type: clientv3.EventTypePut, Kv: kv}},
	})
}

// settle plans what is dirty until nothing is, and carries it out.
func (f *fed) settle() {
	for range 100 {
		now, dirt := f.TakeDirt()
		actions := reconcile.PlanOf(now.World(), dirt.Streams(now.World(), f.unsettled), f.unsettled, time.Now())
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
		changes[etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Place.Member))] = action.Place
	case action.Renew != nil:
		changes[etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Renew.Member))] = action.Renew
	case action.Bind != nil:
		changes[etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Bind.Member))] = action.Bind
	case action.Assign != nil:
		changes[etcd.KeyAssignments+action.Stream()] = action.Assign
	case action.IsEnd():
		_, writes, err := deletion.EndWrites(now, action)
		if err != nil {
			f.t.Fatal(err)
		}
		for _, write := range writes[1:] {
			changes[string(write.KeyBytes())] = nil
		}
		deletion := proto.Clone(now.Deletions[action.Stream()]).(*api.Deletion)
		if deletion.Stage = api.DeletionStage_DELETION_STAGE_REMOVING; action.Forget != "" {
			deletion.Stage = api.DeletionStage_DELETION_STAGE_ENDED
		}
		changes[etcd.KeyDeletions+action.Stream()] = deletion
	}
	for member, change := range grant.AdmissionsOf(action) {
		name := reconcile.MemberKey(action.Stream(), member)
		admission := new(api.Admission)
		if have := now.Admissions[name]; have != nil {
			admission = proto.Clone(have).(*api.Admission)
		}
		if err := change(admission); err != nil {
			f.t.Fatal(err)
		}
		changes[etcd.KeyAdmissions+name] = admission
	}
	f.write(changes)
}

func (f *fed) view() *state.View {
	now, _ := f.Load()
	return now
}

// follow is what each agent's watch does: it asks again when it is told to.
func (f *fed) follow() {
	for i := range 3 {
		target, drain := fmt.Sprint("t", i), fmt.Sprint("d", i)
		f.followOne(etcd.KeyLiveTargets+target, func(v *state.View) proto.Message {
			return grant.RingsOf(v, &api.Agent{Id: target, Host: "alpha"})
		})
		f.followOne(etcd.KeyLiveDrains+drain, func(v *state.View) proto.Message {
			return grant.AssignmentsOf(v,
				&api.Agent{Id: drain})
		})
	}
}

func (f *fed) followOne(agent string, wanted func(*state.View) proto.Message) {
	isTold := f.changed[agent] == nil
	select {
	case <-f.changed[agent]:
		isTold = true
	default:
	}
	now, changed := f.LoadFor(agent)
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
	for _, name := range slices.Sorted(maps.Keys(now.Rings)) {
		rings[now.Rings[name].Target] = append(rings[now.Rings[name].Target], name)
	}
	for _, name := range slices.Sorted(maps.Keys(now.Assignments)) {
		given[now.Assignments[name].Drain] = append(given[now.Assignments[name].Drain], name)
	}
	for i := range 3 {
		target, drain := fmt.Sprint("t", i), fmt.Sprint("d", i)
		if !slices.Equal(rings[target], now.RingsAt.ByAgent[target]) ||
			!slices.Equal(given[drain], now.GivenTo.ByAgent[drain]) {
			f.t.Fatalf("%s has %q and is found with %q; %s has %q and is found with %q", target, rings[target],
				now.RingsAt.ByAgent[target], drain, given[drain], now.GivenTo.ByAgent[drain])
		}
	}
}

// drawReport is what a target says of what is wanted of it, or not yet, or of something else.
func (f *fed) drawReport(target string) *api.TargetState {
	state := &api.TargetState{Agent: &api.Agent{Id: target, Host: f.drawHost()}}
	for _, name := range f.view().RingsAt.ByAgent[target] {
		ring := f.view().Rings[name]
		if rapid.IntRange(0, 3).Draw(f.t, "reported") == 0 {
			continue
		}
		one := &api.RingState{
			Stream: ring.Stream.Spec.Name, Target: target, Uri: "mem:/" + name,
			RingUuid: ring.RingUuid,
		}
		if rapid.IntRange(0, 3).Draw(f.t, "uuid") > 0 && len(one.RingUuid) == 0 {
			one.RingUuid = []byte("ring of " + name + target)
		}
		one.RemoteUris = rapid.SampledFrom([][]string{nil, {"ofi:tcp://x:2/a"}, {"ofi:tcp://127.0.0.1:2/a"}}).Draw(f.t,
			"far")
		one.WriterEpoch, one.EpochMin = rapid.Uint32Range(0, 2).Draw(f.t, "writer"),
			rapid.Uint32Range(0, 9).Draw(f.t, "fence")
		if one.Missing = rapid.IntRange(0, 5).Draw(f.t, "missing") == 0; one.Missing {
			one.RingUuid = nil
		}
		one.Closed, one.Removed = rapid.Bool().Draw(f.t, "closed"), rapid.IntRange(0, 3).Draw(f.t, "removed") == 0
		state.Rings = append(state.Rings, one)
	}
	return state
}

// begin makes a fabric in which everything lives and nothing is reported yet, so that the changes find something to
// change.
func (f *fed) begin() {
	for i := range 3 {
		for _, prefix := range []string{etcd.KeyLiveTargets + "t", etcd.KeyLiveDrains + "d"} {
			agent := &api.Agent{Id: fmt.Sprint(prefix[len(prefix)-1:], i), Host: f.drawHost()}
			f.write(map[string]proto.Message{prefix + fmt.Sprint(i): agent})
		}
	}
	for i := range 4 {
		name := fmt.Sprint("s", i)
		f.write(map[string]proto.Message{etcd.KeyStreams + name: &api.Stream{Spec: &api.StreamSpec{
			Name:          name,
			RingSizeBytes: 100,
		}}})
	}
	f.settle()
	for i := range 3 {
		f.write(map[string]proto.Message{etcd.KeyTargets + fmt.Sprint("t", i): f.drawReport(fmt.Sprint("t", i))})
	}
	f.settle()
}

// report writes a report as an earlier control plane did, or in parts.
func (f *fed) report(id string) {
	reported := f.drawReport(id)
	if rapid.Bool().Draw(f.t, "whole") {
		f.write(map[string]proto.Message{etcd.KeyTargets + id: reported})
		return
	}
	values := map[string]proto.Message{etcd.KeyTargets + id: state.TargetHead(reported)}
	for _, key := range state.RingKeys(f.view(), id) {
		values[key] = nil
	}
	for i, name := range state.TargetKind.InOrder(reported) {
		values[state.RingKey(id, name)] = reported.Rings[i]
	}
	f.write(values)
	seen := f.view().Targets[id]
	if !proto.Equal(seen, reported) {
		f.t.Fatalf("in parts %v is shown as %v", reported, seen)
	}
}

func (f *fed) drawHost() string {
	return rapid.SampledFrom([]string{"alpha", "beta"}).Draw(f.t, "host")
}

func (f *fed) drawChange() {
	id := fmt.Sprint(rapid.IntRange(0, 2).Draw(f.t, "agent"))
	name := fmt.Sprint("s", rapid.IntRange(0, 5).Draw(f.t, "stream"))
	agent := &api.Agent{
		Host: f.drawHost(), Addresses: rapid.SampledFrom([][]string{
			nil,
			{"10.0.0.1"},
			{"127.0.0.1"},
		}).Draw(f.t, "addresses"),
		Streams: rapid.SampledFrom([][]string{nil, {"s1"}}).Draw(f.t, "right"),
	}
	var life proto.Message
	switch rapid.IntRange(0, 8).Draw(f.t, "change") {
	case 0:
		if agent.Id = "t" + id; rapid.IntRange(0, 3).Draw(f.t, "lives") > 0 {
			life = agent
		}
		f.write(map[string]proto.Message{etcd.KeyLiveTargets + "t" + id: life})
	case 1:
		if agent.Id = "d" + id; rapid.IntRange(0, 3).Draw(f.t, "lives") > 0 {
			life = agent
		}
		f.write(map[string]proto.Message{etcd.KeyLiveDrains + "d" + id: life})
	case 2:
		agent.Id = "d" + id
		f.write(map[string]proto.Message{etcd.KeyDrains + "d" + id: &api.DrainState{Agent: agent}})
	case 3:
		f.write(map[string]proto.Message{etcd.KeyTargetSpecs + "alpha": &api.TargetSpec{
			Host:          "alpha",
			CapacityBytes: rapid.SampledFrom([]uint64{0, 100, 200}).Draw(f.t, "capacity"),
			Closed:        rapid.Bool().Draw(f.t, "closed"),
			Namespaces: []*api.Namespace{{
				Name: "n", Subsystem: rapid.SampledFrom([]string{"a", "b"}).Draw(f.t, "subsystem"),
			}},
		}})
	case 4:
		if f.view().Streams[name] == nil {
			spec := &api.StreamSpec{
				Name: name, RingSizeBytes: 100,
				Members:    rapid.Uint32Range(1, 2).Draw(f.t, "members"),
				TargetHost: rapid.SampledFrom([]string{"", "alpha"}).Draw(f.t, "wanted on"),
			}
			f.write(map[string]proto.Message{
				etcd.KeyStreams + name:   &api.Stream{Spec: spec},
				etcd.KeyDeletions + name: nil,
			})
		}
	case 5:
		if have := f.view().Deletions[name]; f.view().Streams[name] != nil && !reconcile.IsBeingDeleted(have) {
			f.write(map[string]proto.Message{etcd.KeyDeletions + name: &api.Deletion{
				Name:  name,
				Stage: api.DeletionStage_DELETION_STAGE_DRAINING, EpochMin: 3,
				RingLost: rapid.Bool().Draw(f.t, "lost"),
			}})
		}
	case 6:
		if f.view().Streams[name] != nil {
			f.setEpoch(name, rapid.IntRange(1, 3).Draw(f.t, "epoch"))
		}
	default:
		f.report("t" + id)
	}
}

// TestMirror_TellsWhatAChangeConcerns makes random changes and plans only the streams that the mirror says they
// concern: then a plan of all streams finds nothing that is left, every agent that is to be told something else was
// woken, and the indices are what they are of.
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
			if left := reconcile.Plan(f.view().World(), time.Now()); len(left) > 0 {
				t.Fatalf("a change left %s of %s undone", left[0].Verb(), left[0].Stream())
			}
		}
	})
}
