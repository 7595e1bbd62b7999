package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// TenantOf is whose a stream is: its name up to the first slash, all of it where there is none.
func TenantOf(stream string) string {
	tenant, _, _ := strings.Cut(stream, "/")
	return tenant
}

// Uses is what each tenant has. The control plane's own streams are nobody's.
func Uses(streams map[string]*api.Stream) map[string]*api.TenantUse {
	list := map[string]*api.TenantUse{}
	for name, stream := range streams {
		if !pattern.IsSystem(name) {
			use(list, stream.Spec)
		}
	}
	return list
}

func use(list map[string]*api.TenantUse, spec *api.StreamSpec) {
	tenant := TenantOf(spec.Name)
	if list[tenant] == nil {
		list[tenant] = &api.TenantUse{Name: tenant}
	}
	list[tenant].Streams++
	list[tenant].RingBytes += ringBytes(spec)
	list[tenant].RecordsPerSecond += spec.RecordsPerSecond
	list[tenant].BytesPerSecond += spec.BytesPerSecond
}

// ringBytes is what a stream takes of its tenant's quota: the rings of all its members.
func ringBytes(spec *api.StreamSpec) uint64 {
	return spec.RingSizeBytes * uint64(reconcile.MemberCount(&api.Stream{Spec: spec}))
}

// WhyOver says which quotas one more stream would go beyond, each by the field that asks for it. A quota that was
// lowered takes nothing away.
func WhyOver(quota *api.TenantSpec, used *api.TenantUse, spec *api.StreamSpec) (problems []*api.Problem) {
	if quota.GetStreamsMax() > 0 && used.GetStreams() >= quota.StreamsMax {
		problems = append(problems, &api.Problem{
			Field: "name", Value: fmt.Sprintf("%q", spec.Name),
			Rule: fmt.Sprintf("expected no further stream of tenant %s: it has %d, its quota is %d; delete one, or "+
				"raise streams of the tenant", quota.Name, used.GetStreams(), quota.StreamsMax),
		})
	}
	if wanted := ringBytes(spec); quota.GetRingBytesMax() > 0 && used.GetRingBytes()+wanted > quota.RingBytesMax {
		problems = append(problems, &api.Problem{
			Field: "ring_size_bytes", Value: fmt.Sprint(spec.RingSizeBytes),
			Rule: fmt.Sprintf("expected rings of at most %d bytes together: so much is left of the quota of %d of "+
				"tenant %s, and %d rings of the stream take %d",
				left(quota.RingBytesMax, used.GetRingBytes()), quota.RingBytesMax, quota.Name,
				reconcile.MemberCount(&api.Stream{Spec: spec}), wanted),
		})
	}
	return append(problems, WhyTooFast(quota, used, nil, spec)...)
}

// rates are what a tenant's quota limits of what its streams declare to append.
var rates = []struct {
	field, unit string
	most        func(*api.TenantSpec) uint64
	used        func(*api.TenantUse) uint64
	of          func(*api.StreamSpec) uint64
}{
	{
		"records_per_second", "records/s", (*api.TenantSpec).GetRecordsPerSecondMax,
		(*api.TenantUse).GetRecordsPerSecond, (*api.StreamSpec).GetRecordsPerSecond,
	},
	{
		"bytes_per_second", "bytes/s", (*api.TenantSpec).GetBytesPerSecondMax, (*api.TenantUse).GetBytesPerSecond,
		(*api.StreamSpec).GetBytesPerSecond,
	},
}

// WhyTooFast says which of its tenant's quotas the rates of a stream go beyond, as it is declared or, with what it was
// before, declared otherwise. Where there is such a quota a new stream has to say how fast it is. To declare less than
// before is never too much.
func WhyTooFast(quota *api.TenantSpec, used *api.TenantUse, before, spec *api.StreamSpec) (problems []*api.Problem) {
	for _, rate := range rates {
		most, wanted, had := rate.most(quota), rate.of(spec), rate.of(before)
		others := rate.used(used) - min(had, rate.used(used))
		switch {
		case most == 0 || before != nil && wanted <= had && (wanted > 0 || had == 0):
		case wanted == 0:
			problems = append(problems, &api.Problem{
				Field: rate.field, Value: "0",
				Rule: fmt.Sprintf("expected a rate that is declared: tenant %s has a quota of %d %s; %d are left of it",
					quota.Name, most, rate.unit, left(most, others)),
			})
		case others+wanted > most:
			problems = append(problems, &api.Problem{
				Field: rate.field, Value: fmt.Sprint(wanted),
				Rule: fmt.Sprintf("expected at most %d %s: so much is left of the quota of %d of tenant %s",
					left(most, others), rate.unit, most, quota.Name),
			})
		}
	}
	return problems
}

// IsFaster reports whether a stream that is declared otherwise takes more of its tenant's quota.
func IsFaster(before, spec *api.StreamSpec) bool {
	return spec.GetRecordsPerSecond() > before.GetRecordsPerSecond() ||
		spec.GetBytesPerSecond() > before.GetBytesPerSecond()
}

// WhyBeyond says what a tenant has more of than its quota, as when that was lowered; "": nothing.
func WhyBeyond(quota *api.TenantSpec, used *api.TenantUse) string {
	var texts []string
	for _, one := range []struct {
		most, used uint64
		what       string
	}{
		{quota.GetStreamsMax(), used.GetStreams(), "streams"},
		{quota.GetRingBytesMax(), used.GetRingBytes(), "bytes of rings"},
		{quota.GetRecordsPerSecondMax(), used.GetRecordsPerSecond(), "records/s declared"},
		{quota.GetBytesPerSecondMax(), used.GetBytesPerSecond(), "bytes/s declared"},
	} {
		if one.most > 0 && one.used > one.most {
			texts = append(texts, fmt.Sprintf("%d %s, more than its quota of %d", one.used, one.what, one.most))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "it has " + strings.Join(texts, ", and ") + ": they stay, and no further ones are taken"
}

func left(most, used uint64) uint64 { return most - min(most, used) }

// checkTenants finds the streams that would go beyond a quota, as the fabric declares it or it was before. Each counts
// once, those that are there and declared to be faster first.
func (f *finder) checkTenants() {
	quotas := make(map[string]*api.TenantSpec, len(f.world.Tenants))
	maps.Copy(quotas, f.world.Tenants)
	for _, quota := range slices.Backward(f.fabric.Tenants) { // of two the first counts
		quotas[quota.Name] = quota
	}
	used := Uses(f.world.Streams)
	tell := func(i int, problems []*api.Problem) {
		for _, one := range problems {
			f.fail(fmt.Sprintf("streams[%d].%s", i, one.Field), one.Value, "%s", one.Rule)
		}
	}
	for _, i := range f.changed() { // before those that are new, as they are written
		spec := f.fabric.Streams[i]
		tenant, before := TenantOf(spec.Name), f.world.Streams[spec.Name].Spec
		tell(i, WhyTooFast(quotas[tenant], used[tenant], before, spec))
		f.IsRaised = f.IsRaised || quotas[tenant] != nil && IsFaster(before, spec)
		used[tenant].RecordsPerSecond += spec.RecordsPerSecond - before.RecordsPerSecond
		used[tenant].BytesPerSecond += spec.BytesPerSecond - before.BytesPerSecond
	}
	for _, i := range f.validStreams() {
		spec := f.fabric.Streams[i]
		quota := quotas[TenantOf(spec.Name)]
		f.IsLimited = f.IsLimited || quota != nil
		if problems := WhyOver(quota, used[TenantOf(spec.Name)], spec); len(problems) > 0 {
			tell(i, problems)
			continue
		}
		use(used, spec)
	}
}
