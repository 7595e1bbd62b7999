package fabric

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/state"
)

// Whatever is declared: what was planned and written leaves nothing to plan, and a plan with problems changes nothing.
func TestPlanFabric_Settles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := state.NewView()
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			fabric := drawFabric(rt)
			plan, err := NewPlan(v, fabric, nil)
			if err != nil {
				rt.Fatal(err)
			}
			if len(plan.Problems) > 0 {
				continue
			}
			for _, target := range plan.targets {
				v.TargetSpecs[target.Host] = target
			}
			for _, drain := range plan.drains {
				v.DrainSpecs[drain.Host] = drain
			}
			for _, spec := range append(plan.Created, plan.updated...) {
				v.Streams[spec.Name] = &api.Stream{Spec: spec}
			}
			again, err := NewPlan(v, fabric, nil)
			if err != nil || len(again.Changes) != 0 || len(again.Problems) != 0 {
				rt.Fatalf("%v: does not settle: %v, %v, %v", fabric, again.Changes, again.Problems, err)
			}
		}
	})
}

func drawFabric(rt *rapid.T) *api.Fabric {
	fabric := new(api.Fabric)
	hosts := []string{"", "alpha", "beta"}
	for _, host := range hosts[1:] {
		if rapid.Bool().Draw(rt, "target") {
			fabric.Targets = append(fabric.Targets, &api.TargetSpec{
				Host:          host,
				CapacityBytes: rapid.SampledFrom([]uint64{0, 1 << 26, 1 << 28}).Draw(rt, "capacity"),
			})
		}
	}
	for _, host := range hosts[1:] {
		if rapid.Bool().Draw(rt, "drain") {
			fabric.Drains = append(fabric.Drains, &api.DrainSpec{
				Host:       host,
				StreamsMax: rapid.Uint32Range(0, 2).Draw(rt, "streams_max"),
			})
		}
	}
	for i := range rapid.IntRange(0, 5).Draw(rt, "streams") {
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{
			Name: fmt.Sprintf("s%d", i), RingSizeBytes: rapid.SampledFrom([]uint64{0, 1 << 20}).Draw(rt, "size"),
			Level:      api.Level(rapid.IntRange(0, 3).Draw(rt, "level")),
			Policy:     api.Policy(rapid.IntRange(0, 2).Draw(rt, "policy")),
			TargetHost: rapid.SampledFrom(hosts).Draw(rt, "target host"),
			DrainHost:  rapid.SampledFrom(hosts).Draw(rt, "drain host"),
		})
	}
	return fabric
}
