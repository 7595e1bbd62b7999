package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// withMembers is a stream with so many rings.
func (w World) withMembers(name string, members, needed uint32, domain string) World {
	w.Streams[name] = &api.Stream{K: needed, Spec: &api.StreamSpec{
		Name: name, Members: members, Needed: needed,
		FailureDomain: domain, RingSizeBytes: 100,
	}}
	return w
}

// reported lets the targets provide what was placed on them, all but those that are left out.
func (w World) reported(without ...string) World {
	for key, ring := range w.Rings {
		if strings.Contains(strings.Join(without, " "), ring.Target) || SeenRing(w.Targets, ring) != nil {
			continue
		}
		state := &api.RingState{
			Stream: ring.Stream.Spec.Name, Target: ring.Target, Uri: "mem:/" + key,
			RingUuid: []byte(
				"u-" + key,
			), RemoteUris: []string{"ofi:tcp://" + ring.Target + ":1/" + ring.Stream.Spec.Name},
		}
		w.Targets[ring.Target].Rings = append(w.Targets[ring.Target].Rings, state)
	}
	return w
}

// applied is the world with a plan carried out.
func applied(world World) World {
	world = apply(world, nil)
	for _, action := range Plan(world, testNow) {
		switch {
		case action.Place != nil:
			world.Rings[MemberKey(action.Place.Stream.Spec.Name, int(action.Place.Member))] = action.Place
		case action.Bind != nil:
			world.Rings[MemberKey(action.Bind.Stream.Spec.Name, int(action.Bind.Member))] = action.Bind
		case action.Assign != nil:
			world.Assignments[action.Assign.Stream] = action.Assign
		}
	}
	return world
}

func TestPlan_MembersOnDifferentHosts(t *testing.T) {
	world := emptyWorld().withMembers("a", 3, 2, "host").withTarget("t1", "alpha").withTarget("t2",
		"alpha").withTarget("t3", "beta").withDrain("d", "delta")
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("placed %s on two hosts", describe(actions))
	}
	if why := WhyNotPlaced(world, "a", nil,
		testNow); why != "3 members need targets in as many hosts, and there are 2 (alpha, beta)" {
		t.Errorf("refused with %q", why)
	}
	world = applied(world.withTarget("t4", "gamma"))
	if len(world.Rings) != 3 {
		t.Fatalf("placed %d rings", len(world.Rings))
	}
	world = applied(applied(world.reported("t4")))
	if world.Assignments["a"] != nil {
		t.Fatal("assigned although a ring was never there")
	}
	world = applied(applied(world.reported()))
	assignment := world.Assignments["a"]
	uri := "members:2"
	for _, member := range assignment.GetMembers() {
		uri += " " + member.Uri
	}
	if len(assignment.GetMembers()) != 3 || assignment.Uri != uri {
		t.Fatalf("assigned %v", assignment)
	}
	// One target dies, and comes back at another port: the drain is told, and otherwise keeps what it has.
	delete(world.LiveTargets, "t4")
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("a dead target makes %s", describe(actions))
	}
	world.Targets["t4"].Rings[0].RemoteUris = nil
	if actions := Plan(world, testNow); len(actions) != 0 {
		t.Fatalf("a target that does not listen just now makes %s", describe(actions))
	}
	world.Targets["t4"].Rings[0].RemoteUris = []string{"ofi:tcp://t4:2/a"}
	if actions := Plan(world, testNow); len(actions) != 1 || !strings.Contains(actions[0].Assign.GetUri(), "t4:2") ||
		actions[0].Assign.Generation != assignment.Generation+1 {
		t.Fatalf("another port makes %s", describe(actions))
	}
}

func TestPlan_MembersInDifferentRacks(t *testing.T) {
	world := emptyWorld().withMembers("a", 2, 2, "rack").withTarget("t1", "alpha").withTarget("t2",
		"beta").withTarget("t3", "gamma")
	world.TargetSpecs = map[string]*api.TargetSpec{
		"alpha": {Host: "alpha", Rack: "r1"},
		"beta":  {Host: "beta", Rack: "r1"},
	}
	if why := WhyNotPlaced(world, "a", nil, testNow); why != "2 members need targets in as many racks, and there are "+
		"1 (/r1); of hosts gamma no rack is declared: farlog apply" {
		t.Errorf("refused with %q", why)
	}
	// another rack of the same name
	world.TargetSpecs["gamma"] = &api.TargetSpec{Host: "gamma", Rack: "r1", Site: "london"}
	world = applied(world)
	if len(world.Rings) != 2 || world.Rings["a"].Target == world.Rings["a#1"].Target {
		t.Fatalf("placed %v", world.Rings)
	}
}

// Whatever the world: members are placed all or not at all, each in a failure domain of its own and where there is
// space; they stay where they are, and a ring that was bound is bound for good.
func TestPlan_MemberProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		world := emptyWorld()
		world.TargetSpecs = map[string]*api.TargetSpec{}
		hosts := []string{"alpha", "beta", "gamma", "delta"}
		for i := range rapid.IntRange(0, 6).Draw(rt, "targets") {
			world.withTarget(fmt.Sprintf("t%d", i), rapid.SampledFrom(hosts).Draw(rt, "host"))
		}
		for _, host := range hosts {
			world.TargetSpecs[host] = &api.TargetSpec{
				Host:          host,
				Rack:          rapid.SampledFrom([]string{"", "r1", "r2", "r3"}).Draw(rt, "rack"),
				CapacityBytes: rapid.SampledFrom([]uint64{0, 100, 200}).Draw(rt, "capacity"),
			}
		}
		for i := range rapid.IntRange(1, 4).Draw(rt, "streams") {
			members := rapid.Uint32Range(1, 4).Draw(rt, "members")
			world.withMembers(fmt.Sprintf("s%d", i), members, rapid.Uint32Range(1, members).Draw(rt, "needed"),
				rapid.SampledFrom([]string{"host", "rack"}).Draw(rt, "domain"))
		}
		world.withDrain("d", "omega")
		before := applied(world)
		if actions := Plan(before, testNow); len(actions) != 0 {
			rt.Fatalf("plan does not settle: %s", describe(actions))
		}
		checkMembers(rt, before)
		after := applied(applied(before.reported()))
		for key, ring := range before.Rings {
			if after.Rings[key].Target != ring.Target || string(after.Rings[key].RingUuid) != "u-"+key {
				rt.Fatalf("%s was on %s, is on %s and bound to %q", key, ring.Target, after.Rings[key].Target,
					after.Rings[key].RingUuid)
			}
		}
		again := applied(after)
		for key, ring := range after.Rings {
			if string(again.Rings[key].RingUuid) != string(ring.RingUuid) {
				rt.Fatalf("%s was bound again", key)
			}
		}
	})
}

func checkMembers(rt *rapid.T, world World) {
	taken := map[string]uint64{}
	for name, stream := range world.Streams {
		specs, isWhole := RingSpecs(world.Rings, stream)
		domains := map[string]bool{}
		for _, spec := range specs {
			if (spec != nil) != isWhole {
				rt.Fatalf("%s has a part of its members: %v", name, specs)
			}
			if spec != nil {
				domains[domainOf(world, stream, spec.Target)] = true
				taken[hostOf(world, spec.Target)] += 100
			}
		}
		if isWhole && (len(domains) != len(specs) || domains[""]) {
			rt.Fatalf("%s: %d members in %d failure domains", name, len(specs), len(domains))
		}
		if !isWhole && WhyNotPlaced(world, name, FreeSpace(world, world.TargetSpecs), testNow) == "" {
			rt.Fatalf("%s is not placed, and nobody says why", name)
		}
	}
	for host, spec := range world.TargetSpecs {
		if spec.CapacityBytes > 0 && taken[host] > spec.CapacityBytes {
			rt.Fatalf("host %s has %d bytes and was given %d", host, spec.CapacityBytes, taken[host])
		}
	}
}
