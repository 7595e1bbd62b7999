package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const testHost = "alpha"

// plans are worlds, and what is done in each.
var plans = []struct {
	name  string
	world World
	want  string
}{
	{"nothing", emptyWorld(), ""},
	{"stream without a target waits", emptyWorld().withStream("a"), ""},
	{"stream is placed", emptyWorld().withStream("a").withTarget("t1", testHost), "place a on t1;"},
	{
		"streams are spread",
		emptyWorld().withStream("a").withStream("b").withTarget("t1", testHost).withTarget("t2", testHost),
		"place a on t1;place b on t2;",
	},
	{
		"emptier target is taken", emptyWorld().withStream("a").withStream("b").withTarget("t1",
			testHost).withTarget("t2", testHost).withRing("a", "t1", ""),
		"place b on t2;",
	},
	{"ring not reported yet has no drain", emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a",
		"t1", "").withDrain("d1", testHost), ""},
	{
		"ready ring gets a drain", emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1",
			"u").withDrain("d1", testHost),
		"bind a to u;assign a(u) to d1 #1;",
	},
	{"drain of another host does not reach it", emptyWorld().withStream("a").withTarget("t1",
		testHost).withRing("a", "t1", "u").bound("a", "u").withDrain("d1", "beta"), ""},
	{
		"drain of another host reaches a ring that listens, the fastest way", remoteWorld().withDrain("d1", "beta"),
		"assign a(u) to d1 #1 by verbs://x:1/a;",
	},
	{
		"drain says by what it reaches other hosts", remoteWorld().withDrain("d1", "beta").reachingBy("d1", "ofi"),
		"assign a(u) to d1 #1 by ofi:tcp://x:2/a;",
	},
	{
		"drain without what the target offers does not reach it",
		remoteWorld().listening("a", "ofi:tcp://x:2/a").withDrain("d1", "beta").reachingBy("d1", "verbs"), "",
	},
	{
		"drain beside the ring comes first", remoteWorld().withDrain("d1", "beta").withDrain("d2", testHost),
		"assign a(u) to d2 #1;",
	},
	{
		"far drain that lives keeps it when one beside the ring comes",
		remoteWorld().withDrain("d1", "beta").withDrain("d2", testHost).
			withAssignment("a", "d1", "u").assignedTo("a", "verbs://x:1/a"), "",
	},
	{
		"far drain is told where the ring is now", remoteWorld().listening("a", "ofi:tcp://y:3/a").withDrain("d1",
			"beta").
			withAssignment("a", "d1", "u").assignedTo("a", "ofi:tcp://x:2/a"),
		"assign a(u) to d1 #6 by ofi:tcp://y:3/a;",
	},
	{
		"far drain of a target that does not listen just now is left alone",
		remoteWorld().listening("a").withDrain("d1", "beta").
			withAssignment("a", "d1", "u").assignedTo("a", "ofi:tcp://x:2/a"), "",
	},
	{"writer that has not come yet", remoteWorld().admitted("a", 3, 2), ""},
	{"writer that is in keeps its grant", remoteWorld().admitted("a", 3, 3), "keep a #3;"},
	{"living drain keeps it", emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").
		bound("a", "u").withDrain("d1", testHost).withDrain("d0", testHost).withAssignment("a", "d1", "u"), ""},
	{"dead drain is replaced", emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").
		bound("a", "u").withDrain("d2", testHost).withAssignment("a", "d1", "u"), "assign a(u) to d2 #6;"},
	{"dead drain keeps it when there is no other", emptyWorld().withStream("a").withTarget("t1",
		testHost).withRing("a", "t1", "u").
		bound("a", "u").withAssignment("a", "d1", "u"), ""},
	{
		"ring formatted again is not taken for the stream's",
		emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "v").
			bound("a", "u").withDrain("d1", testHost).withAssignment("a", "d1", "u"), "",
	},
	{
		"ring formatted again before it was bound is not taken either",
		emptyWorld().withStream("a").withTarget("t1", testHost).
			withRing("a", "t1", "v").withDrain("d1", testHost).withAssignment("a", "d1", "u"), "bind a to u;",
	},
	{
		"missing ring leaves the drain what it has open",
		emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "").
			bound("a", "u").withDrain("d2", testHost).withAssignment("a", "d1", "u"), "",
	},
	{
		"dead drain is not replaced by one of another store",
		emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").
			bound("a", "u").granted("a").withDrain("d2", testHost).storing("d2", "other").withAssignment("a", "d1",
			"u").givenStore("a", "one"), "",
	},
	{"dead drain is replaced by one of its store", emptyWorld().withStream("a").withTarget("t1",
		testHost).withRing("a", "t1", "u").
		bound("a", "u").granted("a").withDrain("d2", testHost).storing("d2", "other").withDrain("d3",
		testHost).storing("d3", "one").
		withAssignment("a", "d1", "u").givenStore("a", "one"), "assign a(u) to d3 #6;"},
	{
		"drain that came back with another store is replaced",
		emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").
			bound("a", "u").granted("a").withDrain("d1", testHost).storing("d1", "other").withDrain("d2",
			testHost).storing("d2", "one").
			withAssignment("a", "d1", "u").givenStore("a", "one"), "assign a(u) to d2 #6;",
	},
	{
		"stream that never had a writer goes to any store",
		emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").
			bound("a", "u").withDrain("d2", testHost).storing("d2", "other").withAssignment("a", "d1",
			"u").givenStore("a", "one"),
		"assign a(u) to d2 #6;",
	},
}

func TestPlan(t *testing.T) {
	for _, tc := range plans {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(Plan(tc.world, testNow)); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestPlan_DeadTargetKeepsItsRings(t *testing.T) {
	world := emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").bound("a", "u").
		withDrain("d1", testHost).withAssignment("a", "d1", "u")
	delete(world.LiveTargets, "t1")
	world.withTarget("t2", testHost)
	if got := describe(Plan(world, testNow)); got != "" {
		t.Errorf("a ring that may hold acknowledged records was moved: %q", got)
	}
}

func drawWorld(rt *rapid.T) World {
	world := emptyWorld()
	hosts := []string{"alpha", "beta"}
	for i := range rapid.IntRange(0, 4).Draw(rt, "targets") {
		world.withTarget(fmt.Sprintf("t%d", i), rapid.SampledFrom(hosts).Draw(rt, "target host"))
	}
	for i := range rapid.IntRange(0, 4).Draw(rt, "drains") {
		world.withDrain(fmt.Sprintf("d%d", i), rapid.SampledFrom(hosts).Draw(rt, "drain host"))
		world.reachingBy(fmt.Sprintf("d%d", i), rapid.SampledFrom([]string{"", "ofi", "verbs"}).Draw(rt,
			"drain transport"))
		world.storing(fmt.Sprintf("d%d", i), rapid.SampledFrom([]string{"one", "other"}).Draw(rt, "drain store"))
	}
	world.TargetSpecs = map[string]*api.TargetSpec{}
	for _, host := range hosts {
		if rapid.Bool().Draw(rt, "declared") {
			world.TargetSpecs[host] = &api.TargetSpec{
				Host:          host,
				CapacityBytes: rapid.SampledFrom([]uint64{0, 1, 100, 250}).Draw(rt, "capacity"),
				Closed:        rapid.Bool().Draw(rt, "closed"),
			}
		}
	}
	world.Deletions = map[string]*api.Deletion{}
	for i := range rapid.IntRange(0, 8).Draw(rt, "streams") {
		drawStream(rt, world, fmt.Sprintf("s%d", i))
	}
	for _, id := range sortedNames(world.LiveTargets) {
		world.LiveTargets[id].Regions = rapid.SampledFrom([][]*api.Region{
			nil, regionsOf(api.Level_LEVEL_VISIBLE),
			regionsOf(api.Level_LEVEL_VISIBLE, api.Level_LEVEL_PERSISTENT),
		}).Draw(rt, "regions")
		if rapid.IntRange(0, 3).Draw(rt, "dead") == 0 {
			delete(world.LiveTargets, id)
		}
	}
	return world
}

func drawStream(rt *rapid.T, world World, name string) {
	world.withStream(name)
	if rapid.IntRange(0, 3).Draw(rt, "ending") == 0 {
		world.Deletions[name] = &api.Deletion{
			Name:  name,
			Stage: api.DeletionStage(rapid.IntRange(1, 3).Draw(rt, "stage")), EpochMin: 4,
			RingLost: rapid.IntRange(0, 5).Draw(rt, "lost") == 0,
		}
	}
	spec := world.Streams[name].Spec
	spec.RingSizeBytes = rapid.SampledFrom([]uint64{50, 100}).Draw(rt, "size")
	spec.Level = rapid.SampledFrom([]api.Level{api.Level_LEVEL_VISIBLE, api.Level_LEVEL_PERSISTENT}).Draw(rt,
		"level")
	spec.TargetHost = rapid.SampledFrom([]string{"", "", "alpha", "beta"}).Draw(rt, "target host wanted")
	spec.DrainHost = rapid.SampledFrom([]string{"", "", "alpha", "beta"}).Draw(rt, "drain host wanted")
	if len(world.LiveTargets) == 0 || !rapid.Bool().Draw(rt, "placed") {
		return
	}
	drawRing(rt, world, name)
}

// drawRing gives a stream a ring, and what is known of it.
func drawRing(rt *rapid.T, world World, name string) {
	target := fmt.Sprintf("t%d", rapid.IntRange(0, len(world.LiveTargets)-1).Draw(rt, "on"))
	world.withRing(name, target, rapid.SampledFrom([]string{"", "u", "v"}).Draw(rt, "uuid"))
	world.listening(name, rapid.SampledFrom([][]string{
		nil,
		{"ofi:tcp://x:2/" + name},
		{"verbs://x:1/" + name},
	}).Draw(rt, "far")...)
	if ring := SeenRing(world.Targets, world.Rings[name]); ring != nil &&
		rapid.Bool().Draw(rt, "closed for the end") {
		ring.Closed, ring.EpochMin, ring.LagBytes = true, rapid.Uint32Range(3, 5).Draw(rt, "fence"),
			rapid.Uint64Range(0, 1).Draw(rt, "lag")
		ring.Removed = rapid.Bool().Draw(rt, "removed") &&
			world.Deletions[name].GetStage() == api.DeletionStage_DELETION_STAGE_REMOVING
	}
	if ring := SeenRing(world.Targets, world.Rings[name]); ring != nil && rapid.Bool().Draw(rt, "admitted") {
		world.admitted(name, 3, rapid.Uint32Range(0, 4).Draw(rt, "opened"))
	}
	if rapid.Bool().Draw(rt, "bound") {
		world.bound(name, "u")
	}
	if rapid.Bool().Draw(rt, "granted") {
		world.granted(name)
	}
	if seen := SeenRing(world.Targets, world.Rings[name]); rapid.IntRange(0, 2).Draw(rt, "missing") == 0 &&
		len(seen.GetRingUuid()) == 0 {
		world.missing(name, rapid.Uint32Range(0, 1).Draw(rt, "written by URI"))
	}
	if rapid.Bool().Draw(rt, "assigned") {
		world.withAssignment(name, fmt.Sprintf("d%d", rapid.IntRange(0, 5).Draw(rt, "to")), "u")
		world.givenStore(name, rapid.SampledFrom([]string{"", "one", "other"}).Draw(rt, "given store"))
	}
}

func apply(world World, actions []Action) World {
	world.Rings, world.Assignments, world.Admissions = maps.Clone(world.Rings), maps.Clone(world.Assignments),
		maps.Clone(world.Admissions)
	for _, action := range actions {
		if action.Place != nil {
			world.Rings[action.Place.Stream.Spec.Name] = action.Place
		}
		if ring := action.Renew; ring != nil {
			world.Rings[ring.Stream.Spec.Name] = ring
		}
		if action.Bind != nil {
			world.Rings[action.Bind.Stream.Spec.Name] = action.Bind
		}
		if action.Assign != nil {
			world.Assignments[action.Assign.Stream] = action.Assign
		}
		if action.Keep != nil {
			world.Admissions[action.Keep.Stream] = &api.Admission{}
		}
		world = endApplied(world, action)
	}
	return world
}

// What must hold whatever the world: a plan settles at once, never touches what works, never names the dead or the
// unreachable, never splits a stream over two rings or stores, and raises the generation of what it touches.
func TestPlan_Properties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		world := drawWorld(rt)
		actions := Plan(world, testNow)
		after := apply(world, actions)
		isMaking := func(action Action) bool {
			return action.Forget != "" || action.Renew != nil || action.Place != nil &&
				world.Rings[action.Place.Stream.Spec.Name] != nil
		}
		// what is gone, or moves, leaves space for others, and what is to be made again may be so elsewhere, where that
		// leaves space again
		if slices.ContainsFunc(actions, isMaking) {
			for range 2 {
				after = apply(after, Plan(after, testNow))
			}
		}
		if again := Plan(after, testNow); len(again) != 0 {
			rt.Fatalf("plan does not settle: %q then %q", describe(actions), describe(again))
		}
		if twice := describe(Plan(world, testNow)); twice != describe(actions) {
			rt.Fatalf("plan is not the same twice: %q and %q", describe(actions), twice)
		}
		seen := map[string]bool{}
		for _, action := range actions {
			checkAction(rt, world, action, seen)
		}
		checkCapacity(rt, world, apply(world, actions))
	})
}

// checkCapacity finds a host that was given a ring for which it has no space.
func checkCapacity(rt *rapid.T, before, after World) {
	taken := func(world World, host string) (bytes uint64) {
		for _, ring := range world.Rings {
			if hostOf(world, ring.Target) == host {
				bytes += ring.Stream.Spec.RingSizeBytes
			}
		}
		return bytes
	}
	for host, spec := range after.TargetSpecs {
		if now := taken(after, host); spec.CapacityBytes > 0 && now > spec.CapacityBytes && now > taken(before, host) {
			rt.Fatalf("host %s has a capacity of %d bytes and was given %d", host, spec.CapacityBytes, now)
		}
	}
}

// checkRenewal finds a ring that is wanted again although something may be in it.
func checkRenewal(rt *rapid.T, world World, action Action) {
	ring := action.Renew
	former := world.Rings[ring.Stream.Spec.Name]
	seen := SeenRing(world.Targets, former)
	if len(former.RingUuid) == 0 { // bound by the same plan, to what a drain was told of
		former = &api.RingSpec{Target: former.Target, RingUuid: world.Assignments[ring.Stream.Spec.Name].GetRingUuid()}
	}
	if world.Epochs[ring.Stream.Spec.Name] > 0 || !seen.GetMissing() || seen.WriterEpoch > 0 ||
		former.Target != ring.Target || string(former.RingUuid) != string(ring.LostUuid) || len(ring.RingUuid) > 0 {
		rt.Fatalf("wanted again although it may hold records: %s", describe([]Action{action}))
	}
}

func checkAction(rt *rapid.T, world World, action Action, seen map[string]bool) {
	if name := action.Retire + action.Forget; name != "" {
		checkEnd(rt, world, action)
		return
	}
	switch {
	case action.Place != nil:
		checkPlacement(rt, world, action)
	case action.Renew != nil:
		checkRenewal(rt, world, action)
	case action.Bind != nil:
		if ring := action.Bind; len(ring.RingUuid) == 0 || len(world.Rings[ring.Stream.Spec.Name].RingUuid) > 0 {
			rt.Fatalf("bound to nothing, or again: %s", describe([]Action{action}))
		}
	case action.Keep != nil:
		writer := action.Keep
		if SeenRing(world.Targets, world.Rings[writer.Stream]).WriterEpoch != writer.Epoch {
			rt.Fatalf("kept a writer that is not in: %s", describe([]Action{action}))
		}
	default:
		checkAssignment(rt, world, action, seen)
	}
}

func checkPlacement(rt *rapid.T, world World, action Action) {
	ring := action.Place
	former := world.Rings[ring.Stream.Spec.Name]
	mayHoldRecords := former != nil && (world.Epochs[ring.Stream.Spec.Name] > 0 || len(former.RingUuid) > 0 ||
		len(SeenRing(world.Targets, former).GetRingUuid()) > 0)
	if world.LiveTargets[ring.Target] == nil || mayHoldRecords || former != nil &&
		world.LiveTargets[former.Target] != nil && givesLevel(world.LiveTargets[former.Target],
		ring.Stream.Spec.Level) {
		rt.Fatalf("bad placement: %s", describe([]Action{action}))
	}
	host, wanted := world.LiveTargets[ring.Target].Host, ring.Stream.Spec.TargetHost
	if !givesLevel(world.LiveTargets[ring.Target], ring.Stream.Spec.Level) {
		rt.Fatalf("placed where its level is not given: %s", describe([]Action{action}))
	}
	if wanted != "" && host != wanted || world.TargetSpecs[host].GetClosed() {
		rt.Fatalf("placed where it is not wanted: %s", describe([]Action{action}))
	}
}

func checkAssignment(rt *rapid.T, world World, action Action, seen map[string]bool) {
	to, current := action.Assign, world.Assignments[action.Assign.Stream]
	drain := world.LiveDrains[to.Drain]
	if drain == nil || seen[to.Stream] {
		rt.Fatalf("assigned to the dead, or twice: %s", describe([]Action{action}))
	}
	seen[to.Stream] = true
	if wanted := world.Streams[to.Stream].Spec.DrainHost; wanted != "" && drain.Host != wanted {
		rt.Fatalf("drained from another host than wanted: %s", describe([]Action{action}))
	}
	if current == nil || !WritesStore(world.LiveDrains[current.Drain], current) {
		if IsRemote(to.Uri) == (drain.Host == world.Targets[to.Target].Agent.Host) || IsRemote(to.Uri) &&
			!strings.HasPrefix(to.Uri, drain.Transport) {
			rt.Fatalf("drain does not reach the ring: %s", describe([]Action{action}))
		}
	}
	if current != nil {
		if to.Generation <= current.Generation {
			rt.Fatalf("generation does not rise: %s", describe([]Action{action}))
		}
		if string(to.RingUuid) != string(current.RingUuid) && len(world.Rings[to.Stream].LostUuid) == 0 {
			rt.Fatalf("another ring was taken: %s", describe([]Action{action}))
		}
		if given := string(current.StoreUuid); world.Epochs[to.Stream] > 0 && given != "" &&
			string(drain.StoreUuid) != given {
			rt.Fatalf("stream is split over two stores: %s", describe([]Action{action}))
		}
		isWhereWanted := isOnHost(world.LiveDrains[current.Drain], world.Streams[to.Stream].Spec.DrainHost)
		if isWhereWanted && WritesStore(world.LiveDrains[current.Drain], current) &&
			(current.Drain != to.Drain || isSameRing(current, to)) {
			rt.Fatalf("moved away from a living drain: %s", describe([]Action{action}))
		}
	}
}

// A stream goes to a drain that has the role on it, and leaves one that has lost it.
func TestPlan_DrainNeedsTheRole(t *testing.T) {
	uuid := []byte("0123456789abcdef")
	world := World{
		Streams: map[string]*api.Stream{"desk7/a": {Spec: &api.StreamSpec{Name: "desk7/a"}}},
		Rings: map[string]*api.RingSpec{"desk7/a": {
			Target: "t", RingUuid: uuid,
			Stream: &api.Stream{Spec: &api.StreamSpec{Name: "desk7/a"}},
		}},
		LiveTargets: map[string]*api.Agent{"t": {Id: "t", Host: "h"}},
		Targets: map[string]*api.TargetState{"t": {
			Agent: &api.Agent{Id: "t", Host: "h"},
			Rings: []*api.RingState{{Stream: "desk7/a", Uri: "mem:/a", RingUuid: uuid}},
		}},
		LiveDrains: map[string]*api.Agent{"d1": {Id: "d1", Host: "h", Streams: []string{"desk8/*"}}},
	}
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("a drain without the role got the stream: %+v", actions)
	}
	world.LiveDrains["d2"] = &api.Agent{Id: "d2", Host: "h", Streams: []string{"desk8/*", "desk7/**"}}
	actions := Plan(world, testNow)
	if len(actions) != 1 || actions[0].Assign.GetDrain() != "d2" {
		t.Fatalf("got %+v", actions)
	}
	world.Assignments = map[string]*api.Assignment{"desk7/a": actions[0].Assign}
	world.LiveDrains["d2"] = &api.Agent{Id: "d2", Host: "h", Streams: []string{"desk8/*"}}
	world.LiveDrains["d1"] = &api.Agent{Id: "d1", Host: "h", Streams: []string{"*"}}
	if actions = Plan(world, testNow); len(actions) != 1 || actions[0].Assign.GetDrain() != "d1" ||
		actions[0].Assign.Generation != 2 {
		t.Fatalf("got %+v", actions)
	}
}
