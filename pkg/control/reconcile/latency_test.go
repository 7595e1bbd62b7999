package reconcile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// testNow is the time of worlds in which no time matters.
var testNow = time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)

// withPath lets a host's agent tell how far a target's listener is; less than 0: it was not reached.
func (w World) withPath(host, target, listener string, micros int, measured time.Time) World {
	if w.Hosts[host] == nil {
		w.Hosts[host] = &api.HostState{Host: host}
	}
	way := &api.NetworkPath{Target: target, Listener: listener, Error: "connection refused"}
	if micros >= 0 {
		way.RttMin, way.MeasureTime, way.Error = durationpb.New(time.Duration(micros)*time.Microsecond),
			timestamppb.New(measured), ""
	}
	w.Hosts[host].Paths = append(w.Hosts[host].Paths, way)
	return w
}

func (w World) writtenFrom(stream, host string, limitMicros int) World {
	spec := w.Streams[stream].Spec
	spec.WriterHost, spec.LatencyLimit = host, nil
	if limitMicros > 0 {
		spec.LatencyLimit = durationpb.New(time.Duration(limitMicros) * time.Microsecond)
	}
	return w
}

// Whatever was measured, of whichever age, and whatever else keeps targets out: a stream with a limit is never placed
// beyond it or on a target whose way is not known; it waits only where no set of targets in as many failure domains
// will do; one without a limit never waits for a measurement; and no member is on a target while one that it could have
// had, in a failure domain of its own, is nearer by more than measurements vary, or is the only one that is measured.
func TestPlace_PrefersTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world, known := drawPaths(t)
		members := world.Streams["new"].Spec.Members
		limit := world.Streams["new"].Spec.LatencyLimit.AsDuration()
		mayTake := func(id string) bool {
			way, isKnown := known[id]
			return !world.TargetSpecs["host-"+id].Closed && (limit == 0 || isKnown && way <= limit)
		}
		could := 0
		for id := range world.LiveTargets {
			if mayTake(id) {
				could++
			}
		}
		placed := map[string]bool{}
		actions := placeMissing(world, "new", countPlaced(world), FreeSpace(world, world.TargetSpecs), testNow)
		for _, action := range actions {
			placed[action.Place.Target] = true
		}
		if want := int(members); len(placed) != len(actions) || len(placed) > 0 != (could >= want) || len(placed) > 0 &&
			len(placed) != want {
			t.Fatalf("placed on %v, %d members wanted and %d targets could take one", placed, want, could)
		}
		for id := range placed {
			if !mayTake(id) {
				t.Fatalf("placed on %s, %v away (%v), the limit is %s", id, known[id], known, limit)
			}
			for other := range world.LiveTargets {
				otherWay, isKnown := known[other]
				way, isOwnKnown := known[id]
				if placed[other] || !mayTake(other) || !isKnown {
					continue
				}
				if !isOwnKnown || otherWay+max(otherWay/4, 5*time.Microsecond) < way {
					t.Fatalf("placed on %s (%v, measured %v), not on %s (%v)", id, way, isOwnKnown, other, otherWay)
				}
			}
		}
		why := WhyNotPlaced(world, "new", FreeSpace(world, world.TargetSpecs), testNow)
		if (why == "") != (len(placed) > 0) {
			t.Fatalf("placed on %v, and the reason is %q", placed, why)
		}
	})
}

// drawPaths makes a world of targets each on a host of its own, and tells which ways from desk7 are known and count.
func drawPaths(t *rapid.T) (World, map[string]time.Duration) {
	world, known := emptyWorld(), map[string]time.Duration{}
	world.TargetSpecs, world.Hosts = map[string]*api.TargetSpec{}, map[string]*api.HostState{}
	for i := range rapid.IntRange(1, 6).Draw(t, "targets") {
		id := fmt.Sprint("t", i)
		world.withTarget(id, "host-"+id)
		world.TargetSpecs["host-"+id] = &api.TargetSpec{
			Host:   "host-" + id,
			Closed: rapid.IntRange(0, 4).Draw(t, "closed") == 0,
		}
		for n := range rapid.IntRange(0, 3).Draw(t, "rings") {
			world.withStream(fmt.Sprintf("%s/%d", id, n)).withRing(fmt.Sprintf("%s/%d", id, n), id, "")
		}
		for n := range rapid.IntRange(0, 2).Draw(t, "listeners") {
			micros := rapid.SampledFrom([]int{-1, 8, 10, 12, 20, 24, 26, 100, 3000}).Draw(t, "way")
			age := rapid.SampledFrom([]time.Duration{
				0, MeasuredMax - 1, MeasuredMax, MeasuredMax + 1,
				24 * time.Hour,
			}).Draw(t, "age")
			world.withPath("desk7", id, fmt.Sprint("ofi:tcp://x:", n), micros, testNow.Add(-age))
			world.withPath("desk9", id, fmt.Sprint("ofi:tcp://x:", n),
				rapid.SampledFrom([]int{1, 4000}).Draw(t, "way from another"), testNow)
			if way, isKnown := known[id]; micros >= 0 && age <= MeasuredMax &&
				(!isKnown || time.Duration(micros)*time.Microsecond < way) {
				known[id] = time.Duration(micros) * time.Microsecond
			}
		}
	}
	writer := rapid.SampledFrom([]string{"desk7", "desk7", "host-t0"}).Draw(t, "writer")
	if writer == "host-t0" { // which measures nothing: its own target is by memory
		clear(known)
		known["t0"] = 0
	}
	world.withStream("new").writtenFrom("new", writer, rapid.SampledFrom([]int{0, 0, 9, 24, 3000}).Draw(t, "limit"))
	world.Streams["new"].Spec.Members = uint32(rapid.IntRange(1, 3).Draw(t, "members"))
	return world, known
}

// A refusal names the target, what was measured, the limit, and what to do.
func TestPlace_SaysWhoIsTooFar(t *testing.T) {
	world := emptyWorld().withTarget("t1", "alpha").withStream("a")
	world.Hosts = map[string]*api.HostState{}
	world.writtenFrom("a", "desk7", 20)
	for _, test := range []struct {
		do   func()
		want string
	}{
		{func() {}, "target t1 on host alpha: with a latency limit of 20µs its round-trip " +
			"time has to be measured, and no host " +
			"agent on host desk7 has reported: start farlogd host there"},
		{
			func() { world.withPath("desk7", "t2", "ofi:tcp://x:1", 3, testNow) },
			"host desk7 has not measured the round-trip time to it",
		},
		{
			func() { world.withPath("desk7", "t1", "ofi:tcp://x:1", -1, testNow) },
			"host desk7 cannot reach it at ofi:tcp://x:1: connection refused",
		},
		{func() { world.withPath("desk7", "t1", "ofi:tcp://x:2", 3, testNow.Add(-time.Hour)) }, "connection refused"},
		{
			func() { world.withPath("desk7", "t1", "ofi:tcp://x:3", 45, testNow) },
			"target t1 on host alpha is 45µs from host desk7, the stream's limit is 20µs: raise latency_limit, or " +
				"start a target that is nearer",
		},
		{func() { world.withPath("desk7", "t1", "verbs://x:4", 20, testNow) }, ""},
	} {
		test.do()
		why := WhyNotPlaced(world, "a", nil, testNow)
		if (why == "") != (test.want == "") || !strings.Contains(why, test.want) {
			t.Errorf("got %q, want %q", why, test.want)
		}
		if actions := Plan(world, testNow); len(actions) > 0 != (why == "") {
			t.Errorf("planned %s, and the reason is %q", describe(actions), why)
		}
	}
	world.Hosts["desk7"].Paths = world.Hosts["desk7"].Paths[4:]
	if why := WhyNotPlaced(world, "a", nil, testNow.Add(MeasuredMax)); why != "" {
		t.Errorf("by measurements that still count: %q", why)
	}
	later := testNow.Add(MeasuredMax + 1)
	if why := WhyNotPlaced(world, "a", nil, later); !strings.Contains(why, "is its host agent running?") ||
		len(Plan(world, later)) > 0 {
		t.Errorf("by measurements that are too old %s, reason %q", describe(Plan(world, later)), why)
	}
}

// A ring that was placed stays whatever is measured later; what is too far is told.
func TestPlace_DoesNotMoveForLatency(t *testing.T) {
	world := emptyWorld().withTarget("near", "alpha").withTarget("far", "beta").withStream("a").withRing("a", "far",
		"u").bound("a", "u")
	world.Hosts = map[string]*api.HostState{}
	world.writtenFrom("a", "desk7", 20).withPath("desk7", "near", "ofi:tcp://x:1", 1, testNow).withPath("desk7", "far",
		"ofi:tcp://x:2", 900, testNow)
	if actions := Plan(world, testNow); len(actions) > 0 {
		t.Errorf("planned %s", describe(actions))
	}
	if text := LatencyText(world, world.Streams["a"], "far", testNow); !strings.Contains(text,
		"target far is 900µs from host desk7 now, the stream's limit is 20µs") {
		t.Errorf("told %q", text)
	}
	if text := LatencyText(world, world.Streams["a"], "near", testNow); text != "" {
		t.Errorf("told %q of one that is near", text)
	}
}

// Time alone does nothing but let measurements grow old: the plan of a world is the same at all times but for where new
// rings go.
func TestPlan_TimeMattersToPlacementAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := drawWorld(t)
		later := testNow.Add(time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "later")))
		if now, then := describe(Plan(world, testNow)), describe(Plan(world, later)); now != then {
			t.Fatalf("planned %q, and at %s %q", now, later, then)
		}
	})
}

// What a measurement varies is no news; another listener, one that is lost or found, or a way of another length is.
func TestIsMoved(t *testing.T) {
	state := func(micros ...int) *api.HostState {
		world := World{Hosts: map[string]*api.HostState{"h": {Host: "h"}}}
		for i, one := range micros {
			world.withPath("h", fmt.Sprint("t", i), "ofi:tcp://x:1", one, testNow)
		}
		return world.Hosts["h"]
	}
	backwards := state(40, 60)
	backwards.Paths[0], backwards.Paths[1] = backwards.Paths[1], backwards.Paths[0]
	for _, test := range []struct {
		before, now *api.HostState
		want        bool
	}{
		{nil, state(), true},
		{state(), state(), false},
		{state(40), state(40), false},
		{state(40), state(50), false},
		{state(40), state(51), true},
		{state(40), state(29), true},
		{state(4), state(9), false},
		{state(4), state(10), true},
		{state(40), state(40, 60), true},
		{state(40), state(-1), true},
		{state(-1), state(40), true},
		{state(-1), state(-1), false},
		{state(40, 60), backwards, false},
	} {
		if got := IsMoved(test.before, test.now); got != test.want {
			t.Errorf("from %v to %v: moved %v", test.before, test.now, got)
		}
	}
}
