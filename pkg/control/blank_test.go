package control

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// leading is a reconciler that does what a test tells it, and nothing by itself.
func leading(t *testing.T) *reconciler {
	t.Helper()
	etcd := openEtcd(t, t.TempDir())
	m := newMirror(etcd.Client(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { m.run(ctx) })
	t.Cleanup(func() { cancel(); following.Wait() })
	return &reconciler{client: etcd.Client(), mirror: m, logger: slog.New(slog.DiscardHandler)}
}

func (r *reconciler) put(t *testing.T, key string, message proto.Message) {
	t.Helper()
	value, err := encode(message)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// place makes a stream whose ring is wanted of a target, which says this of it.
func (r *reconciler) place(t *testing.T, name string, uuid []byte, seen *api.RingState) *view {
	t.Helper()
	spec, err := completeSpec(&api.StreamSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	stream, _, _, err := createStream(t.Context(), r.client, spec)
	if err != nil {
		t.Fatal(err)
	}
	target := "of-" + name
	agent := &api.Agent{Id: target, Host: target}
	r.put(t, keyRings+name, &api.RingSpec{Target: target, Stream: stream, RingUuid: uuid})
	state := &api.TargetState{Agent: agent}
	if seen != nil {
		state.Rings = []*api.RingState{seen}
		r.put(t, keyLiveTargets+target, agent)
	}
	r.put(t, keyTargets+target, state)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now, err := r.mirror.wait(ctx, func(v *view) bool { return v.targets[target] != nil && v.rings[name] != nil && v.streams[name] != nil })
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// A ring that was lost, or never made, is wanted anew while nobody was let in, and a grant is given for the ring that its giver has seen: when both come at the same moment one of them is
// refused, whichever that is. Were both done, records acknowledged under the grant could be in a ring that nobody wants any more.
func TestBlankRing_GrantAtTheSameMoment(t *testing.T) {
	t.Parallel()
	r := leading(t)
	r.put(t, keyLiveTargets+"other", &api.Agent{Id: "other", Host: "other"})
	grants := 0
	for round := range 40 {
		name, action := fmt.Sprint("s", round), reconcile.Action{}
		var now *view
		if round%2 == 0 {
			now = r.place(t, name, []byte("0123456789abcdef"), &api.RingState{Stream: name, IsMissing: true, Error: "is missing"})
			action.Renew = &api.RingSpec{Target: "of-" + name, Stream: now.streams[name], LostUuid: []byte("0123456789abcdef")}
		} else {
			now = r.place(t, name, nil, nil)
			action.Place = &api.RingSpec{Target: "other", Stream: now.streams[name]}
		}
		if planned := reconcile.Plan(now.world(), time.Now()); len(planned) == 0 {
			t.Fatalf("round %d: nothing is planned for %v", round, now.rings[name])
		}
		var granted, placed error
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			_, _, granted = nextEpoch(t.Context(), r.client, now, &api.Grant{Stream: name}, 0, 1, func(int, *api.Admission, uint32) error { return nil }, nil)
		})
		both.Go(func() {
			<-start
			placed = r.performAll(t.Context(), now, []reconcile.Action{action}, nil)
		})
		close(start)
		both.Wait()
		if (granted == nil) == (placed == nil) {
			t.Fatalf("round %d: the grant came to %v, the ring to %v: expected one of them to be refused", round, granted, placed)
		}
		if granted == nil {
			grants++
			r.stays(t, round, name, action)
		}
	}
	t.Logf("%d of 40 grants were first", grants)
}

// stays -- after a grant no ring is ever made anew, by nobody who decided on it before or after.
func (r *reconciler) stays(t *testing.T, round int, name string, action reconcile.Action) {
	t.Helper()
	seen, _ := r.mirror.load()
	if err := r.performAll(t.Context(), seen, []reconcile.Action{action}, nil); err == nil {
		t.Fatalf("round %d: done after a grant", round)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now, err := r.mirror.wait(ctx, func(v *view) bool { return v.epochs[name] > 0 })
	if err != nil {
		t.Fatal(err)
	}
	for _, planned := range reconcile.Plan(now.world(), time.Now()) {
		if planned.Stream() == name {
			t.Fatalf("round %d: after a grant it is planned to %s", round, planned.Verb())
		}
	}
}

// missing -- what the control plane keeps of it is more than what is reported.
func (i *instance) missing(name string) {
	i.t.Helper()
	state := &api.TargetState{Agent: &api.Agent{Id: "t1", Host: "alpha"}, Rings: []*api.RingState{{Stream: name, Target: "t1", Uri: "mem:/" + name, IsMissing: true, Error: "is missing"}}}
	if _, err := i.target.ReportTarget(i.context(), &api.ReportTargetRequest{State: state}); err != nil {
		i.t.Fatal(err)
	}
}

// Somebody may have opened a ring by its URI alone: what was seen of that is not forgotten when the ring is missing.
func TestReportTarget_MissingRingKeepsWhatWasSeenInIt(t *testing.T) {
	t.Parallel()
	one := startInstance(t, openEtcd(t, t.TempDir()), true)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t1", &api.RingState{Stream: "a", Target: "t1", Uri: "mem:/a", RingUuid: []byte("0123456789abcdef"), WriterEpoch: 1, AppendedLsn: 64})
	one.until("ring is bound", func() bool { return len(one.status("a").RingSpecs[0].RingUuid) > 0 })
	for range 2 { // the second report is the one that follows a missing one
		one.missing("a")
	}
	one.until("it is missing", func() bool { return strings.Contains(one.status("a").Reason, "is missing") })
	if status := one.status("a"); status.Rings[0].WriterEpoch != 1 || len(status.RingSpecs[0].RingUuid) == 0 {
		t.Errorf("forgotten: %v", status)
	}
	one.missing("a")
	one.create("b") // whatever was to be planned before it has been done
	one.until("b is placed", func() bool { return len(one.status("b").RingSpecs) == 1 })
	if status := one.status("a"); len(status.RingSpecs[0].RingUuid) == 0 {
		t.Errorf("wanted anew: %v", status.RingSpecs)
	}
}

// A stream that was never granted when it was backed up may have been granted since.
func TestRestore_StreamWithoutAnEpochIsNotBlank(t *testing.T) {
	t.Parallel()
	before := startInstance(t, openEtcd(t, t.TempDir()), true)
	before.create("a")
	entries := before.backup()
	etcd := openEtcd(t, t.TempDir())
	after := startInstance(t, etcd, true)
	if err := after.restore(entries); err != nil {
		t.Fatal(err)
	}
	if got, err := etcd.Client().Get(t.Context(), keyEpochs+"a", clientv3.WithCountOnly()); err != nil || got.Count != 1 {
		t.Errorf("epochs of the stream: %v, %v", got, err)
	}
}
