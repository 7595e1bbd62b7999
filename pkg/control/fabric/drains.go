package fabric

import (
	"fmt"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/state"
)

// compareDrains finds drains that are declared anew or otherwise.
func (p *Plan) compareDrains(v *state.View, asked []*api.DrainSpec) {
	for _, drain := range asked {
		have := v.DrainSpecs[drain.Host]
		fields := DrainChanges(have, drain)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.drains = append(p.drains, drain)
		p.Changes = append(p.Changes, &api.Change{Kind: "drain", Name: drain.Host, IsNew: have == nil, Fields: fields})
	}
}

func (p *Plan) findUndeclaredDrains(v *state.View, fabric *api.Fabric) {
	for _, host := range slices.Sorted(maps.Keys(v.DrainSpecs)) {
		if !slices.ContainsFunc(fabric.Drains, func(spec *api.DrainSpec) bool { return spec.Host == host }) {
			p.Undeclared = append(p.Undeclared, "drain "+host)
		}
	}
}

// DrainChanges lists the fields in which two specs of a drain differ.
func DrainChanges(have, asked *api.DrainSpec) (changes []*api.FieldChange) {
	for _, field := range []struct{ name, before, after string }{
		{"store_dir", have.GetStoreDir(), asked.StoreDir},
		{"streams_max", fmt.Sprint(have.GetStreamsMax()), fmt.Sprint(asked.StreamsMax)},
		{"is_closed", fmt.Sprint(have.GetIsClosed()), fmt.Sprint(asked.IsClosed)},
	} {
		if field.before != field.after {
			changes = append(changes, &api.FieldChange{Name: field.name, Before: field.before, After: field.after})
		}
	}
	return changes
}
