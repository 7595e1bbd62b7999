package reconcile

import (
	"fmt"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What is declared of a drain's host decides whether it takes a further stream; it takes none away.
func TestMayTake_WhatIsDeclared(t *testing.T) {
	drain := &api.Agent{Id: "d1", Host: "c1", StoreDir: "/store"}
	world := World{LiveDrains: map[string]*api.Agent{"d1": drain, "d2": {Id: "d2", Host: "c1"}, "d3": {Id: "d3", Host: "c2"}}}
	loads := map[string]int{"d1": 1, "d2": 1, "d3": 7, "gone": 9}
	for _, test := range []struct {
		spec *api.DrainSpec
		want bool
	}{
		{nil, true},
		{&api.DrainSpec{Host: "c1"}, true},
		{&api.DrainSpec{Host: "c1", StreamsMax: 3}, true},
		{&api.DrainSpec{Host: "c1", StreamsMax: 2}, false},
		{&api.DrainSpec{Host: "c1", IsClosed: true}, false},
		{&api.DrainSpec{Host: "c1", StoreDir: "/store"}, true},
		{&api.DrainSpec{Host: "c1", StoreDir: "/other"}, false},
	} {
		world.DrainSpecs = map[string]*api.DrainSpec{"c1": test.spec}
		if got := mayTake(world, drain, loads); got != test.want {
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
	world.DrainSpecs["c1"] = &api.DrainSpec{Host: "c1", IsClosed: true}
	for _, action := range Plan(world, testNow) {
		if action.Assign != nil {
			t.Errorf("a closed drain is given, or loses, %v", action.Assign)
		}
	}
}
