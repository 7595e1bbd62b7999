package reconcile

import (
	"fmt"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func regionsOf(levels ...api.Level) (regions []*api.Region) {
	for i, level := range levels {
		regions = append(regions, &api.Region{Uri: fmt.Sprintf("mem:/region%d", i), Level: level})
	}
	return regions
}

// giving lets a target have regions of these levels.
func (w World) giving(id string, levels ...api.Level) World {
	w.LiveTargets[id].Regions = regionsOf(levels...)
	return w
}

func (w World) wanting(stream string, level api.Level) World {
	w.Streams[stream].Spec.Level = level
	return w
}

// missing lets a stream's target report that its ring is not there; writer is the last epoch that was seen in it.
func (w World) missing(stream string, writer uint32) World {
	target := w.Targets[w.Rings[stream].Target]
	target.Rings = append(target.Rings, &api.RingState{
		Stream: stream, Error: "is missing", Missing: true,
		WriterEpoch: writer,
	})
	return w
}

func (w World) dying(target string) World {
	delete(w.LiveTargets, target)
	return w
}

const (
	visible    = api.Level_LEVEL_VISIBLE
	persistent = api.Level_LEVEL_PERSISTENT
)

// A ring goes only where its level is given, however idle the others are; one that nobody made goes to where it can be
// made; one in which something may be goes nowhere.
func TestPlan_LevelsAndBlankRings(t *testing.T) {
	two := func() World { return emptyWorld().withTarget("t1", "one").withTarget("t2", "two") }
	lost := func() World { return two().withStream("a").withRing("a", "t1", "").bound("a", "u") }
	cases := []struct {
		name  string
		world World
		want  string
	}{
		{
			"idle target of a lower level is passed over",
			two().giving("t1", visible).giving("t2", persistent).withStream("b").withRing("b", "t2",
				"").withStream("a").wanting("a", persistent), "place a on t2;",
		},
		{"one region that gives it is enough", two().giving("t1", visible, persistent).giving("t2",
			visible).withStream("a").wanting("a", persistent), "place a on t1;"},
		{"no target gives it", two().giving("t1", visible).giving("t2", visible).withStream("a").wanting("a",
			persistent), ""},
		{"region that cannot be used gives nothing", two().giving("t1", api.Level_LEVEL_UNSPECIFIED).giving("t2",
			visible).withStream("a"), "place a on t2;"},
		{
			"unmade ring of a dead target moves", two().withStream("a").withRing("a", "t1", "").dying("t1"),
			"place a on t2;",
		},
		{"unmade ring of a living target stays", two().withStream("a").withRing("a", "t1", ""), ""},
		{"unmade ring stays where no other target is", emptyWorld().withTarget("t1",
			"one").withStream("a").withRing("a", "t1", "").dying("t1"), ""},
		{
			"unmade ring moves to where its level is given",
			two().giving("t1", visible).giving("t2", persistent).withStream("a").wanting("a", persistent).withRing("a",
				"t1", ""), "place a on t2;",
		},
		{
			"reported ring of a dead target does not move", two().withStream("a").withRing("a", "t1", "u").dying("t1"),
			"bind a to u;",
		},
		{"bound ring of a dead target does not move", two().withStream("a").withRing("a", "t1", "").bound("a",
			"u").dying("t1"), ""},
		{
			"unmade ring of a stream with an epoch does not move",
			two().withStream("a").withRing("a", "t1", "").granted("a").dying("t1"), "",
		},
		{"assigned ring does not move", two().withStream("a").withRing("a", "t1", "").withDrain("d",
			"x").withAssignment("a", "d", "u").dying("t1"), "bind a to u;"},
		{"lost ring that nobody was let into is made again", lost().missing("a", 0), "renew a(u) on t1;"},
		{"lost ring with an epoch is not", lost().missing("a", 0).granted("a"), ""},
		{"lost ring that was opened by its URI is not", lost().missing("a", 1), ""},
		{"lost ring of a dead target is not", lost().missing("a", 0).dying("t1"), ""},
		{"ring with another error is not", func() World {
			w := lost().missing("a", 0)
			w.Targets["t1"].Rings[0].Missing = false
			return w
		}(), ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := describe(Plan(tc.world, testNow)); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// Of members each moves into a failure domain of its own.
func TestPlan_UnmadeMemberMovesToItsOwnDomain(t *testing.T) {
	world := emptyWorld().withStream("a")
	world.Streams["a"].Spec.Members = 2
	for i := range 3 {
		world.withTarget(fmt.Sprint("t", i), fmt.Sprint("h", i))
	}
	world.withTarget("beside", "h1")
	for i := range 2 {
		world.Rings[MemberKey("a", i)] = &api.RingSpec{
			Target: fmt.Sprint("t", i), Stream: world.Streams["a"],
			Member: uint32(i),
		}
	}
	if got := Plan(world.dying("t0"), testNow); len(got) != 1 || got[0].Place.GetTarget() != "t2" ||
		got[0].Place.Member != 0 {
		t.Errorf("got %q", describe(got))
	}
}

// The ring that takes the place of a lost one is the stream's from then on, whatever the drain had before.
func TestPlan_NewRingAfterALostOneIsBound(t *testing.T) {
	world := emptyWorld().withTarget("t1", testHost).withStream("a").withRing("a", "t1", "").bound("a",
		"u").missing("a", 0).withDrain("d1", testHost).withAssignment("a", "d1", "u")
	world = apply(world, Plan(world, testNow))
	world.Targets["t1"].Rings = []*api.RingState{{Stream: "a", Uri: "mem:/a", RingUuid: []byte("new")}}
	if got := describe(Plan(world, testNow)); got != "bind a to new;assign a(new) to d1 #6;" {
		t.Errorf("got %q", got)
	}
}

// One that moves after it was lost is not bound to what the drain had: that is found nowhere.
func TestPlan_LostRingMovesOn(t *testing.T) {
	world := emptyWorld().withTarget("t1", "one").withTarget("t2", "two").giving("t1", visible).giving("t2",
		persistent).withStream("a").wanting("a", persistent).
		withRing("a", "t1", "").bound("a", "u").missing("a", 0).withDrain("d1", testHost).withAssignment("a", "d1", "u")
	for _, want := range []string{"renew a(u) on t1;", "place a on t2;", ""} {
		actions := Plan(world, testNow)
		if got := describe(actions); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		world = apply(world, actions)
	}
}

func TestWhyNotPlaced_NamesTheLevel(t *testing.T) {
	world := emptyWorld().withTarget("t1", "one").giving("t1", visible).withStream("a").wanting("a", persistent)
	if why := WhyNotPlaced(world, "a", nil, testNow); why != "target t1 on host one gives at most level visible "+
		"(mem:/region0): level persistent is wanted" {
		t.Error(why)
	}
	world.LiveTargets["t1"].Regions = []*api.Region{{Uri: "mem:/x", Error: "there is no /x"}}
	if why := WhyNotPlaced(world, "a", nil, testNow); !strings.Contains(why,
		"can use none of its regions (there is no /x)") {
		t.Error(why)
	}
}
