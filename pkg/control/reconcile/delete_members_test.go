package reconcile

import (
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// endingMembers is a stream of three members of which each is as its function makes it.
func endingMembers(stage api.DeletionStage, isRingLost bool, members ...func(*api.RingState)) World {
	world := emptyWorld().withStream("a").withDrain("d1", testHost)
	world.Streams["a"].Spec.Members, world.Streams["a"].K = 3, 2
	for i, change := range members {
		target := string(rune('t')) + string(rune('1'+i))
		world.withTarget(target, testHost)
		state := &api.RingState{Stream: "a", Uri: "mem:/" + target, RingUuid: []byte(target), EpochMin: 4}
		change(state)
		world.Targets[target].Rings = []*api.RingState{state}
		world.Rings[MemberKey("a", i)] = &api.RingSpec{
			Target: target, Stream: world.Streams["a"], Member: uint32(i),
			RingUuid: []byte(target),
		}
	}
	world.Assignments["a"] = &api.Assignment{
		Stream: "a", Drain: "d1", Target: "t1", RingUuid: []byte("t1"),
		Generation: 5,
	}
	world.Deletions = map[string]*api.Deletion{"a": {Name: "a", Stage: stage, EpochMin: 4, RingLost: isRingLost}}
	return world
}

// A quorum is enough to write, and not enough to remove: of each member it must be known that it is closed and empty,
// and then that it is gone.
func TestEnd_EachMemberCounts(t *testing.T) {
	const draining, removing = api.DeletionStage_DELETION_STAGE_DRAINING, api.DeletionStage_DELETION_STAGE_REMOVING
	closed := func(r *api.RingState) { r.Closed = true }
	lagging := func(r *api.RingState) { r.Closed, r.LagBytes = true, 64 }
	held := func(r *api.RingState) { r.WriterHeld = true }
	missing := func(r *api.RingState) { r.RingUuid, r.Error = nil, "missing" }
	removed := func(r *api.RingState) { r.RingUuid, r.Closed, r.Removed = nil, true, true }
	for _, tc := range []struct {
		name  string
		world World
		want  string // of its end; other steps go on meanwhile
	}{
		{"all closed and empty", endingMembers(draining, false, closed, closed, closed), "retire a;"},
		{"a writer has one", endingMembers(draining, false, closed, closed, held), ""},
		{"records in one", endingMembers(draining, false, closed, lagging, closed), ""},
		{"one is missing", endingMembers(draining, false, closed, closed, missing), ""},
		{"one is lost, and the operator said so", endingMembers(draining, true, closed, closed, missing), "retire a;"},
		{"one is lost, and records in another", endingMembers(draining, true, closed, lagging, missing), ""},
		{"two are removed", endingMembers(removing, false, removed, removed, closed), ""},
		{"all are removed", endingMembers(removing, false, removed, removed, removed), "forget a;"},
		{"what was not lost is removed", endingMembers(removing, true, removed, missing, removed), "forget a;"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			for _, action := range Plan(tc.world, testNow) {
				if action.Retire+action.Forget != "" {
					got += describe([]Action{action})
				}
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
