package reconcile

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What is declared of a drain's host decides whether it takes a further stream; it takes none away.
func TestMayTake_WhatIsDeclared(t *testing.T) {
	drain := &api.Agent{Id: "d1", Host: "c1", StoreDir: "/store"}
	world := World{LiveDrains: map[string]*api.Agent{
		"d1": drain, "d2": {Id: "d2", Host: "c1"},
		"d3": {Id: "d3", Host: "c2"},
	}}
	loads := map[string]int{"d1": 1, "d2": 1, "d3": 7, "gone": 9}
	for _, test := range []struct {
		spec *api.DrainSpec
		want bool
	}{
		{nil, true},
		{&api.DrainSpec{Host: "c1"}, true},
		{&api.DrainSpec{Host: "c1", StreamsMax: 3}, true},
		{&api.DrainSpec{Host: "c1", StreamsMax: 2}, false},
		{&api.DrainSpec{Host: "c1", Closed: true}, false},
		{&api.DrainSpec{Host: "c1", StoreDir: "/store"}, true},
		{&api.DrainSpec{Host: "c1", StoreDir: "/other"}, false},
	} {
		world.DrainSpecs = map[string]*api.DrainSpec{"c1": test.spec}
		if got := mayDrain(world, drain, loads); got != test.want {
			t.Errorf("%v: %v", test.spec, got)
		}
	}
}

// A plan gives a host no more streams than were declared for it, and a drain that was closed keeps those it has.
func TestPlan_StreamsOfADeclaredDrain(t *testing.T) {
	world := emptyWorld().withTarget("t1", "c1").withDrain("d1", "c1")
	world.DrainSpecs = map[string]*api.DrainSpec{"c1": {Host: "c1", StreamsMax: 2}}
	for i := range 3 {
		name := fmt.Sprintf("s%d", i)
		world = world.withStream(name).withRing(name, "t1", name)
	}
	for range 4 {
		world = apply(world, Plan(world, testNow))
	}
	if len(world.Assignments) != 2 {
		t.Fatalf("%d streams are assigned, 2 were declared for the host", len(world.Assignments))
	}
	world.DrainSpecs["c1"] = &api.DrainSpec{Host: "c1", Closed: true}
	for _, action := range Plan(world, testNow) {
		if action.Assign != nil {
			t.Errorf("a closed drain is given, or loses, %v", action.Assign)
		}
	}
}

// Whoever has a stream without a drain is told what stands in the way of the one that is nearest to having it, and not
// to start another one.
func TestWhyNotDrained(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(World)
		want string
	}{
		{"none lives", func(w World) { clear(w.LiveDrains) }, "no drain is registered: start farlogd drain"},
		{
			"another host is declared", func(w World) { w.Streams["a"].Spec.DrainHost = "c2" },
			"no drain on host c2 is registered: start farlogd drain there, or declare another one",
		},
		{
			"no role", func(w World) { w.LiveDrains["d1"].Streams = []string{"b"} },
			"drain d1 has not the role drain on this stream: give it in the control plane's --access-file",
		},
		{
			"closed", func(w World) { w.DrainSpecs["c1"] = &api.DrainSpec{Closed: true} },
			"drain d1 takes no further stream: those on host c1 are declared closed",
		},
		{
			"another store", func(w World) { w.DrainSpecs["c1"] = &api.DrainSpec{StoreDir: "/s"} },
			"those on host c1 are declared to write store /s, it writes /d",
		},
		{
			"full", func(w World) { w.DrainSpecs["c1"] = &api.DrainSpec{StreamsMax: 2} },
			"those on host c1 may have 2 streams, and have them",
		},
		{"no listener", func(w World) { w.Targets["t1"].Rings[0].RemoteUris = nil }, "drain d1 is not on " +
			"the target's host: " +
			"start farlogd drain there, or to drain from another host give the target --listen"},
		{
			"another listener", func(w World) { w.LiveDrains["d1"].Transport = "verbs" },
			"drain d1 reaches other hosts by verbs alone, and target t1 does not listen by that",
		},
		{"the nearest tells", func(w World) {
			w.LiveDrains["d0"] = &api.Agent{Id: "d0", Host: "c0", Streams: []string{"b"}}
			w.LiveDrains["d2"] = &api.Agent{Id: "d2", Host: "c2", Streams: []string{"b"}}
			w.DrainSpecs["c1"] = &api.DrainSpec{Closed: true}
		}, "drain d1 takes no further stream"},
		{"nothing", func(World) {}, ""},
	} {
		world := emptyWorld().withTarget("t1", "s1").withDrain("d1", "c1").withStream("a").withRing("a", "t1",
			"u").bound("a", "u")
		world.DrainSpecs, world.LiveDrains["d1"].StoreDir = map[string]*api.DrainSpec{}, "/d"
		world.Targets["t1"].Rings[0].RemoteUris = []string{"ofi:tcp://s1:1/a"}
		test.edit(world)
		loads := map[string]int{"d1": 2}
		got := WhyNotDrained(world, "a", loads)
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, expected %q", test.name, got, test.want)
		}
		_, isGiven := assign(world, []*api.RingSpec{world.Rings["a"]}, "a", &tally{world: world, assigned: loads})
		if isGiven != (got == "") {
			t.Errorf("%s: it is given to a drain: %t", test.name, isGiven)
		}
	}
}
