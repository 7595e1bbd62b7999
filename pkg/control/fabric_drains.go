package control

import (
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// compareDrains finds drains that are declared anew or otherwise.
func (p *fabricPlan) compareDrains(v *view, asked []*api.DrainSpec) {
	for _, drain := range asked {
		have := v.drainSpecs[drain.Host]
		fields := drainChanges(have, drain)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.drains = append(p.drains, drain)
		p.changes = append(p.changes, &api.Change{Kind: "drain", Name: drain.Host, IsNew: have == nil, Fields: fields})
	}
}

func (p *fabricPlan) findUndeclaredDrains(v *view, fabric *api.Fabric) {
	for _, host := range slices.Sorted(maps.Keys(v.drainSpecs)) {
		if !slices.ContainsFunc(fabric.Drains, func(spec *api.DrainSpec) bool { return spec.Host == host }) {
			p.undeclared = append(p.undeclared, "drain "+host)
		}
	}
}
