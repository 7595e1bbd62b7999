package fabric

import (
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/state"
)

// compareDrains finds drains that are declared again or otherwise.
func (p *Plan) compareDrains(v *state.View, asked []*api.DrainSpec) {
	for _, drain := range asked {
		have := v.DrainSpecs[drain.Host]
		fields := Changes(have, drain)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.drains = append(p.drains, drain)
		p.Changes = append(p.Changes,
			&api.Change{Kind: "drain", Name: drain.Host, Created: have == nil, Fields: fields})
	}
}

func (p *Plan) findUndeclaredDrains(v *state.View, fabric *api.Fabric) {
	for _, host := range slices.Sorted(maps.Keys(v.DrainSpecs)) {
		if !slices.ContainsFunc(fabric.Drains, func(spec *api.DrainSpec) bool { return spec.Host == host }) {
			p.Undeclared = append(p.Undeclared, "drain "+host)
		}
	}
}
