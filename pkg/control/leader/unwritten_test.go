package leader

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// leading is a reconciler that does what a test tells it, and nothing by itself.
func leading(t *testing.T) *Reconciler {
	t.Helper()
	etcd := etcdtest.Open(t, t.TempDir())
	m := state.NewMirror(etcd.Client(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); following.Wait() })
	return &Reconciler{Client: etcd.Client(), Mirror: m, Logger: slog.New(slog.DiscardHandler)}
}

func (r *Reconciler) put(t *testing.T, key string, message proto.Message) {
	t.Helper()
	value, err := etcd.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// place makes a stream whose ring is wanted of a target, which says this of it.
func (r *Reconciler) place(t *testing.T, name string, uuid []byte, seen *api.RingState) *state.View {
	t.Helper()
	spec, err := fabric.CompleteStream(&api.StreamSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	stream, _, _, err := fabric.CreateStream(t.Context(), r.Client, spec)
	if err != nil {
		t.Fatal(err)
	}
	target := "of-" + name
	agent := &api.Agent{Id: target, Host: target}
	r.put(t, etcd.KeyRings+name, &api.RingSpec{Target: target, Stream: stream, RingUuid: uuid})
	reported := &api.TargetState{Agent: agent}
	if seen != nil {
		reported.Rings = []*api.RingState{seen}
		r.put(t, etcd.KeyLiveTargets+target, agent)
	}
	r.put(t, etcd.KeyTargets+target, reported)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now, err := r.Mirror.Wait(ctx, func(v *state.View) bool {
		return v.Targets[target] != nil && v.Rings[name] != nil && v.Streams[name] != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// A ring that was lost, or never made, is wanted again while nobody was let in, and a grant is given for the ring that
// its giver has seen: when both come at the same moment one of them is refused, whichever that is. Were both done,
// records acknowledged under the grant could be in a ring that nobody wants any more.
func TestBlankRing_GrantAtTheSameMoment(t *testing.T) {
	t.Parallel()
	r := leading(t)
	r.put(t, etcd.KeyLiveTargets+"other", &api.Agent{Id: "other", Host: "other"})
	grants := 0
	for round := range 40 {
		name, action := fmt.Sprint("s", round), reconcile.Action{}
		var now *state.View
		if round%2 == 0 {
			now = r.place(t, name, []byte("0123456789abcdef"),
				&api.RingState{Stream: name, Missing: true, Error: "is missing"})
			action.Renew = &api.RingSpec{
				Target: "of-" + name, Stream: now.Streams[name],
				LostUuid: []byte("0123456789abcdef"),
			}
		} else {
			now = r.place(t, name, nil, nil)
			action.Place = &api.RingSpec{Target: "other", Stream: now.Streams[name]}
		}
		if planned := reconcile.Plan(now.World(), time.Now()); len(planned) == 0 {
			t.Fatalf("round %d: nothing is planned for %v", round, now.Rings[name])
		}
		var granted, placed error
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			_, _, granted = grant.NextEpoch(t.Context(), r.Client, now, &api.Grant{Stream: name}, 0, 1,
				func(int, *api.Admission, uint32) error { return nil }, nil)
		})
		both.Go(func() {
			<-start
			placed = r.PerformAll(t.Context(), now, []reconcile.Action{action}, nil)
		})
		close(start)
		both.Wait()
		if (granted == nil) == (placed == nil) {
			t.Fatalf("round %d: the grant came to %v, the ring to %v: expected one of them to be refused", round,
				granted, placed)
		}
		if granted == nil {
			grants++
			r.stays(t, round, name, action)
		}
	}
	t.Logf("%d of 40 grants were first", grants)
}

// stays -- after a grant no ring is ever made again, by nobody who decided on it before or after.
func (r *Reconciler) stays(t *testing.T, round int, name string, action reconcile.Action) {
	t.Helper()
	seen, _ := r.Mirror.Load()
	if err := r.PerformAll(t.Context(), seen, []reconcile.Action{action}, nil); err == nil {
		t.Fatalf("round %d: done after a grant", round)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	now, err := r.Mirror.Wait(ctx, func(v *state.View) bool { return v.Epochs[name] > 0 })
	if err != nil {
		t.Fatal(err)
	}
	for _, planned := range reconcile.Plan(now.World(), time.Now()) {
		if planned.Stream() == name {
			t.Fatalf("round %d: after a grant it is planned to %s", round, planned.Verb())
		}
	}
}
