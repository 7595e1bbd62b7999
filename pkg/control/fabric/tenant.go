package fabric

import (
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/state"
)

func (p *Plan) compareTenants(v *state.View, asked []*api.TenantSpec) {
	for _, tenant := range asked {
		have := v.Tenants[tenant.Name]
		fields := Changes(have, tenant)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.tenants = append(p.tenants, tenant)
		p.Changes = append(p.Changes, &api.Change{
			Kind: "tenant", Name: tenant.Name, Created: have == nil,
			Fields: fields,
		})
	}
}

// TenantUses lists those who have a stream or a quota, by name.
func TenantUses(v *state.View) (list []*api.TenantUse) {
	used := check.Uses(v.Streams)
	for name := range v.Tenants {
		if used[name] == nil {
			used[name] = &api.TenantUse{Name: name}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		used[name].Quota = v.Tenants[name]
		list = append(list, used[name])
	}
	return list
}
