package control

import (
	"fmt"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// fabricPlan is what has to be written so that what is declared is so. It is made of what is declared and what there is, by pure functions.
type fabricPlan struct {
	targets    []*api.TargetSpec // new or changed
	drains     []*api.DrainSpec  // new or changed
	created    []*api.StreamSpec
	updated    []*api.StreamSpec
	changes    []*api.Change
	undeclared []string
	problems   []*api.Problem
	deletions  []*api.Deletion   // of streams that are not declared, when that was asked for
	dropped    []string          // keys of targets, drains and tenants of which nothing is declared any more
	routes     []*api.RouteSpec  // new or changed
	tenants    []*api.TenantSpec // new or changed
	isLimited  bool              // a stream that is created has a tenant with a quota
	ended      []string          // routes that are not declared, when that was asked for
}

// planFabric compares. All that is wrong is in problems; then nothing of the rest may be done.
func planFabric(v *view, asked *api.Fabric) (*fabricPlan, error) {
	fabric := completeFabric(asked)
	problems, err := problemsOf(fabric, "fabric.")
	if err != nil {
		return nil, err
	}
	plan := &fabricPlan{problems: problems}
	plan.findDoubles(fabric)
	plan.compareTargets(v, fabric.Targets)
	plan.compareDrains(v, fabric)
	plan.compareTenants(v, fabric.Tenants)
	plan.compareStreams(v, fabric.Streams)
	plan.compareRoutes(v, fabric)
	plan.checkPlaces(v, fabric)
	plan.checkTenants(v, fabric)
	plan.findUndeclared(v, fabric)
	return plan, nil
}

func completeFabric(asked *api.Fabric) *api.Fabric {
	fabric := new(api.Fabric)
	for _, target := range asked.GetTargets() {
		fabric.Targets = append(fabric.Targets, target)
	}
	fabric.Drains = append(fabric.Drains, asked.GetDrains()...)
	fabric.Tenants = append(fabric.Tenants, asked.GetTenants()...)
	for _, stream := range asked.GetStreams() {
		fabric.Streams = append(fabric.Streams, withDefaults(stream))
	}
	for _, route := range asked.GetRoutes() {
		fabric.Routes = append(fabric.Routes, routeWithDefaults(route))
	}
	return fabric
}

func (p *fabricPlan) fail(field, value, rule string, args ...any) {
	p.problems = append(p.problems, &api.Problem{Field: "fabric." + field, Value: value, Rule: fmt.Sprintf(rule, args...)})
}

func (p *fabricPlan) findDoubles(fabric *api.Fabric) {
	findDoubles(p, "targets", "host", fabric.Targets, (*api.TargetSpec).GetHost)
	findDoubles(p, "drains", "host", fabric.Drains, (*api.DrainSpec).GetHost)
	findDoubles(p, "tenants", "name", fabric.Tenants, (*api.TenantSpec).GetName)
	findDoubles(p, "streams", "name", fabric.Streams, (*api.StreamSpec).GetName)
	findDoubles(p, "routes", "name", fabric.Routes, (*api.RouteSpec).GetName)
}

func findDoubles[M any](p *fabricPlan, list, field string, items []M, nameOf func(M) string) {
	names := map[string]int{}
	for i, item := range items {
		name := nameOf(item)
		if first, isThere := names[name]; isThere {
			p.fail(fmt.Sprintf("%s[%d].%s", list, i, field), fmt.Sprintf("%q", name), "expected each %s once: %s[%d] is the same", field, list, first)
			continue
		}
		names[name] = i
	}
}

func (p *fabricPlan) compareTargets(v *view, asked []*api.TargetSpec) {
	for _, target := range asked {
		have := v.targetSpecs[target.Host]
		fields := targetChanges(have, target)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.targets = append(p.targets, target)
		p.changes = append(p.changes, &api.Change{Kind: "target", Name: target.Host, IsNew: have == nil, Fields: fields})
	}
}

func targetChanges(have, asked *api.TargetSpec) (changes []*api.FieldChange) {
	if have.GetCapacityBytes() != asked.CapacityBytes {
		changes = append(changes, &api.FieldChange{Name: "capacity_bytes", Before: fmt.Sprint(have.GetCapacityBytes()), After: fmt.Sprint(asked.CapacityBytes)})
	}
	if have.GetIsClosed() != asked.IsClosed {
		changes = append(changes, &api.FieldChange{Name: "is_closed", Before: fmt.Sprint(have.GetIsClosed()), After: fmt.Sprint(asked.IsClosed)})
	}
	if have.GetRack() != asked.Rack {
		changes = append(changes, &api.FieldChange{Name: "rack", Before: have.GetRack(), After: asked.Rack})
	}
	if have.GetSite() != asked.Site {
		changes = append(changes, &api.FieldChange{Name: "site", Before: have.GetSite(), After: asked.Site})
	}
	if have.GetWearLimitPercent() != asked.WearLimitPercent {
		changes = append(changes, &api.FieldChange{Name: "wear_limit_percent", Before: fmt.Sprint(have.GetWearLimitPercent()), After: fmt.Sprint(asked.WearLimitPercent)})
	}
	return changes
}

func (p *fabricPlan) compareStreams(v *view, asked []*api.StreamSpec) {
	for i, spec := range asked {
		have := v.streams[spec.Name]
		if reconcile.IsBeingDeleted(v.deletions[spec.Name]) {
			p.fail(fmt.Sprintf("streams[%d].name", i), fmt.Sprintf("%q", spec.Name), "expected a stream that is not being deleted: declare it again when it is gone")
			continue
		}
		if have == nil && isSystem(spec.Name) {
			p.fail(fmt.Sprintf("streams[%d].name", i), fmt.Sprintf("%q", spec.Name), systemRule)
			continue
		}
		if have == nil {
			p.created = append(p.created, spec)
			p.changes = append(p.changes, &api.Change{Kind: "stream", Name: spec.Name, IsNew: true, Fields: newFields(spec)})
			continue
		}
		fields, problems := specChanges(have.Spec, spec, fmt.Sprintf("fabric.streams[%d].", i))
		p.problems = append(p.problems, problems...)
		if len(fields) > 0 {
			p.updated = append(p.updated, spec)
			p.changes = append(p.changes, &api.Change{Kind: "stream", Name: spec.Name, Fields: fields})
		}
	}
}

// newFields is what a stream will be.
func newFields(spec *api.StreamSpec) (fields []*api.FieldChange) {
	for _, field := range specFields {
		if text := field.text(spec); text != "" && text != "0s" {
			fields = append(fields, &api.FieldChange{Name: field.path, After: text})
		}
	}
	return fields
}

func (p *fabricPlan) findUndeclared(v *view, fabric *api.Fabric) {
	for _, host := range sortedKeys(v.targetSpecs) {
		if !slices.ContainsFunc(fabric.Targets, func(spec *api.TargetSpec) bool { return spec.Host == host }) {
			p.undeclared = append(p.undeclared, "target "+host)
		}
	}
	p.findUndeclaredDrains(v, fabric)
	for _, name := range sortedKeys(v.tenants) {
		if !slices.ContainsFunc(fabric.Tenants, func(spec *api.TenantSpec) bool { return spec.Name == name }) {
			p.undeclared = append(p.undeclared, "tenant "+name)
		}
	}
	declared := make(map[string]bool, len(fabric.Streams))
	for _, spec := range fabric.Streams {
		declared[spec.Name] = true
	}
	for _, name := range withoutSystem(sortedKeys(v.streams)) {
		if !declared[name] && !reconcile.IsBeingDeleted(v.deletions[name]) {
			p.undeclared = append(p.undeclared, "stream "+name)
		}
	}
	for _, name := range sortedKeys(v.routes) {
		if !slices.ContainsFunc(fabric.Routes, func(spec *api.RouteSpec) bool { return spec.Name == name }) {
			p.undeclared = append(p.undeclared, "route "+name)
		}
	}
}

// fabric is what is declared now.
func (v *view) fabric() *api.Fabric {
	fabric := new(api.Fabric)
	for _, host := range sortedKeys(v.targetSpecs) {
		fabric.Targets = append(fabric.Targets, v.targetSpecs[host])
	}
	for _, host := range sortedKeys(v.drainSpecs) {
		fabric.Drains = append(fabric.Drains, v.drainSpecs[host])
	}
	for _, name := range sortedKeys(v.tenants) {
		fabric.Tenants = append(fabric.Tenants, v.tenants[name])
	}
	for _, name := range withoutSystem(sortedKeys(v.streams)) {
		if reconcile.IsBeingDeleted(v.deletions[name]) {
			continue
		}
		fabric.Streams = append(fabric.Streams, v.streams[name].Spec)
	}
	for _, name := range sortedKeys(v.routes) {
		fabric.Routes = append(fabric.Routes, v.routes[name].Spec)
	}
	return fabric
}
