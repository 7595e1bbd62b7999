package reconcile

import api "github.com/farlog/farlog/pkg/api/v1"

// mayTake tells whether a drain may be given one more stream, by what is declared of its host. Streams that it has stay with it, whatever is declared later.
func mayTake(world World, drain *api.Agent, loads map[string]int) bool {
	spec := world.DrainSpecs[drain.GetHost()]
	switch {
	case spec == nil:
		return true
	case spec.IsClosed || spec.StoreDir != "" && spec.StoreDir != drain.StoreDir:
		return false
	}
	return spec.StreamsMax == 0 || loadOfHost(world, drain.Host, loads) < int(spec.StreamsMax)
}

// loadOfHost is how many streams the living drains of a host have.
func loadOfHost(world World, host string, loads map[string]int) (sum int) {
	for id, drain := range world.LiveDrains {
		if drain.Host == host {
			sum += max(loads[id], 0)
		}
	}
	return sum
}
