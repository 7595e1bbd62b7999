package reconcile

import (
	"maps"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// WithoutSpace places streams that have no rings yet as Plan would, in the order of their names here, and says of each
// that finds no space, and would be placed if there was some, why. What waits for something else, as a level or a
// failure domain, is not among them.
func WithoutSpace(world World, names []string, now time.Time) map[string]string {
	reasons := map[string]string{}
	tally := &tally{world: world}
	for _, name := range names {
		if len(placeMissing(world, name, tally.placed(), tally.freeSpace(), now)) > 0 ||
			WhyNotPlaced(world, name, nil, now) != "" {
			continue
		}
		if reason := WhyNotPlaced(world, name, tally.freeSpace(), now); reason != "" {
			reasons[name] = reason
		}
	}
	return reasons
}

// WithDeclared is a world in which a target is on each host of which one is declared. False: on some host there may be
// any number of rings, or no target is known, so that nobody can tell what finds space.
func WithDeclared(world World, specs map[string]*api.TargetSpec) (World, bool) {
	world.TargetSpecs, world.LiveTargets = specs, maps.Clone(world.LiveTargets)
	if world.LiveTargets == nil {
		world.LiveTargets = map[string]*api.Agent{}
	}
	isThere := map[string]bool{}
	for _, agent := range world.LiveTargets {
		isThere[agent.Host] = true
		if specs[agent.Host].GetCapacityBytes() == 0 {
			return world, false
		}
	}
	for host, spec := range specs {
		if spec.GetCapacityBytes() == 0 {
			return world, false
		}
		if !isThere[host] {
			world.LiveTargets["declared "+host] = &api.Agent{Id: "declared " + host, Host: host}
		}
	}
	return world, len(world.LiveTargets) > 0
}
