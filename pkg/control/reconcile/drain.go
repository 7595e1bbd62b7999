package reconcile

import (
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// askedMost bounds of how many drains it is worked out whether they reach a stream's rings, only to say why none has
// it.
const askedMost = 8

// WhyNotDrained says why nobody has a stream whose rings are there, of the drain that is nearest to having it; loads
// are CountAssigned's. "": one may, and is about to be given it.
func WhyNotDrained(world World, name string, loads map[string]int) string {
	spec := world.Streams[name].GetSpec()
	reason, nearest, asked := "no drain is registered: start farlogd drain", 0, 0
	if host := spec.GetDrainHost(); host != "" {
		reason = fmt.Sprintf("no drain on host %s is registered: start farlogd drain there, or declare another one "+
			"(drain: HOST, farlog apply)", host)
	}
	rings, isWhole := RingSpecs(world.Rings, world.Streams[name])
	if !isWhole {
		return ""
	}
	for _, id := range sortedNames(world.LiveDrains) {
		drain, step, text := world.LiveDrains[id], 0, ""
		if !isOnHost(drain, spec.GetDrainHost()) || asked == askedMost {
			continue
		}
		switch {
		case !MayDrain(drain, name):
			step, text = 1, fmt.Sprintf("drain %s has not the role drain on this stream: give it in the control "+
				"plane's --access-file", id)
		case !mayDrain(world, drain, loads):
			step, text = 2, fmt.Sprintf("drain %s takes no further stream: %s", id,
				fullText(world.DrainSpecs[drain.Host], drain))
		default:
			asked++
			if _, isReached := assignmentOf(world, rings, name, id, nil); isReached {
				return ""
			}
			step, text = 3, unreachedText(world, rings, drain)
		}
		if step > nearest {
			nearest, reason = step, text
		}
	}
	return reason
}

// fullText is why a drain takes no further stream, by what is declared of its host.
func fullText(spec *api.DrainSpec, drain *api.Agent) string {
	switch {
	case spec.GetClosed():
		return fmt.Sprintf("those on host %s are declared closed", drain.Host)
	case spec.GetStoreDir() != "" && spec.StoreDir != drain.StoreDir:
		return fmt.Sprintf("those on host %s are declared to write store %s, it writes %s", drain.Host, spec.StoreDir,
			drain.StoreDir)
	}
	return fmt.Sprintf("those on host %s may have %d streams, and have them", drain.Host, spec.GetStreamsMax())
}

// unreachedText is why a drain of another host does not come to a ring.
func unreachedText(world World, rings []*api.RingSpec, drain *api.Agent) string {
	for _, ring := range rings {
		if ring.Subsystem != "" {
			return fmt.Sprintf(
				"drain %s is not on the target's host, where alone a ring in a namespace is drained: start "+
					"farlogd drain there",
				drain.Id,
			)
		}
		seen := SeenRing(world.Targets, ring)
		if IsBoundRing(ring, seen) && len(seen.RemoteUris) > 0 && reachableURI(world, ring, seen, drain) == "" {
			return fmt.Sprintf("drain %s reaches other hosts by %s alone, and target %s does not listen by that: "+
				"give either another --drain-transport or --listen", drain.Id, drain.Transport, ring.Target)
		}
	}
	return fmt.Sprintf("drain %s is not on the target's host: start farlogd drain there, or to drain from another "+
		"host give the target --listen", drain.Id)
}

// mayDrain reports whether a drain may be given one more stream, by what is declared of its host. Streams that it has
// stay with it, whatever is declared later.
func mayDrain(world World, drain *api.Agent, loads map[string]int) bool {
	spec := world.DrainSpecs[drain.GetHost()]
	switch {
	case spec == nil:
		return true
	case spec.Closed || spec.StoreDir != "" && spec.StoreDir != drain.StoreDir:
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
