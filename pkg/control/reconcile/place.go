package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// WhyNotPlaced says why no target takes a stream, given the Room of the world; "" when one does.
func WhyNotPlaced(world World, name string, space map[string]uint64, now time.Time) string {
	stream := world.Streams[name]
	fitting, reason := fittingTargets(world, stream.GetSpec(), space, now)
	if len(fitting) == 0 {
		return reason
	}
	if MemberCount(stream) == 1 {
		return ""
	}
	return tooFewDomains(world, stream, fitting)
}

// fittingTargets lists the living targets that may take a stream; where there is none, the reason is the last one's.
func fittingTargets(world World, spec *api.StreamSpec, space map[string]uint64, now time.Time) (fitting []string,
	reason string,
) {
	reason = "no target is registered: start farlogd target"
	if spec.GetTargetHost() != "" {
		reason = fmt.Sprintf("no target on host %s is registered: start farlogd target there", spec.TargetHost)
	}
	for _, name := range sortedNames(world.LiveTargets) {
		host := world.LiveTargets[name].GetHost()
		if !isOnHost(world.LiveTargets[name], spec.GetTargetHost()) {
			continue
		}
		free, isLimited := space[host]
		tooFar, unreached := whyTooSlow(world, spec, name, now), whyNotReached(world, spec, name, space, now)
		switch {
		case world.TargetSpecs[host].GetClosed():
			reason = fmt.Sprintf("target %s on host %s is closed to new rings", name, host)
		case isWornOut(world, name):
			medium := wornMedium(world, name)
			reason = fmt.Sprintf("target %s on host %s takes no further ring: its device %s is worn by %.0f %% of "+
				"its endurance, the limit is %d %%", name, host, medium.GetDevice(),
				100*medium.GetUsedRatio(), world.TargetSpecs[host].WearLimitPercent)
		case !IsNamespaced(spec) && !givesLevel(world.LiveTargets[name], spec.GetLevel()):
			reason = fmt.Sprintf("target %s on host %s %s: level %s is wanted", name, host,
				levelText(world.LiveTargets[name]), levelName(spec.GetLevel()))
		case unreached != "":
			reason = unreached
		case isLimited && free < spec.GetRingSizeBytes():
			reason = fmt.Sprintf("host %s has %d bytes left of its capacity of %d, the ring needs %d", host, free,
				world.TargetSpecs[host].CapacityBytes, spec.RingSizeBytes)
		case tooFar != "":
			reason = tooFar
		default:
			fitting = append(fitting, name)
		}
	}
	return fitting, reason
}

// givesLevel reports whether a ring on a target can have a level, as its regions are. One that says nothing of them may
// have any.
func givesLevel(target *api.Agent, level api.Level) bool {
	return len(target.GetRegions()) == 0 || slices.ContainsFunc(target.GetRegions(), func(region *api.Region) bool {
		return region.Level > api.Level_LEVEL_UNSPECIFIED && region.Level >= level
	})
}

// levelText says what a target's regions give, or why one gives nothing.
func levelText(target *api.Agent) string {
	best := slices.MaxFunc(target.GetRegions(), func(a, b *api.Region) int { return cmp.Compare(a.Level, b.Level) })
	if best.Level == api.Level_LEVEL_UNSPECIFIED {
		return fmt.Sprintf("can use none of its regions (%s)", best.Error)
	}
	return fmt.Sprintf("gives at most level %s (%s)", levelName(best.Level), best.Uri)
}

func levelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

// isOnHost reports whether an agent is where it is wanted; "" is anywhere.
func isOnHost(agent *api.Agent, host string) bool {
	return host == "" || agent.GetHost() == host
}

// FreeSpace is what hosts with a capacity have left of it, if they had these specs.
func FreeSpace(world World, specs map[string]*api.TargetSpec) map[string]uint64 {
	space := map[string]uint64{}
	for host, spec := range specs {
		if spec.GetCapacityBytes() > 0 {
			space[host] = spec.CapacityBytes
		}
	}
	for _, ring := range world.Rings {
		reserveSpace(space, hostOf(world, ring.Target), ring.GetStream().GetSpec().GetRingSizeBytes())
	}
	return space
}

func reserveSpace(space map[string]uint64, host string, size uint64) {
	if free, isLimited := space[host]; isLimited {
		space[host] = free - min(free, size)
	}
}

// hostOf is where a target is, or last was.
func hostOf(world World, target string) string {
	if agent := world.LiveTargets[target]; agent != nil {
		return agent.Host
	}
	return world.Targets[target].GetAgent().GetHost()
}

func countPlaced(world World) map[string]int {
	counts := map[string]int{}
	for _, ring := range world.Rings {
		counts[ring.Target]++
	}
	return counts
}

// wornMedium is the most worn of a target's devices, as far as they tell; nil: none does.
func wornMedium(world World, target string) (worst *api.MediaHealth) {
	for _, one := range world.Targets[target].GetMedia() {
		if worst == nil || one.UsedRatio > worst.UsedRatio {
			worst = one
		}
	}
	return worst
}

// isWornOut reports whether it is worn beyond the limit that is declared of its host.
func isWornOut(world World, target string) bool {
	limit := world.TargetSpecs[hostOf(world, target)].GetWearLimitPercent()
	return limit > 0 && 100*wornMedium(world, target).GetUsedRatio() > float64(limit)
}

// enduranceLeft is the share of a target's endurance that is left, of its most worn device; 1 where nothing is known of
// it, and never 0.
func enduranceLeft(world World, target string) float64 {
	return max(1-wornMedium(world, target).GetUsedRatio(), 0.01)
}

// leastWorn takes the first of the targets that has the smallest load for what is left of its endurance, with one more
// ring on it: of two with as many rings the one that is less worn, and in the long run one that is half worn gets half
// as many.
func leastWorn(world World, targets []string, loads map[string]int) (string, bool) {
	if len(targets) == 0 {
		return "", false
	}
	weight := func(target string) float64 { return float64(loads[target]+1) / enduranceLeft(world, target) }
	return slices.MinFunc(targets, func(a, b string) int { return cmp.Compare(weight(a), weight(b)) }), true
}

// leastLoaded takes the first of the names that has the smallest load.
func leastLoaded(names []string, loads map[string]int) (string, bool) {
	if len(names) == 0 {
		return "", false
	}
	return slices.MinFunc(names, func(a, b string) int { return loads[a] - loads[b] }), true
}
