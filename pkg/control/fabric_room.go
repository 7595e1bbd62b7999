package control

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// crowded says of each stream that is to be created why it finds no room beside all that is there, by the placement of the reconciler. Rings of streams that are being deleted do not count: to
// wait for their room is right, as it is where a target without a capacity is known.
func (v *view) crowded(specs map[string]*api.TargetSpec, ending map[string]bool, created []*api.StreamSpec) map[string]string {
	world, isLimited := reconcile.WithDeclared(v.world(), specs)
	if !isLimited || len(created) == 0 {
		return nil
	}
	isGoing := func(name string) bool { return ending[name] || reconcile.IsBeingDeleted(v.deletions[name]) }
	world.Rings = maps.Clone(v.rings)
	maps.DeleteFunc(world.Rings, func(_ string, ring *api.RingSpec) bool { return isGoing(ring.GetStream().GetSpec().GetName()) })
	world.Streams = maps.Clone(v.streams)
	var names []string
	for _, name := range sortedKeys(v.streams) { // on their way
		if _, isWhole := reconcile.RingSpecs(v.rings, v.streams[name]); !isWhole && !isGoing(name) {
			names = append(names, name)
		}
	}
	for _, spec := range slices.SortedStableFunc(slices.Values(created), func(a, b *api.StreamSpec) int { return strings.Compare(a.Name, b.Name) }) {
		if world.Streams[spec.Name] == nil {
			world.Streams[spec.Name] = &api.Stream{Spec: spec, K: spec.Needed}
			names = append(names, spec.Name)
		}
	}
	return reconcile.Crowded(world, names, time.Now())
}

// checkRoom finds the streams that would find no target with room, once all of the fabric is declared and what it prunes has gone.
func (p *fabricPlan) checkRoom(v *view, fabric *api.Fabric) {
	specs := maps.Clone(v.targetSpecs)
	if specs == nil {
		specs = map[string]*api.TargetSpec{}
	}
	for _, target := range fabric.GetTargets() {
		specs[target.Host] = target
	}
	ending := map[string]bool{}
	for _, deletion := range p.deletions {
		ending[deletion.Name] = true
	}
	reasons := v.crowded(specs, ending, p.created)
	for i, spec := range fabric.GetStreams() {
		if reason := reasons[spec.Name]; reason != "" && v.streams[spec.Name] == nil {
			p.fail(fmt.Sprintf("streams[%d].ring_size_bytes", i), fmt.Sprint(withDefaults(spec).RingSizeBytes), "expected a target with room for it beside what is declared: %s", reason)
			delete(reasons, spec.Name)
		}
	}
}
