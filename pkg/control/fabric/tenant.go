package fabric

import (
	"fmt"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/state"
)

func (p *Plan) compareTenants(v *state.View, asked []*api.TenantSpec) {
	for _, tenant := range asked {
		have := v.Tenants[tenant.Name]
		fields := tenantChanges(have, tenant)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.tenants = append(p.tenants, tenant)
		p.Changes = append(p.Changes, &api.Change{
			Kind: "tenant", Name: tenant.Name, IsNew: have == nil,
			Fields: fields,
		})
	}
}

func tenantChanges(have, asked *api.TenantSpec) (changes []*api.FieldChange) {
	for _, field := range []struct {
		name string
		of   func(*api.TenantSpec) uint64
	}{
		{"streams_max", (*api.TenantSpec).GetStreamsMax},
		{"ring_bytes_max", (*api.TenantSpec).GetRingBytesMax},
		{"records_per_second_max", (*api.TenantSpec).GetRecordsPerSecondMax},
		{"bytes_per_second_max", (*api.TenantSpec).GetBytesPerSecondMax},
	} {
		if before, after := field.of(have), field.of(asked); before != after {
			changes = append(changes, &api.FieldChange{
				Name: field.name, Before: fmt.Sprint(before),
				After: fmt.Sprint(after),
			})
		}
	}
	return changes
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
