package reconcile

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const desk7NQN = "nqn.2026-01.com.example:desk7"

var namespaceNow = time.Unix(1e9, 0)

// namespacedWorld has stream desk7/a, which wants a namespace, and one that is exported by target t1 on testHost,
// connected by host trading1, and drained there.
func namespacedWorld() World {
	world := emptyWorld().withStream("desk7/a").withTarget("t1", testHost).withDrain("d1", testHost)
	world.Streams["desk7/a"].Spec = &api.StreamSpec{
		Name: "desk7/a", Kind: KindNVMeoF, RingSizeBytes: 1 << 20, Level: api.Level_LEVEL_PERSISTENT,
		WriterHost: "trading1",
	}
	world.TargetSpecs = map[string]*api.TargetSpec{testHost: {Host: testHost, Namespaces: []*api.Namespace{{
		Name: "desk7", Device: "/dev/x", Subsystem: desk7NQN,
		Hosts: []*api.NamespaceHost{{Nqn: "nqn.2026-01.com.example:trading1", Host: "trading1"}},
	}}}}
	world.Targets["t1"].Namespaces = []*api.NamespaceState{{
		Name: "desk7", Device: "/dev/x", Subsystem: desk7NQN, Exported: true, Level: api.Level_LEVEL_PERSISTENT,
		FreeBytes: 4 << 20,
	}}
	world.Hosts = map[string]*api.HostState{"trading1": {
		Host: "trading1", ReportTime: timestamppb.New(namespaceNow),
		Namespaces: []*api.NamespaceConnection{{Subsystem: desk7NQN, Device: "/dev/nvme1n1"}},
	}}
	return world
}

// A stream gets its ring in a namespace that its writer and its drain reach, and in nothing else; where there is none
// it gets none, and the reason says what is missing.
func TestNamespace_PlacedWhereWriterAndDrainReachIt(t *testing.T) {
	spec := func(w World) *api.StreamSpec { return w.Streams["desk7/a"].Spec }
	declared := func(w World) *api.Namespace { return w.TargetSpecs[testHost].Namespaces[0] }
	seen := func(w World) *api.NamespaceState { return w.Targets["t1"].Namespaces[0] }
	for what, one := range map[string]struct {
		change func(World)
		want   string
	}{
		"all there":          {func(World) {}, ""},
		"no namespace":       {func(w World) { delete(w.TargetSpecs, testHost) }, "no namespace is declared of host"},
		"another writer":     {func(w World) { spec(w).WriterHost = "trading2" }, "does not admit host trading2"},
		"any writer":         {func(w World) { spec(w).WriterHost = "" }, ""},
		"no named host":      {func(w World) { spec(w).WriterHost, declared(w).Hosts[0].Host = "", "" }, "admits no"},
		"drain elsewhere":    {func(w World) { spec(w).DrainHost = "store1" }, "the drain is to be on host store1"},
		"drain there":        {func(w World) { spec(w).DrainHost = testHost }, ""},
		"not reported":       {func(w World) { w.Targets["t1"].Namespaces = nil }, "has not reported it yet"},
		"of another device":  {func(w World) { seen(w).Device = "/dev/y" }, "has not reported it yet"},
		"not exported":       {func(w World) { seen(w).Exported, seen(w).Error = false, "in use" }, "exported: in use"},
		"cannot have a ring": {func(w World) { seen(w).Level, seen(w).RingError = 0, "LBAs" }, "have no ring: LBAs"},
		"of a lower level":   {func(w World) { seen(w).Level = api.Level_LEVEL_VISIBLE }, "gives level visible"},
		"full":               {func(w World) { seen(w).FreeBytes = 1<<20 - 4096 }, "a ring of 1044480 bytes"},
		"no host agent":      {func(w World) { delete(w.Hosts, "trading1") }, "no host agent on host trading1 reports"},
		"an old report":      {func(w World) { w.Hosts["trading1"].ReportTime = nil }, "no host agent"},
		"not connected": {func(w World) {
			w.Hosts["trading1"].Namespaces[0] = &api.NamespaceConnection{Subsystem: desk7NQN, Error: "no route"}
		}, "no route"},
		"connection not known": {func(w World) { w.Hosts["trading1"].Namespaces = nil }, "has not reported it yet"},
		"no drain":             {func(w World) { delete(w.LiveDrains, "d1") }, "no drain for stream desk7/a is"},
		"a drain elsewhere":    {func(w World) { w.LiveDrains["d1"].Host = "store1" }, "no drain for stream desk7/a"},
		"a drain of others":    {func(w World) { w.LiveDrains["d1"].Streams = []string{"desk9/**"} }, "no drain for"},
		"another target host":  {func(w World) { spec(w).TargetHost = "storage9" }, "no target on host storage9"},
		"of another tenant": {func(w World) {
			w.Rings["desk9/a"] = &api.RingSpec{
				Target: "t1", Subsystem: desk7NQN, RingUuid: []byte("u"),
				Stream: &api.Stream{Spec: &api.StreamSpec{Name: "desk9/a"}},
			}
		}, "another tenant needs another namespace"},
		"half of it promised": {func(w World) {
			w.Rings["desk7/b"] = &api.RingSpec{
				Target: "t1", Subsystem: desk7NQN,
				Stream: &api.Stream{Spec: &api.StreamSpec{Name: "desk7/b", RingSizeBytes: 3 << 20}},
			}
		}, "has space for a ring of 1028096 bytes"},
	} {
		world := namespacedWorld()
		one.change(world)
		why := WhyNotPlaced(world, "desk7/a", nil, namespaceNow)
		placed := PlanOf(world, []string{"desk7/a"}, map[string]bool{}, namespaceNow)
		if (why == "") != (one.want == "") || !strings.Contains(why, one.want) || len(placed) > 0 != (one.want == "") {
			t.Errorf("%s: %d actions, because %q; expected %q", what, len(placed), why, one.want)
		}
		if one.want == "" && placed[0].Place.GetSubsystem() != desk7NQN {
			t.Errorf("%s: %v, expected it in the namespace", what, placed[0].Place)
		}
	}
}

// What can be told from the declaration alone is told before anything else is there.
func TestNamespace_WhyNoNamespace(t *testing.T) {
	world := namespacedWorld()
	spec := func(change func(*api.StreamSpec)) *api.StreamSpec {
		one := proto.Clone(world.Streams["desk7/a"].Spec).(*api.StreamSpec)
		change(one)
		return one
	}
	for want, one := range map[string]*api.StreamSpec{
		"":                                spec(func(*api.StreamSpec) {}),
		"does not admit host trading2":    spec(func(s *api.StreamSpec) { s.WriterHost = "trading2" }),
		"drain is to be on host store1":   spec(func(s *api.StreamSpec) { s.DrainHost = "store1" }),
		"declared of target host storage": spec(func(s *api.StreamSpec) { s.TargetHost = "storage9" }),
	} {
		if got := WhyNoNamespace(world.TargetSpecs, one); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%v: %q, expected %q", one, got, want)
		}
	}
	if got := WhyNoNamespace(nil, spec(func(*api.StreamSpec) {})); !strings.Contains(got, "no target declares") {
		t.Errorf("nothing declared: %q", got)
	}
}

// Of two streams that are placed at once the second waits until the target has said what is left beside the first.
func TestNamespace_OneRingAtATime(t *testing.T) {
	world := namespacedWorld()
	other := proto.Clone(world.Streams["desk7/a"]).(*api.Stream)
	other.Spec.Name = "desk7/b"
	world.Streams["desk7/b"] = other
	unsettled := map[string]bool{}
	actions := PlanOf(world, []string{"desk7/a", "desk7/b"}, unsettled, namespaceNow)
	if text := describe(actions); text != "place desk7/a on t1;" || !unsettled["desk7/b"] {
		t.Errorf("%s unsettled %v, expected one ring, and the other stream to wait", text, unsettled)
	}
}

// A ring stays in its namespace when it is bound, is drained on its target's host alone, and is not replaced.
func TestNamespace_RingStaysAndIsDrainedThere(t *testing.T) {
	world := namespacedWorld()
	delete(world.LiveDrains, "d1")
	world = world.withDrain("d2", "store1").withRing("desk7/a", "t1", "u")
	world.Rings["desk7/a"].Subsystem = desk7NQN
	world.Targets["t1"].Rings[0].Uri = "nvme:/dev/x?ring=desk7/a"
	actions := Plan(world, namespaceNow)
	if len(actions) != 1 || actions[0].Bind.GetSubsystem() != desk7NQN {
		t.Fatalf("%s, expected it bound, in its namespace", describe(actions))
	}
	world.Rings["desk7/a"] = actions[0].Bind
	if text := describe(Plan(world, namespaceNow)); text != "" {
		t.Errorf("%s, expected no drain of another host", text)
	}
	if why := WhyNotDrained(world, "desk7/a", nil); !strings.Contains(why, "a ring in a namespace is drained") {
		t.Errorf("not drained because %q", why)
	}
	world = world.withDrain("d1", testHost)
	if text := describe(Plan(world, namespaceNow)); text != "assign desk7/a(u) to d1 #1;" {
		t.Errorf("%s, expected the drain there", text)
	}
	world.Epochs["desk7/a"] = 1
	if why := WhyNotReplace(world, "desk7/a", 0); !strings.Contains(why, "it lies in a namespace") {
		t.Errorf("replaced: %q", why)
	}
	world.Rings["desk7/a"].Subsystem = desk7NQN
	delete(world.LiveTargets, "t1")
	if !IsNamespaced(world.Streams["desk7/a"].Spec) ||
		NamespaceURI(world.Rings["desk7/a"]) != "nvme:"+desk7NQN+"/1?ring=desk7/a" {
		t.Errorf("opened as %q", NamespaceURI(world.Rings["desk7/a"]))
	}
}
