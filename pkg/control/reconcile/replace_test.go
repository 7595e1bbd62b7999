package reconcile

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// threeWritten is a stream on three hosts, granted once, each ring with the epoch of that, and a fourth host.
func threeWritten() World {
	world := emptyWorld().withMembers("a", 3, 2, "host").withTarget("t1", "alpha").withTarget("t2",
		"beta").withTarget("t3", "gamma").withDrain("d", "omega")
	world = applied(applied(applied(world).reported()))
	world.Epochs = map[string]uint32{"a": 1}
	for _, ring := range world.Rings {
		SeenRing(world.Targets, ring).WriterEpoch = 1
	}
	return world.withTarget("t4", "delta")
}

func memberAt(world World, target string) int {
	rings, _ := RingSpecs(world.Rings, world.Streams["a"])
	return MemberOn(rings, target)
}

func TestReplace_OneAtATimeInAFailureDomainOfItsOwn(t *testing.T) {
	world := threeWritten()
	member := memberAt(world, "t2")
	if _, why := ReplacementTarget(world, "a", member, "t1", testNow); !strings.Contains(why,
		"shares a failure domain (alpha)") {
		t.Errorf("t1: %q", why)
	}
	if _, why := ReplacementTarget(world, "a", member, "t2", testNow); !strings.Contains(why,
		"has the ring that is to be replaced") {
		t.Errorf("t2: %q", why)
	}
	target, why := ReplacementTarget(world, "a", member, "", testNow)
	if target != "t4" || why != "" || WhyNotReplace(world, "a", member) != "" {
		t.Fatalf("chose %q: %q", target, why)
	}
	key := MemberKey("a", member)
	former, before := world.Rings[key], proto.Clone(world.Assignments["a"]).(*api.Assignment)
	world.Rings[key] = Replaced(former, target, &api.Replacement{Reason: "test"})
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("before the new ring is there: %s", describe(actions))
	}
	// A ring of before, or one that was written, is not the new one.
	state := &api.RingState{
		Stream: "a", Target: "t4", Uri: "mem:/new", RingUuid: former.RingUuid,
		RemoteUris: []string{"ofi:tcp://t4:1/a"},
	}
	world.Targets["t4"].Rings = []*api.RingState{state}
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("bound to the former ring: %s", describe(actions))
	}
	state.RingUuid, state.WriterEpoch = []byte("u-new"), 1
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("bound to a ring that was written: %s", describe(actions))
	}
	state.WriterEpoch = 0
	world = applied(world)
	bound := world.Rings[key]
	if string(bound.RingUuid) != "u-new" || !bytes.Equal(bound.Replacement.FormerUuids[0], former.RingUuid) ||
		Counts(bound, state) {
		t.Fatalf("bound %v", bound)
	}
	after := world.Assignments["a"]
	if after.Generation != before.Generation+1 || after.Drain != before.Drain ||
		string(after.Members[member].RingUuid) != "u-new" || !strings.Contains(after.Uri, "t4:1") {
		t.Fatalf("assigned %v", after)
	}
	if why := WhyNotReplace(world, "a", memberAt(world, "t1")); !strings.Contains(why, "one at a time") {
		t.Errorf("a second one: %q", why)
	}
	if why := WhyNotReplace(world, "a", member); why != "" {
		t.Errorf("the new one again: %q", why)
	}
	state.WriterEpoch = 2
	if why := WhyNotReplace(world, "a", memberAt(world, "t1")); why != "" || !Counts(bound, state) {
		t.Errorf("a second one, when the first one counts: %q", why)
	}
}

func TestReplace_NotWhatIsThereAndMayBeAlone(t *testing.T) {
	world := threeWritten()
	member := memberAt(world, "t2")
	world.Streams["a"].K = 1
	if why := WhyNotReplace(world, "a", member); !strings.Contains(why, "what no other has") {
		t.Errorf("with one needed: %q", why)
	}
	delete(world.LiveTargets, "t2")
	if why := WhyNotReplace(world, "a", member); why != "" {
		t.Errorf("with one needed, and lost: %q", why)
	}
	world = threeWritten()
	world.Streams["a"].K = 3
	SeenRing(world.Targets, world.Rings[MemberKey("a", member)]).WriterHeld = true
	if why := WhyNotReplace(world, "a", member); !strings.Contains(why, "a writer needs all members") {
		t.Errorf("with all needed: %q", why)
	}
	world.Epochs["a"] = 0
	if why := WhyNotReplace(world, "a", member); !strings.Contains(why, "ever admitted") {
		t.Errorf("never written: %q", why)
	}
}

// An original member that never received an epoch tells nobody what was acknowledged: with it in the place of one that
// does, nobody could open the stream.
func TestReplace_BesideOneThatWasNeverTold(t *testing.T) {
	world := threeWritten()
	member, untold := memberAt(world, "t2"), memberAt(world, "t3")
	SeenRing(world.Targets, world.Rings[MemberKey("a", untold)]).WriterEpoch = 0
	if why := WhyNotReplace(world, "a", member); !strings.Contains(why,
		"the ring of target t3 never received an epoch") || !strings.Contains(why, "replace it first") {
		t.Errorf("one that tells, and is there: %q", why)
	}
	if why := WhyNotReplace(world, "a", untold); why != "" {
		t.Errorf("the untold one itself: %q", why)
	}
	delete(world.LiveTargets, "t2")
	if why := WhyNotReplace(world, "a", member); why != "" {
		t.Errorf("one that is lost: %q", why)
	}
	world = threeWritten()
	for _, ring := range world.Rings {
		SeenRing(world.Targets, ring).WriterEpoch = 0
	}
	if why := WhyNotReplace(world, "a", member); why != "" {
		t.Errorf("before anybody was told: %q", why)
	}
}

func TestTells_WhoKnowsAnEpochWhereOneDoes(t *testing.T) {
	ring := func(target string, isReplaced bool) *api.RingSpec {
		spec := &api.RingSpec{Target: target, RingUuid: []byte(target)}
		if isReplaced {
			spec.Replacement = new(api.Replacement)
		}
		return spec
	}
	rings := []*api.RingSpec{ring("t1", false), ring("t2", true), ring("t3", false), ring("t4", false)}
	// t4 was never reported
	seen := map[string]*api.RingState{
		"t1": {RingUuid: []byte("t1")}, "t2": {RingUuid: []byte("t2")},
		"t3": {RingUuid: []byte("t3")},
	}
	tells := func() []bool {
		return KnowAcknowledged(rings, func(ring *api.RingSpec) *api.RingState { return seen[ring.Target] })
	}
	if got := tells(); !slices.Equal(got, []bool{true, false, true, true}) {
		t.Errorf("before anybody was told: %v", got)
	}
	seen["t1"].WriterEpoch = 1
	if got := tells(); !slices.Equal(got, []bool{true, false, false, true}) || KnowingCount(got, -1) != 2 ||
		KnowingCount(got, 0) != 1 {
		t.Errorf("when one was told: %v", got)
	}
}
