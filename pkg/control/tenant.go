package control

import (
	"fmt"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
)

func (p *fabricPlan) compareTenants(v *view, asked []*api.TenantSpec) {
	for _, tenant := range asked {
		have := v.tenants[tenant.Name]
		fields := tenantChanges(have, tenant)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.tenants = append(p.tenants, tenant)
		p.changes = append(p.changes, &api.Change{Kind: "tenant", Name: tenant.Name, IsNew: have == nil, Fields: fields})
	}
}

func tenantChanges(have, asked *api.TenantSpec) (changes []*api.FieldChange) {
	for _, field := range []struct {
		name string
		of   func(*api.TenantSpec) uint64
	}{
		{"streams_max", (*api.TenantSpec).GetStreamsMax}, {"ring_bytes_max", (*api.TenantSpec).GetRingBytesMax},
		{"records_per_second_max", (*api.TenantSpec).GetRecordsPerSecondMax}, {"bytes_per_second_max", (*api.TenantSpec).GetBytesPerSecondMax},
	} {
		if before, after := field.of(have), field.of(asked); before != after {
			changes = append(changes, &api.FieldChange{Name: field.name, Before: fmt.Sprint(before), After: fmt.Sprint(after)})
		}
	}
	return changes
}

// tenantUses lists those who have a stream or a quota, by name.
func (v *view) tenantUses() (list []*api.TenantUse) {
	used := check.Uses(v.streams)
	for name := range v.tenants {
		if used[name] == nil {
			used[name] = &api.TenantUse{Name: name}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		used[name].Quota = v.tenants[name]
		list = append(list, used[name])
	}
	return list
}
