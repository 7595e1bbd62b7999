package control

import (
	"fmt"
	"math"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// checkPlaces finds rings that are wanted where nobody knows of a target, and those that do not fit there.
func (p *fabricPlan) checkPlaces(v *view, fabric *api.Fabric) {
	world := v.world()
	specs := make(map[string]*api.TargetSpec, len(world.TargetSpecs))
	for host, spec := range world.TargetSpecs {
		specs[host] = spec
	}
	for _, target := range slices.Backward(fabric.Targets) { // of two the first counts
		specs[target.Host] = target
	}
	room := reconcile.Room(world, specs)
	for name, stream := range v.streams {
		if v.rings[name] == nil { // on its way
			reserve(room, stream.Spec)
		}
	}
	largest, isLimited := largestCapacity(v, specs)
	isSeen := map[string]bool{}
	for i, spec := range fabric.Streams {
		host := spec.TargetHost
		isAgain := isSeen[spec.Name]
		isSeen[spec.Name] = true
		if v.streams[spec.Name] != nil {
			continue // declared before
		}
		if host == "" {
			if isLimited && !isAgain && spec.RingSizeBytes > largest.CapacityBytes { // what is full now may have room later; this never
				p.fail(fmt.Sprintf("streams[%d].ring_size_bytes", i), fmt.Sprint(spec.RingSizeBytes), "expected at most %d bytes: no target has more, which is the capacity of host %s",
					largest.CapacityBytes, largest.Host)
			}
			continue
		}
		if specs[host] == nil && !v.hasTargetOn(host) {
			p.fail(fmt.Sprintf("streams[%d].target_host", i), fmt.Sprintf("%q", host), "expected a host under targets, or one whose target is registered")
			continue
		}
		if specs[host].GetIsClosed() {
			p.fail(fmt.Sprintf("streams[%d].target_host", i), fmt.Sprintf("%q", host), "expected a target that is not closed to new rings")
			continue
		}
		free, isLimited := room[host]
		if isLimited && spec.RingSizeBytes > free {
			p.fail(fmt.Sprintf("streams[%d].ring_size_bytes", i), fmt.Sprint(spec.RingSizeBytes), "expected at most %d bytes: so much is left of the %d of target host %s",
				free, specs[host].CapacityBytes, host)
			continue
		}
		reserve(room, spec)
	}
}

// fits refuses a stream whose rings no target that is known can have: it would wait for nothing that anybody has begun. A target that nothing limits, or room that is being made, is waited
// for; whoever means to add a larger one declares it first.
func (v *view) fits(spec *api.StreamSpec) error {
	if v.streams[spec.Name] != nil {
		return nil
	}
	largest, isLimited := v.targetSpecs[spec.TargetHost], true
	if spec.TargetHost == "" {
		largest, isLimited = largestCapacity(v, v.targetSpecs)
	}
	if !isLimited || largest.GetCapacityBytes() == 0 || spec.RingSizeBytes <= largest.CapacityBytes {
		return v.hasRoom(spec)
	}
	rule := fmt.Sprintf("expected at most %d bytes, the capacity of host %s", largest.CapacityBytes, largest.Host)
	if spec.TargetHost == "" {
		rule += ": no target has more"
	}
	return overQuota(reasonCapacity, "spec.ring_size_bytes", fmt.Sprint(spec.RingSizeBytes), "%s", rule).
		errorf("stream %q: ring size %d: %s; declare a target with more (farlog apply, targets), then create it", spec.Name, spec.RingSizeBytes, rule)
}

// hasRoom refuses a stream for which all targets are too full now.
func (v *view) hasRoom(spec *api.StreamSpec) error {
	reason := v.crowded(v.targetSpecs, nil, []*api.StreamSpec{spec})[spec.Name]
	if reason == "" {
		return nil
	}
	return overQuota(reasonCapacity, "spec.ring_size_bytes", fmt.Sprint(spec.RingSizeBytes), "expected a target with room for it: %s", reason).
		errorf("stream %q: ring size %d: no target has room for it: %s; raise a capacity, declare another target (farlog apply, targets), or take a smaller ring", spec.Name, spec.RingSizeBytes, reason)
}

// largestCapacity is the host with the largest capacity; false where none is known, or one has no limit.
func largestCapacity(v *view, specs map[string]*api.TargetSpec) (largest *api.TargetSpec, isLimited bool) {
	for _, host := range sortedKeys(specs) {
		if spec := specs[host]; spec.CapacityBytes == 0 {
			return nil, false
		} else if largest == nil || spec.CapacityBytes > largest.CapacityBytes {
			largest = spec
		}
	}
	for _, agent := range v.liveTargets {
		if specs[agent.Host] == nil {
			return nil, false
		}
	}
	return largest, largest != nil
}

// overfullOf tells of rings on a host that have more than its capacity, as when that was lowered; "": they have not.
func (v *view) overfullOf(target *api.TargetSpec) string {
	if target.CapacityBytes == 0 {
		return ""
	}
	const unlimited = math.MaxUint64
	used := unlimited - reconcile.Room(v.world(), map[string]*api.TargetSpec{target.Host: {CapacityBytes: unlimited}})[target.Host]
	if used <= target.CapacityBytes {
		return ""
	}
	return fmt.Sprintf("its rings have %d bytes, more than its capacity of %d: they stay, and no further one is placed there", used, target.CapacityBytes)
}

func reserve(room map[string]uint64, spec *api.StreamSpec) {
	if free, isLimited := room[spec.TargetHost]; isLimited {
		room[spec.TargetHost] = free - min(free, spec.RingSizeBytes)
	}
}

func (v *view) hasTargetOn(host string) bool {
	for _, agent := range v.liveTargets {
		if agent.Host == host {
			return true
		}
	}
	return false
}
