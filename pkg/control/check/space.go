package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// checkPlaces finds rings that are wanted where nobody knows of a target, or where it takes none.
func (f *finder) checkPlaces() {
	specs := f.world.targetsWith(f.fabric.Targets)
	for _, i := range f.added() {
		host := f.fabric.Streams[i].TargetHost
		switch {
		case host == "":
		case specs[host] == nil && !f.world.hasTargetOn(host):
			f.fail(fmt.Sprintf("streams[%d].target_host", i), fmt.Sprintf("%q", host),
				"expected a host under targets, or one whose target is registered")
		case specs[host].GetClosed():
			f.fail(fmt.Sprintf("streams[%d].target_host", i), fmt.Sprintf("%q", host),
				"expected a target that is not closed to new rings")
		}
		if reconcile.IsNamespaced(f.fabric.Streams[i]) {
			if why := reconcile.WhyNoNamespace(specs, f.fabric.Streams[i]); why != "" {
				f.fail(fmt.Sprintf("streams[%d].kind", i), `"`+reconcile.KindNVMeoF+`"`,
					"expected a namespace that writer and drain reach: %s", why)
			}
			continue
		}
		if why := reconcile.WhyUnreached(f.world.World, f.fabric.Streams[i]); why != "" {
			f.fail(fmt.Sprintf("streams[%d].target_host", i), fmt.Sprintf("%q", host),
				"expected a target that writer and drain reach: %s", why)
		}
	}
}

// checkSpace finds the streams that would find no target with space once all of the fabric is declared.
func (f *finder) checkSpace() {
	world, places := f.world, f.validStreams()
	world.TargetSpecs = world.targetsWith(f.fabric.Targets)
	created := make([]*api.StreamSpec, len(places))
	for at, i := range places {
		created[at] = f.fabric.Streams[i]
	}
	rules, isLimited := world.WhyNoSpace(created)
	for _, i := range places {
		if rule := rules[f.fabric.Streams[i].Name]; rule != "" {
			f.fail(fmt.Sprintf("streams[%d].ring_size_bytes", i), fmt.Sprint(f.fabric.Streams[i].RingSizeBytes), "%s",
				rule)
		}
	}
	f.IsLimited = f.IsLimited || isLimited
}

// targetsWith is what is declared of hosts, with what is asked for in its place.
func (w World) targetsWith(asked []*api.TargetSpec) map[string]*api.TargetSpec {
	specs := make(map[string]*api.TargetSpec, len(w.TargetSpecs)+len(asked))
	maps.Copy(specs, w.TargetSpecs)
	for _, target := range slices.Backward(asked) { // of two the first counts
		specs[target.Host] = target
	}
	return specs
}

func (w World) hasTargetOn(host string) bool {
	for _, agent := range w.LiveTargets {
		if agent.Host == host {
			return true
		}
	}
	return false
}

// WhyNoSpace says of each new stream, by its name, why no target that is known can have its rings beside all that there
// is and the others: it would wait for nothing that anybody has begun. Room that is being made is waited for, and so is
// a target that nothing limits. isLimited: what it says depends on what other streams there are.
func (w World) WhyNoSpace(created []*api.StreamSpec) (rules map[string]string, isLimited bool) {
	world := w.staying()
	rules, space := map[string]string{}, reconcile.FreeSpace(world.World, world.TargetSpecs)
	for name, stream := range world.Streams {
		if world.Rings[name] == nil { // on its way
			reserve(space, stream.Spec)
		}
	}
	var rest []*api.StreamSpec
	for _, spec := range created {
		_, isFull := space[spec.TargetHost]
		isLimited = isLimited || isFull
		if rule := world.whyTooLarge(spec, space); rule != "" {
			rules[spec.Name] = rule
			continue
		}
		reserve(space, spec)
		rest = append(rest, spec)
	}
	crowded, isEachLimited := world.whyNoSpaceTogether(rest)
	for name, reason := range crowded {
		rules[name] = "expected a target with free space for it beside what is declared: " + reason
	}
	return rules, isLimited || isEachLimited
}

// staying is a world without the rings of streams that go.
func (w World) staying() World {
	isGoing := func(name string) bool { return w.Ending[name] || reconcile.IsBeingDeleted(w.Deletions[name]) }
	if len(w.Ending)+len(w.Deletions) == 0 {
		return w
	}
	w.Rings, w.Streams = maps.Clone(w.Rings), maps.Clone(w.Streams)
	maps.DeleteFunc(w.Rings, func(_ string, ring *api.RingSpec,
	) bool {
		return isGoing(ring.GetStream().GetSpec().GetName())
	})
	maps.DeleteFunc(w.Streams, func(name string, _ *api.Stream) bool { return isGoing(name) })
	return w
}

// whyTooLarge says why a ring is larger than what is left on the host that it is wanted on, or than any target, where
// it may be anywhere; "": it is not.
func (w World) whyTooLarge(spec *api.StreamSpec, space map[string]uint64) string {
	host := spec.TargetHost
	free, isLimited := space[host]
	largest := w.TargetSpecs[host]
	if host == "" {
		if largest, isLimited = w.largestCapacity(); isLimited {
			free = largest.CapacityBytes // what is full now may have space later; more than this never
		}
	}
	switch {
	case !isLimited || spec.RingSizeBytes <= free:
		return ""
	case host == "":
		return fmt.Sprintf("expected at most %d bytes, the capacity of host %s: no target has more", free, largest.Host)
	case free == largest.CapacityBytes:
		return fmt.Sprintf("expected at most %d bytes, the capacity of host %s", free, host)
	}
	return fmt.Sprintf("expected at most %d bytes: so much is left of the %d of target host %s", free,
		largest.CapacityBytes, host)
}

// largestCapacity is the host with the largest capacity; false where none is known, or one has no limit.
func (w World) largestCapacity() (largest *api.TargetSpec, isLimited bool) {
	for host, spec := range w.TargetSpecs {
		if spec.CapacityBytes == 0 {
			return nil, false
		}
		if largest == nil || spec.CapacityBytes > largest.CapacityBytes ||
			spec.CapacityBytes == largest.CapacityBytes && host < largest.Host {
			largest = spec
		}
	}
	for _, agent := range w.LiveTargets {
		if w.TargetSpecs[agent.Host] == nil {
			return nil, false
		}
	}
	return largest, largest != nil
}

func reserve(space map[string]uint64, spec *api.StreamSpec) {
	if free, isLimited := space[spec.TargetHost]; isLimited {
		space[spec.TargetHost] = free - min(free, spec.RingSizeBytes)
	}
}

// whyNoSpaceTogether says of each stream that is to be created why it finds no space beside all that is there, by the
// placement of the reconciler. Where a target without a capacity is known, all of them may wait for it.
func (w World) whyNoSpaceTogether(created []*api.StreamSpec) (reasons map[string]string, isLimited bool) {
	world, isLimited := reconcile.WithDeclared(w.World, w.TargetSpecs)
	if !isLimited || len(created) == 0 {
		return nil, false
	}
	world.Streams = maps.Clone(world.Streams)
	if world.Streams == nil {
		world.Streams = map[string]*api.Stream{}
	}
	var names []string
	for name, stream := range w.Streams { // on their way
		if _, isWhole := reconcile.RingSpecs(w.Rings, stream); !isWhole {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, spec := range slices.SortedStableFunc(slices.Values(created),
		func(a, b *api.StreamSpec) int { return strings.Compare(a.Name, b.Name) }) {
		world.Streams[spec.Name] = &api.Stream{Spec: spec, K: spec.Needed}
		names = append(names, spec.Name)
	}
	reasons = reconcile.WithoutSpace(world, names, w.Now)
	for name := range reasons {
		if w.Streams[name] != nil {
			delete(reasons, name)
		}
	}
	return reasons, true
}
