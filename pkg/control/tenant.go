package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// tenantOf is whose a stream is: its name up to the first slash, all of it where there is none.
func tenantOf(stream string) string {
	tenant, _, _ := strings.Cut(stream, "/")
	return tenant
}

// uses is what each tenant has. The control plane's own streams are nobody's.
func uses(streams map[string]*api.Stream) map[string]*api.TenantUse {
	list := map[string]*api.TenantUse{}
	for name, stream := range streams {
		if !isSystem(name) {
			use(list, stream.Spec)
		}
	}
	return list
}

func use(list map[string]*api.TenantUse, spec *api.StreamSpec) {
	tenant := tenantOf(spec.Name)
	if list[tenant] == nil {
		list[tenant] = &api.TenantUse{Name: tenant}
	}
	list[tenant].Streams++
	list[tenant].RingBytes += ringBytes(spec)
}

// ringBytes is what a stream takes of its tenant's quota: the rings of all its members.
func ringBytes(spec *api.StreamSpec) uint64 {
	return spec.RingSizeBytes * uint64(reconcile.MemberCount(&api.Stream{Spec: spec}))
}

// whyOver says which quota one more stream would go beyond, by the field that asks for it; "": none. A quota that was lowered takes nothing away.
func whyOver(quota *api.TenantSpec, used *api.TenantUse, spec *api.StreamSpec) (field, rule string) {
	switch wanted := ringBytes(spec); {
	case quota.GetStreamsMax() > 0 && used.GetStreams() >= quota.StreamsMax:
		return "name", fmt.Sprintf("expected no further stream of tenant %s: it has %d, its quota is %d; delete one, or raise streams of the tenant", quota.Name, used.GetStreams(), quota.StreamsMax)
	case quota.GetRingBytesMax() > 0 && used.GetRingBytes()+wanted > quota.RingBytesMax:
		free := quota.RingBytesMax - min(quota.RingBytesMax, used.GetRingBytes())
		return "ring_size_bytes", fmt.Sprintf("expected rings of at most %d bytes together: so much is left of the quota of %d of tenant %s, and %d rings of the stream take %d", free, quota.RingBytesMax,
			quota.Name, reconcile.MemberCount(&api.Stream{Spec: spec}), wanted)
	}
	return "", ""
}

// checkTenants finds the streams that would go beyond a quota, as the fabric declares it or it was before. Each counts once, in the fabric's order.
func (p *fabricPlan) checkTenants(v *view, fabric *api.Fabric) {
	quotas := map[string]*api.TenantSpec{}
	for name, quota := range v.tenants {
		quotas[name] = quota
	}
	for _, quota := range slices.Backward(fabric.Tenants) { // of two the first counts
		quotas[quota.Name] = quota
	}
	used, counted := uses(v.streams), map[string]bool{}
	for i, spec := range fabric.Streams {
		if v.streams[spec.Name] != nil || counted[spec.Name] {
			continue
		}
		counted[spec.Name] = true
		tenant := tenantOf(spec.Name)
		field, rule := whyOver(quotas[tenant], used[tenant], spec)
		switch field {
		case "name":
			p.fail(fmt.Sprintf("streams[%d].name", i), fmt.Sprintf("%q", spec.Name), "%s", rule)
		case "ring_size_bytes":
			p.fail(fmt.Sprintf("streams[%d].ring_size_bytes", i), fmt.Sprint(spec.RingSizeBytes), "%s", rule)
		default:
			use(used, spec)
		}
		p.isLimited = p.isLimited || quotas[tenant] != nil
	}
}

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
	if have.GetStreamsMax() != asked.StreamsMax {
		changes = append(changes, &api.FieldChange{Name: "streams_max", Before: fmt.Sprint(have.GetStreamsMax()), After: fmt.Sprint(asked.StreamsMax)})
	}
	if have.GetRingBytesMax() != asked.RingBytesMax {
		changes = append(changes, &api.FieldChange{Name: "ring_bytes_max", Before: fmt.Sprint(have.GetRingBytesMax()), After: fmt.Sprint(asked.RingBytesMax)})
	}
	return changes
}

// errUsedMeanwhile -- a stream was created since the view in which there was room for this one.
var errUsedMeanwhile = errors.New("a stream was created meanwhile")

// createWithin creates a stream within its tenant's quota: of two that would only together go beyond it the second one is refused, whichever control plane it was asked of.
func (s *Server) createWithin(ctx context.Context, spec *api.StreamSpec) (stream *api.Stream, isNew bool, revision int64, err error) {
	for {
		now, _ := s.mirror.load()
		var guards []clientv3.Cmp
		if tenant := tenantOf(spec.Name); now.tenants[tenant] != nil && now.streams[spec.Name] == nil {
			if err := now.within(spec); err != nil {
				return nil, false, 0, err
			}
			guards = []clientv3.Cmp{unchangedSince(now, keyStreamID), unchangedSince(now, keyTenants+tenant)}
		}
		stream, isNew, revision, err = s.specs.createStream(ctx, spec, guards...)
		if !errors.Is(err, errUsedMeanwhile) {
			return stream, isNew, revision, err
		}
		if err := s.mirror.waitRevision(ctx, revision); err != nil {
			return nil, false, 0, err
		}
	}
}

// within refuses a stream that would go beyond its tenant's quota.
func (v *view) within(spec *api.StreamSpec) error {
	tenant := tenantOf(spec.Name)
	field, rule := whyOver(v.tenants[tenant], uses(v.streams)[tenant], spec)
	if field == "" {
		return nil
	}
	problem := &api.Problem{Field: "spec." + field, Value: fmt.Sprintf("%q", spec.Name), Rule: rule}
	if field == "ring_size_bytes" {
		problem.Value = fmt.Sprint(spec.RingSizeBytes)
	}
	return withReason(codes.FailedPrecondition, reasonSpec, fmt.Sprintf("stream %q: %s", spec.Name, problemText(problem)), []*api.Problem{problem})
}

// tenantUses lists those who have a stream or a quota, by name.
func (v *view) tenantUses() (list []*api.TenantUse) {
	used := uses(v.streams)
	for name := range v.tenants {
		if used[name] == nil {
			used[name] = &api.TenantUse{Name: name}
		}
	}
	for _, name := range sortedKeys(used) {
		used[name].Quota = v.tenants[name]
		list = append(list, used[name])
	}
	return list
}
