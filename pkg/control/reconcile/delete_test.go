package reconcile

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// fabricOf is one stream that ends, with a writer, a drain and a target that each do one step when it is their turn.
// What the target reports may be old; a control plane may die before or after each action, and its successor knows only
// what was written.
type fabricOf struct {
	rt    *rapid.T
	world World

	writerEpoch      uint32
	isWriterIn       bool
	fence            uint32
	appended, stored uint64
	head             uint64
	isDrainIn        bool
	isRingThere      bool
	stage            api.DeletionStage // as the target has received it
	isDrainAssigned  bool              // as the drain has received it
	reported         []*api.RingState  // not yet in the world
}

func newFabric(rt *rapid.T) *fabricOf {
	f := &fabricOf{rt: rt, writerEpoch: 3, isWriterIn: rapid.Bool().Draw(rt, "writer"), isRingThere: true}
	f.world = emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").bound("a",
		"u").granted("a").
		withDrain("d1", testHost).withDrain("d2", testHost).withAssignment("a", "d1", "u")
	f.world.Epochs["a"] = 3
	f.world.Deletions = map[string]*api.Deletion{"a": {
		Name: "a", Stage: api.DeletionStage_DELETION_STAGE_DRAINING,
		EpochMin: 4,
	}}
	f.appended = uint64(rapid.IntRange(0, 5).Draw(rt, "undrained"))
	f.stage, f.isDrainAssigned = api.DeletionStage_DELETION_STAGE_UNSPECIFIED, true
	return f
}

// step lets somebody do something.
func (f *fabricOf) step(who string) {
	switch who {
	case "writer": // one that is fenced goes; a late one with a granted epoch tries to come
		if f.isWriterIn && f.writerEpoch < f.fence {
			f.isWriterIn = false
		} else if f.isWriterIn {
			f.appended++
		} else if f.writerEpoch >= f.fence && f.isRingThere {
			f.isWriterIn = true
		}
	case "drain":
		f.isDrainAssigned = f.world.Assignments["a"] != nil
		f.isDrainIn = f.isDrainAssigned && f.isRingThere
		if f.isDrainIn {
			f.stored = f.appended
			f.head = f.stored
		}
	case "target receives":
		f.stage = f.world.Deletions["a"].GetStage()
	case "target":
		f.target()
	case "report":
		if len(f.reported) > 0 {
			f.world.Targets["t1"] = &api.TargetState{Agent: &api.Agent{Id: "t1", Host: testHost}, Rings: f.reported[:1]}
			f.reported = f.reported[1:]
		}
	case "control":
		f.control()
	}
}

func (f *fabricOf) target() {
	state := &api.RingState{Stream: "a", Uri: "mem:/a", EpochMin: f.fence}
	switch {
	case f.stage == api.DeletionStage_DELETION_STAGE_DRAINING:
		f.fence = 4
		state.EpochMin, state.Closed = f.fence, !f.isWriterIn
	case f.stage == api.DeletionStage_DELETION_STAGE_REMOVING && f.isRingThere && !f.isWriterIn && !f.isDrainIn &&
		f.head == f.appended:
		f.isRingThere = false
	}
	if f.isRingThere {
		state.RingUuid, state.AppendedLsn, state.HeadLsn, state.LagBytes = []byte("u"), f.appended, f.head,
			f.appended-f.head
	} else {
		state.Closed, state.Removed = true, true
	}
	f.reported = append(f.reported, state)
}

// control does some of what it plans, and dies.
func (f *fabricOf) control() {
	actions := Plan(f.world, testNow)
	for _, action := range actions[:rapid.IntRange(0, len(actions)).Draw(f.rt, "until it dies")] {
		if action.Retire != "" && (f.head != f.appended || f.isWriterIn) {
			f.rt.Fatalf("retired with a writer in (%v), or %d of %d stored", f.isWriterIn, f.head, f.appended)
		}
		if action.Forget != "" && f.isRingThere {
			f.rt.Fatalf("forgot a stream whose ring is there")
		}
		f.world = apply(f.world, []Action{action})
	}
}

// Whatever the order of what happens, and wherever control planes die: no ring goes while something is in it, and in
// the end the stream is gone with all that was written in the store.
func TestEnd_GoesOnWhereverAControlPlaneDies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFabric(rt)
		everybody := []string{"writer", "drain", "target receives", "target", "report", "control"}
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			f.step(rapid.SampledFrom(everybody).Draw(rt, "who"))
		}
		for range 12 { // then all get on
			for _, who := range everybody {
				f.step(who)
			}
			for len(f.reported) > 0 {
				f.step("report")
			}
			f.world = apply(f.world, Plan(f.world, testNow))
		}
		if f.world.Streams["a"] != nil || f.isRingThere || f.world.Rings["a"] != nil ||
			f.world.Assignments["a"] != nil {
			rt.Fatalf("not gone: stage %v, ring there %v, %s", f.world.Deletions["a"].Stage, f.isRingThere,
				describe(Plan(f.world, testNow)))
		}
		if f.stored != f.appended {
			rt.Fatalf("stored %d of %d", f.stored, f.appended)
		}
		if actions := Plan(f.world, testNow); len(actions) > 0 {
			rt.Fatalf("there is still something to do: %s", describe(actions))
		}
	})
}

// endApplied is the world after Retire and Forget.
func endApplied(world World, action Action) World {
	name := action.Retire + action.Forget
	if name == "" {
		return world
	}
	world.Deletions, world.Assignments = maps.Clone(world.Deletions), maps.Clone(world.Assignments)
	stage := api.DeletionStage_DELETION_STAGE_REMOVING
	delete(world.Assignments, name)
	if action.Forget != "" {
		stage = api.DeletionStage_DELETION_STAGE_ENDED
		world.Streams, world.Rings, world.Admissions, world.Epochs = maps.Clone(world.Streams), maps.Clone(world.Rings),
			maps.Clone(world.Admissions), maps.Clone(world.Epochs)
		delete(world.Streams, name)
		delete(world.Rings, name)
		delete(world.Admissions, name)
		delete(world.Epochs, name)
	}
	before := world.Deletions[name]
	world.Deletions[name] = &api.Deletion{
		Name: name, StreamId: before.StreamId, Stage: stage,
		EpochMin: before.EpochMin,
	}
	return world
}

func TestEnd(t *testing.T) {
	ending := func(world World, stage api.DeletionStage) World {
		world.Deletions = map[string]*api.Deletion{"a": {Name: "a", Stage: stage, EpochMin: 4}}
		return world
	}
	seen := func(world World, change func(*api.RingState)) World {
		change(SeenRing(world.Targets, world.Rings["a"]))
		return world
	}
	const draining, removing = api.DeletionStage_DELETION_STAGE_DRAINING, api.DeletionStage_DELETION_STAGE_REMOVING
	placed := func() World {
		return emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").bound("a",
			"u").withDrain("d1", testHost).withAssignment("a", "d1", "u")
	}
	for _, tc := range []struct {
		name  string
		world World
		want  string
	}{
		{
			"never placed is forgotten", ending(emptyWorld().withStream("a").withTarget("t1", testHost), draining),
			"forget a;",
		},
		{"not closed yet waits", ending(placed(), draining), ""},
		{"closed below an older fence waits", seen(ending(placed(), draining),
			func(r *api.RingState) { r.Closed, r.EpochMin = true, 3 }), ""},
		{"closed with records waits", seen(ending(placed(), draining),
			func(r *api.RingState) { r.Closed, r.EpochMin, r.LagBytes = true, 4, 64 }), ""},
		{"closed and empty is retired", seen(ending(placed(), draining),
			func(r *api.RingState) { r.Closed, r.EpochMin = true, 4 }), "retire a;"},
		{"another drain takes over what is left", ending(placed().withDrain("d2", testHost).withAssignment("a", "gone",
			"u"), draining), "assign a(u) to d1 #6;"},
		{"being removed is not drained again", ending(emptyWorld().withStream("a").withTarget("t1",
			testHost).withRing("a", "t1", "u").bound("a", "u").withDrain("d1", testHost), removing), ""},
		{"removed is forgotten", seen(ending(placed(), removing),
			func(r *api.RingState) { r.Removed, r.RingUuid = true, nil }), "forget a;"},
		{"ended does nothing", ending(emptyWorld(), api.DeletionStage_DELETION_STAGE_ENDED), ""},
		{"a new stream of the name is placed", ending(emptyWorld().withStream("a").withTarget("t1", testHost),
			api.DeletionStage_DELETION_STAGE_ENDED), "place a on t1;"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(Plan(tc.world, testNow)); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// The last report of a stream that is gone says nothing of a new one of its name.
func TestSeenRing_OfAnEarlierStreamIsNotSeen(t *testing.T) {
	world := emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u")
	world.Streams["a"].StreamId = 8
	SeenRing(world.Targets, world.Rings["a"]).StreamId = 7
	if got := describe(Plan(world, testNow)); got != "" {
		t.Errorf("bound to the ring of another stream: %s", got)
	}
	world.Targets["t1"].Rings[0].StreamId = 8
	if got, want := describe(Plan(world, testNow)), fmt.Sprintf("bind a to %s;", "u"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// checkEnd: a step of an end is taken only by a stream that ends, and only when what it waits for has been seen.
func checkEnd(rt *rapid.T, world World, action Action) {
	name := action.Retire + action.Forget
	deletion, ring := world.Deletions[name], world.Rings[name]
	seen := SeenRing(world.Targets, ring)
	if !IsBeingDeleted(deletion) {
		rt.Fatalf("ended what is to stay: %s", describe([]Action{action}))
	}
	if action.Retire != "" && (!seen.Closed || len(seen.RingUuid) > 0 &&
		(seen.LagBytes > 0 || seen.EpochMin < deletion.EpochMin)) {
		rt.Fatalf("retired too early: %s", describe([]Action{action}))
	}
	if action.Forget != "" && ring != nil && !deletion.RingLost &&
		!(deletion.Stage == api.DeletionStage_DELETION_STAGE_REMOVING && seen.GetRemoved()) {
		rt.Fatalf("forgot too early: %s", describe([]Action{action}))
	}
}
