package service

import (
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/leader"
	"github.com/farlog/farlog/pkg/control/state"
)

// tellOfAll makes agents of each kind, all of which but one have ended.
func tellOfAll(t *testing.T, one *instance, now time.Time) {
	t.Helper()
	old := timestamppb.New(now.Add(-2 * leader.AgentKept))
	tell := func(id string, reported *timestamppb.Timestamp, rings ...*api.RingState) {
		t.Helper()
		state := &api.TargetState{Agent: &api.Agent{Id: id, Host: "host-" + id}, ReportTime: reported, Rings: rings}
		if _, err := one.target.ReportTarget(one.context(), &api.ReportTargetRequest{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	one.create("a")
	tell("holder", old)
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	tell("holder", old, ring("a", "holder"))
	tell("alive", old)
	tell("lately", timestamppb.New(now))
	tell("left", old, ring("gone", "left")) // by an earlier control plane
	tell("ended", old)
	if _, err := one.drain.ReportDrain(one.context(),
		&api.ReportDrainRequest{State: &api.DrainState{
			Agent:      &api.Agent{Id: "drain", Host: "host-holder"},
			ReportTime: old,
		}}); err != nil {
		t.Fatal(err)
	}
	one.until("the drain is given the stream", func() bool { return one.status("a").Assignment != nil })
	tell("holder", old) // only what is wanted of it says that it has a ring
	for _, host := range []string{"desk7", "desk8"} {
		if _, err := api.NewHostServiceClient(one.conn).ReportHost(one.context(),
			&api.ReportHostRequest{State: &api.HostState{Host: host}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"holder", "lately", "left", "ended"} {
		one.endLife(etcd.KeyLiveTargets + id)
	}
	one.endLife(etcd.KeyLiveDrains + "drain")
}

// What ended long ago and holds nothing is forgotten, and a watch is told; who lives, who ended lately, and who has a
// ring or had one are not.
func TestForget_WhoEndedAndHoldsNothing(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	now := time.Now()
	tellOfAll(t, one, now)
	watch := one.watchTargets(one.context(), map[string]string{}, 0)
	const stay = "host-alive rack  alive true; host-holder rack  alive false; host-lately rack  alive false; " +
		"host-left rack  alive false"
	watch.until("host-alive rack  alive true; host-ended rack  alive false; host-holder rack  alive false; " +
		"host-lately rack  alive false; host-left rack  alive false")

	seen := func() *state.View {
		now, _ := one.server.mirror.Load()
		return now
	}
	acting := &leader.Reconciler{Client: one.etcd.Client(), Mirror: one.server.mirror, Logger: one.server.config.Logger}
	gone := map[string]time.Time{}
	for _, at := range []time.Time{now, now.Add(leader.AgentGoneLeast - time.Second)} {
		if err := acting.Forget(t.Context(), gone, at, nil); err != nil {
			t.Fatal(err)
		}
		if got := seen().Targets["ended"]; got == nil {
			t.Fatalf("forgotten when it was seen to be gone for %s", at.Sub(now))
		}
	}
	if err := acting.Forget(t.Context(), gone, now.Add(leader.AgentGoneLeast), nil); err != nil {
		t.Fatal(err)
	}
	watch.until(stay)
	if got := slices.Sorted(maps.Keys(seen().Hosts)); !slices.Equal(got, []string{"desk7", "desk8"}) {
		t.Errorf("hosts %v: one that reported minutes ago is forgotten", got)
	}
	// A day on: "lately" is no news any more either, nor are the hosts.
	for _, at := range []time.Time{
		now.Add(leader.AgentKept + time.Minute),
		now.Add(leader.AgentKept + time.Minute + leader.AgentGoneLeast),
	} {
		if err := acting.Forget(t.Context(), gone, at, nil); err != nil {
			t.Fatal(err)
		}
	}
	watch.until("host-alive rack  alive true; host-holder rack  alive false; host-left rack  alive false")
	one.until("silent hosts are forgotten", func() bool { return len(seen().Hosts) == 0 })
	if seen().Drains["drain"] == nil {
		t.Error("a drain is forgotten that a stream is bound to")
	}
}
