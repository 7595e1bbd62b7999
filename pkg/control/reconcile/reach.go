package reconcile

import (
	"fmt"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// localRegion begins the URIs of regions whose rings only programs on the target's host reach.
const localRegion = "nvme:"

// whyNotReached says what of a stream does not reach a ring on a target, in a namespace or in a region, as it wants it.
func whyNotReached(world World, spec *api.StreamSpec, target string, space map[string]uint64, now time.Time,
) (why string) {
	if IsNamespaced(spec) {
		_, why = namespaceFor(world, spec, target, space, now)
		return why
	}
	return whyUnreached(world.LiveTargets[target], spec)
}

// WhyUnreached says why none of the living targets that give a stream's level can have its ring: each has regions for
// it that serve its own host alone, and the stream needs more. "": one can, or none gives the level at all.
func WhyUnreached(world World, spec *api.StreamSpec) (why string) {
	for _, name := range sortedNames(world.LiveTargets) {
		target := world.LiveTargets[name]
		if !isOnHost(target, spec.GetTargetHost()) || !givesLevel(target, spec.GetLevel()) {
			continue
		}
		if why = whyUnreached(target, spec); why == "" {
			return ""
		}
	}
	return why
}

// whyUnreached says what of a stream does not reach a target's ring; "": all does. A target that listens serves each of
// its rings to other hosts, which it cannot with one in such a region.
func whyUnreached(target *api.Agent, spec *api.StreamSpec) string {
	local := ""
	for _, region := range target.GetRegions() {
		if region.Level == api.Level_LEVEL_UNSPECIFIED || region.Level < spec.GetLevel() {
			continue
		}
		if !strings.HasPrefix(region.Uri, localRegion) {
			return ""
		}
		local = region.Uri
	}
	if local == "" {
		return ""
	}
	is := fmt.Sprintf("target %s has region %s, which serves host %s alone", target.Id, local, target.Host)
	switch {
	case len(target.Listeners) > 0:
		return is + ", and listens for other hosts: give it a mem: region too, or start it without --listen"
	case !isOnHost(target, spec.GetWriterHost()):
		return fmt.Sprintf("%s, and the writer is to be on host %s: name another target host, or give that target a "+
			"mem: region", is, spec.WriterHost)
	case !isOnHost(target, spec.GetDrainHost()):
		return fmt.Sprintf("%s, and the drain is to be on host %s: name another target host, or give that target a "+
			"mem: region", is, spec.DrainHost)
	}
	return ""
}
