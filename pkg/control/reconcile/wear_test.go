package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// withWear lets a target report devices that are worn so far, in percent.
func (w World) withWear(id string, percents ...int) World {
	for i, percent := range percents {
		w.Targets[id].Media = append(w.Targets[id].Media,
			&api.MediaHealth{Device: fmt.Sprintf("/dev/nvme%dn1", i), UsedRatio: float64(percent) / 100})
	}
	return w
}

// Whatever the targets have and however worn they are, no ring is placed beyond a limit, none waits while a target may
// take it, and none goes to a target while one with no more rings is less worn.
func TestPlace_PrefersLessWear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := emptyWorld()
		world.TargetSpecs = map[string]*api.TargetSpec{}
		wear, worst, limits := map[string]int{}, rapid.IntRange(-1, 255),
			rapid.SampledFrom([]uint32{0, 0, 1, 80, 100, 255})
		for i := range rapid.IntRange(1, 5).Draw(t, "targets") {
			id := fmt.Sprint("t", i)
			world.withTarget(id, "host-"+id)
			world.TargetSpecs["host-"+id] = &api.TargetSpec{
				Host:             "host-" + id,
				WearLimitPercent: limits.Draw(t, "limit"),
			}
			if percent := worst.Draw(t, "wear"); percent >= 0 { // -1: it does not tell
				world.withWear(id, rapid.IntRange(0, percent).Draw(t, "other device"), percent)
				wear[id] = percent
			}
			for n := range rapid.IntRange(0, 4).Draw(t, "rings") {
				name := fmt.Sprintf("%s/%d", id, n)
				world.withStream(name).withRing(name, id, "")
			}
		}
		world.withStream("new")
		mayTake := func(id string) bool {
			limit := world.TargetSpecs["host-"+id].WearLimitPercent
			return limit == 0 || wear[id] <= int(limit)
		}
		loads, placed := countPlaced(world), ""
		free := FreeSpace(world, world.TargetSpecs)
		for _, action := range placeMissing(world, "new", countPlaced(world), free, testNow) {
			placed = action.Place.Target
		}
		for id := range world.LiveTargets {
			switch {
			case id == placed && !mayTake(id):
				t.Fatalf("placed on %s, worn by %d %%", id, wear[id])
			case placed == "" && mayTake(id):
				t.Fatalf("not placed, although %s may take it", id)
			case placed != "" && mayTake(id) && loads[id] <= loads[placed] && wear[id] < min(wear[placed], 99):
				t.Fatalf("placed on %s (%d rings, worn by %d %%), not on %s (%d rings, %d %%)", placed, loads[placed],
					wear[placed], id, loads[id], wear[id])
			}
		}
		free = FreeSpace(world, world.TargetSpecs)
		if why := WhyNotPlaced(world, "new", free, testNow); (why == "") != (placed != "") ||
			placed == "" && !strings.Contains(why, "of its endurance, the limit is") {
			t.Fatalf("placed on %q, and the reason is %q", placed, why)
		}
	})
}

// A target that is half worn gets half as many rings in the long run, and is not left out.
func TestPlace_SharesByWhatIsLeft(t *testing.T) {
	world := emptyWorld().withTarget("fresh", "one").withTarget("half", "two").withWear("fresh", 0).withWear("half", 50)
	loads := map[string]int{}
	for range 300 {
		target, _ := leastWorn(world, []string{"fresh", "half"}, loads)
		loads[target]++
	}
	if loads["fresh"] != 200 || loads["half"] != 100 {
		t.Errorf("placed %v, expected 200 and 100", loads)
	}
}
