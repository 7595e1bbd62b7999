package reconcile

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// lostWorld is a stream on two rings that was drained into a store which is gone, and a drain of another one on their
// host.
func lostWorld() World {
	stream := &api.Stream{Spec: &api.StreamSpec{Name: "s", Members: 2, Needed: 1}, StreamId: 7, K: 1}
	world := World{
		Streams: map[string]*api.Stream{"s": stream}, Epochs: map[string]uint32{"s": 3},
		Rings: map[string]*api.RingSpec{}, Targets: map[string]*api.TargetState{},
		LiveTargets: map[string]*api.Agent{},
		Assignments: map[string]*api.Assignment{"s": {
			Stream: "s", Drain: "d1", Generation: 4, StoreUuid: []byte("one"),
			StoreDir: "/one",
		}},
		LiveDrains: map[string]*api.Agent{"d2": {Id: "d2", Host: "h", StoreUuid: []byte("two"), StoreDir: "/two"}},
		DrainSpecs: map[string]*api.DrainSpec{},
	}
	for i, target := range []string{"t1", "t2"} {
		agent, uuid := &api.Agent{Id: target, Host: "h"}, []byte{byte(i), 1}
		world.LiveTargets[target] = agent
		world.Rings[MemberKey("s", i)] = &api.RingSpec{
			Target: target, Stream: stream, RingUuid: uuid,
			Member: uint32(i),
		}
		world.Targets[target] = &api.TargetState{
			Agent: agent,
			Rings: []*api.RingState{{
				Stream: "s", StreamId: 7, Target: target, Uri: "mem:" + target, RingUuid: uuid,
				HeadLsn: uint64(4096 - i*64), HeadSeq: uint64(9 - i),
			}},
		}
	}
	return world
}

// A stream goes to the drain of another store with what its rings have not released; what is lost is what any of them
// has released. From then on that store is its own, and a drain that takes over in it is told of the loss too.
func TestRebound_SaysWhatIsLost(t *testing.T) {
	world := lostWorld()
	if actions := Plan(world, time.Time{}); len(actions) != 0 {
		t.Fatalf("it goes to another store by itself: %v", actions)
	}
	bound, whyNot := Rebound(world, "s", "d2")
	if whyNot != "" {
		t.Fatal(whyNot)
	}
	want := &api.LostStore{StoreUuid: []byte("one"), StoreDir: "/one", Lsn: 4096, Seq: 9}
	if !proto.Equal(bound.LostStore, want) || string(bound.StoreUuid) != "two" || bound.StoreDir != "/two" ||
		bound.Drain != "d2" || bound.Generation != 5 || bound.Uri != "members:1 mem:t1 mem:t2" {
		t.Errorf("bound as %v", bound)
	}
	world.Assignments["s"] = bound
	if actions := Plan(world, time.Time{}); len(actions) != 0 {
		t.Errorf("it does not stay: %v", actions)
	}
	delete(world.LiveDrains, "d2")
	world.LiveDrains["d1"] = &api.Agent{Id: "d1", Host: "h", StoreUuid: []byte("one")}
	if actions := Plan(world, time.Time{}); len(actions) != 0 {
		t.Errorf("the store that was given up has it again: %v", actions)
	}
	world.LiveDrains["d3"] = &api.Agent{Id: "d3", Host: "h", StoreUuid: []byte("two")}
	if actions := Plan(world, time.Time{}); len(actions) != 1 || actions[0].Assign.GetDrain() != "d3" ||
		!proto.Equal(actions[0].Assign.LostStore, want) {
		t.Errorf("another drain of its store: %v", actions)
	}
}

// Heads of members move one after the other: whatever of them is the furthest was released, and its record's number
// goes with it.
func TestRebound_LosesWhatAnyMemberHasReleased(t *testing.T) {
	for _, furthest := range []int{0, 1} {
		world := lostWorld()
		for i, target := range []string{"t1", "t2"} {
			ring := world.Targets[target].Rings[0]
			ring.HeadLsn, ring.HeadSeq = 4096, 9
			if i == furthest {
				ring.HeadLsn, ring.HeadSeq = 8192, 20
			}
		}
		if bound, whyNot := Rebound(world, "s", "d2"); whyNot != "" || bound.LostStore.Lsn != 8192 ||
			bound.LostStore.Seq != 20 {
			t.Errorf("member %d is the furthest: %q, %v", furthest, whyNot, bound.GetLostStore())
		}
	}
}

// The store that it was bound to after the first loss is lost as well: what is given up is all that was released since,
// to whichever store.
func TestRebound_SecondLoss(t *testing.T) {
	world := lostWorld()
	first, whyNot := Rebound(world, "s", "d2")
	if whyNot != "" {
		t.Fatal(whyNot)
	}
	world.Assignments["s"] = first
	if bound, whyNot := Rebound(world, "s", "d2"); bound != nil ||
		!strings.Contains(whyNot, "writes the store that it is bound to") {
		t.Errorf("the same again: %q, %v", whyNot, bound)
	}
	delete(world.LiveDrains, "d2")
	world.LiveDrains["d3"] = &api.Agent{Id: "d3", Host: "h", StoreUuid: []byte("three"), StoreDir: "/three"}
	for _, target := range []string{"t1", "t2"} {
		world.Targets[target].Rings[0].HeadLsn, world.Targets[target].Rings[0].HeadSeq = 1<<20, 77
	}
	want := &api.LostStore{StoreUuid: []byte("two"), StoreDir: "/two", Lsn: 1 << 20, Seq: 77}
	if bound, whyNot := Rebound(world, "s", "d3"); whyNot != "" || !proto.Equal(bound.LostStore, want) ||
		string(bound.StoreUuid) != "three" || bound.Generation != first.Generation+1 {
		t.Errorf("%q, %v", whyNot, bound)
	}
}

func TestRebound_Refusals(t *testing.T) {
	for want, spoil := range map[string]func(World){
		"writes the store that it is bound to": func(w World) { w.LiveDrains["d2"].StoreUuid = []byte("one") },
		"bound to no store yet":                func(w World) { delete(w.Assignments, "s") },
		"not reported by target t2":            func(w World) { delete(w.LiveTargets, "t2") },
		"not reported by target t1":            func(w World) { w.Targets["t1"].Rings[0].RingUuid = []byte("another") },
		"a drain has its ring on target t2":    func(w World) { w.Targets["t2"].Rings[0].DrainHeld = true },
		"has not the role drain":               func(w World) { w.LiveDrains["d2"].Streams = []string{"other/*"} },
		"declared to be drained on host x":     func(w World) { w.Streams["s"].Spec.DrainHost = "x" },
		"takes no further stream": func(w World) {
			w.DrainSpecs["h"] = &api.DrainSpec{
				Host:   "h",
				Closed: true,
			}
		},
		"does not reach its rings: it is on host far": func(w World) { w.LiveDrains["d2"].Host = "far" },
	} {
		world := lostWorld()
		spoil(world)
		if bound, whyNot := Rebound(world, "s", "d2"); bound != nil || !strings.Contains(whyNot, want) {
			t.Errorf("expected %q, got %q, %v", want, whyNot, bound)
		}
	}
}
