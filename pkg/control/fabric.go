package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
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
	isRaised   bool              // a stream that is there declares more of its tenant's quota
	isLimited  bool              // a stream that is created has to find room beside others, of a target or a quota
	ended      []string          // routes that are not declared, when that was asked for
}

// planFabric compares. All that is wrong is in problems; then nothing of the rest may be done. With a pruner what he has declared before and no longer does goes.
func planFabric(v *view, asked *api.Fabric, pruner *access.Caller) (*fabricPlan, error) {
	fabric, plan := check.Complete(asked), new(fabricPlan)
	plan.compareTargets(v, fabric.Targets)
	plan.compareDrains(v, fabric.Drains)
	plan.compareTenants(v, fabric.Tenants)
	plan.compareStreams(v, fabric.Streams)
	plan.compareRoutes(v, fabric)
	plan.findUndeclared(v, fabric)
	if pruner != nil {
		plan.prune(v, *pruner, fabric)
	}
	world := v.declared()
	world.Ending = plan.ending()
	found, err := check.Fabric(world, fabric)
	plan.problems, plan.isLimited, plan.isRaised = append(found.Problems, plan.problems...), found.IsLimited, found.IsRaised
	return plan, err
}

// declared is what there is, for those who look at what is to be declared beside it.
func (v *view) declared() check.World {
	world := check.World{World: v.world(), Tenants: v.tenants, Routes: v.routeSpecs(), DrainHosts: map[string]bool{}, Now: time.Now()}
	for host := range v.drainHosts() {
		world.DrainHosts[host] = true
	}
	return world
}

// routeSpecs are the routes that there are.
func (v *view) routeSpecs() check.Routes {
	all := make(check.Routes, len(v.routes))
	for name, route := range v.routes {
		all[name] = route.Spec
	}
	return all
}

// ending are the streams that go.
func (p *fabricPlan) ending() map[string]bool {
	names := map[string]bool{}
	for _, deletion := range p.deletions {
		names[deletion.Name] = true
	}
	return names
}

func (p *fabricPlan) fail(field, value, rule string, args ...any) {
	p.problems = append(p.problems, &api.Problem{Field: "fabric." + field, Value: value, Rule: fmt.Sprintf(rule, args...)})
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
			continue // which is a problem by itself
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
	for _, host := range slices.Sorted(maps.Keys(v.targetSpecs)) {
		if !slices.ContainsFunc(fabric.Targets, func(spec *api.TargetSpec) bool { return spec.Host == host }) {
			p.undeclared = append(p.undeclared, "target "+host)
		}
	}
	p.findUndeclaredDrains(v, fabric)
	for _, name := range slices.Sorted(maps.Keys(v.tenants)) {
		if !slices.ContainsFunc(fabric.Tenants, func(spec *api.TenantSpec) bool { return spec.Name == name }) {
			p.undeclared = append(p.undeclared, "tenant "+name)
		}
	}
	declared := make(map[string]bool, len(fabric.Streams))
	for _, spec := range fabric.Streams {
		declared[spec.Name] = true
	}
	for _, name := range withoutSystem(slices.Sorted(maps.Keys(v.streams))) {
		if !declared[name] && !reconcile.IsBeingDeleted(v.deletions[name]) {
			p.undeclared = append(p.undeclared, "stream "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.routes)) {
		if !slices.ContainsFunc(fabric.Routes, func(spec *api.RouteSpec) bool { return spec.Name == name }) {
			p.undeclared = append(p.undeclared, "route "+name)
		}
	}
}

// fabric is what is declared now.
func (v *view) fabric() *api.Fabric {
	fabric := new(api.Fabric)
	for _, host := range slices.Sorted(maps.Keys(v.targetSpecs)) {
		fabric.Targets = append(fabric.Targets, v.targetSpecs[host])
	}
	for _, host := range slices.Sorted(maps.Keys(v.drainSpecs)) {
		fabric.Drains = append(fabric.Drains, v.drainSpecs[host])
	}
	for _, name := range slices.Sorted(maps.Keys(v.tenants)) {
		fabric.Tenants = append(fabric.Tenants, v.tenants[name])
	}
	for _, name := range withoutSystem(slices.Sorted(maps.Keys(v.streams))) {
		if reconcile.IsBeingDeleted(v.deletions[name]) {
			continue
		}
		fabric.Streams = append(fabric.Streams, v.streams[name].Spec)
	}
	for _, name := range slices.Sorted(maps.Keys(v.routes)) {
		fabric.Routes = append(fabric.Routes, v.routes[name].Spec)
	}
	return fabric
}
