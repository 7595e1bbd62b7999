package control

import (
	"fmt"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// compareDrains finds drains that are declared anew or otherwise. Where drains are declared, a stream that is to be drained on a certain host is drained on
// one of them, or on one whose drain is registered.
func (p *fabricPlan) compareDrains(v *view, fabric *api.Fabric) {
	isDeclared := map[string]bool{}
	for _, drain := range fabric.Drains {
		isDeclared[drain.Host] = true
		have := v.drainSpecs[drain.Host]
		fields := drainChanges(have, drain)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.drains = append(p.drains, drain)
		p.changes = append(p.changes, &api.Change{Kind: "drain", Name: drain.Host, IsNew: have == nil, Fields: fields})
	}
	if len(fabric.Drains) == 0 {
		return
	}
	registered := v.drainHosts()
	for i, stream := range fabric.Streams {
		if host := stream.DrainHost; host != "" && !isDeclared[host] && registered[host] == nil {
			p.fail(fmt.Sprintf("streams[%d].drain_host", i), fmt.Sprintf("%q", host), "expected a host under drains, or one whose drain is registered")
		}
	}
}

func (p *fabricPlan) findUndeclaredDrains(v *view, fabric *api.Fabric) {
	for _, host := range sortedKeys(v.drainSpecs) {
		if !slices.ContainsFunc(fabric.Drains, func(spec *api.DrainSpec) bool { return spec.Host == host }) {
			p.undeclared = append(p.undeclared, "drain "+host)
		}
	}
}
