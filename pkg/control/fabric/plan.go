// Package fabric is what is declared: it compares a file with what there is, plans what differs, and writes streams,
// routes, hosts and quotas where there is space.
package fabric

import (
	"fmt"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// Plan is what has to be written so that what is declared is so. It is made of what is declared and what there is, by
// pure functions.
type Plan struct {
	targets    []*api.TargetSpec // new or changed
	drains     []*api.DrainSpec  // new or changed
	Created    []*api.StreamSpec
	updated    []*api.StreamSpec
	Changes    []*api.Change
	Undeclared []string
	Problems   []*api.Problem
	deletions  []*api.Deletion   // of streams that are not declared, when that was asked for
	dropped    []string          // keys of targets, drains and tenants of which nothing is declared any more
	routes     []*api.RouteSpec  // new or changed
	tenants    []*api.TenantSpec // new or changed
	IsRaised   bool              // a stream that is there declares more of its tenant's quota
	IsLimited  bool              // a stream that is created has to find space beside others, of a target or a quota
	ended      []string          // routes that are not declared, when that was asked for
}

// NewPlan compares. All that is wrong is in problems; then nothing of the rest may be done. With a pruner what he has
// declared before and no longer does goes.
func NewPlan(v *state.View, asked *api.Fabric, pruner *access.Caller) (*Plan, error) {
	fabric, plan := check.Complete(asked), new(Plan)
	plan.compareTargets(v, fabric.Targets)
	plan.compareDrains(v, fabric.Drains)
	plan.compareTenants(v, fabric.Tenants)
	plan.compareStreams(v, fabric.Streams)
	plan.compareRoutes(v, fabric)
	plan.findUndeclared(v, fabric)
	if pruner != nil {
		plan.prune(v, *pruner, fabric)
	}
	world := v.Declared()
	world.Ending = plan.ending()
	found, err := check.Fabric(world, fabric)
	plan.Problems, plan.IsLimited, plan.IsRaised = append(found.Problems, plan.Problems...), found.IsLimited,
		found.IsRaised
	return plan, err
}

// ending are the streams that go.
func (p *Plan) ending() map[string]bool {
	names := map[string]bool{}
	for _, deletion := range p.deletions {
		names[deletion.Name] = true
	}
	return names
}

func (p *Plan) fail(field, value, rule string, args ...any) {
	p.Problems = append(p.Problems, &api.Problem{
		Field: "fabric." + field, Value: value,
		Rule: fmt.Sprintf(rule, args...),
	})
}

func (p *Plan) compareTargets(v *state.View, asked []*api.TargetSpec) {
	for _, target := range asked {
		have := v.TargetSpecs[target.Host]
		fields := Changes(have, target)
		if have != nil && len(fields) == 0 {
			continue
		}
		p.targets = append(p.targets, target)
		p.Changes = append(p.Changes, &api.Change{
			Kind: "target", Name: target.Host, Created: have == nil,
			Fields: fields,
		})
	}
}

func (p *Plan) compareStreams(v *state.View, asked []*api.StreamSpec) {
	for i, spec := range asked {
		have := v.Streams[spec.Name]
		if reconcile.IsBeingDeleted(v.Deletions[spec.Name]) {
			continue // which is a problem by itself
		}
		if have == nil {
			p.Created = append(p.Created, spec)
			p.Changes = append(p.Changes, &api.Change{
				Kind: "stream", Name: spec.Name, Created: true,
				Fields: newFields(spec),
			})
			continue
		}
		fields, problems := StreamChanges(have.Spec, spec, fmt.Sprintf("fabric.streams[%d].", i))
		p.Problems = append(p.Problems, problems...)
		if len(fields) > 0 {
			p.updated = append(p.updated, spec)
			p.Changes = append(p.Changes, &api.Change{Kind: "stream", Name: spec.Name, Fields: fields})
		}
	}
}

// newFields is what a stream will be.
func newFields(spec *api.StreamSpec) (fields []*api.FieldChange) {
	for _, field := range fieldsOf(spec) {
		if text := streamText(spec, field); text != "" && text != "0s" {
			fields = append(fields, &api.FieldChange{Name: string(field.Name()), After: text})
		}
	}
	return fields
}

func (p *Plan) findUndeclared(v *state.View, fabric *api.Fabric) {
	for _, host := range slices.Sorted(maps.Keys(v.TargetSpecs)) {
		if !slices.ContainsFunc(fabric.Targets, func(spec *api.TargetSpec) bool { return spec.Host == host }) {
			p.Undeclared = append(p.Undeclared, "target "+host)
		}
	}
	p.findUndeclaredDrains(v, fabric)
	for _, name := range slices.Sorted(maps.Keys(v.Tenants)) {
		if !slices.ContainsFunc(fabric.Tenants, func(spec *api.TenantSpec) bool { return spec.Name == name }) {
			p.Undeclared = append(p.Undeclared, "tenant "+name)
		}
	}
	declared := make(map[string]bool, len(fabric.Streams))
	for _, spec := range fabric.Streams {
		declared[spec.Name] = true
	}
	for _, name := range withoutSystem(slices.Sorted(maps.Keys(v.Streams))) {
		if !declared[name] && !reconcile.IsBeingDeleted(v.Deletions[name]) {
			p.Undeclared = append(p.Undeclared, "stream "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.Routes)) {
		if !slices.ContainsFunc(fabric.Routes, func(spec *api.RouteSpec) bool { return spec.Name == name }) {
			p.Undeclared = append(p.Undeclared, "route "+name)
		}
	}
}

// Declared is what is declared now.
func Declared(v *state.View) *api.Fabric {
	fabric := new(api.Fabric)
	for _, host := range slices.Sorted(maps.Keys(v.TargetSpecs)) {
		fabric.Targets = append(fabric.Targets, v.TargetSpecs[host])
	}
	for _, host := range slices.Sorted(maps.Keys(v.DrainSpecs)) {
		fabric.Drains = append(fabric.Drains, v.DrainSpecs[host])
	}
	for _, name := range slices.Sorted(maps.Keys(v.Tenants)) {
		fabric.Tenants = append(fabric.Tenants, v.Tenants[name])
	}
	for _, name := range withoutSystem(slices.Sorted(maps.Keys(v.Streams))) {
		if reconcile.IsBeingDeleted(v.Deletions[name]) {
			continue
		}
		fabric.Streams = append(fabric.Streams, v.Streams[name].Spec)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Routes)) {
		fabric.Routes = append(fabric.Routes, v.Routes[name].Spec)
	}
	return fabric
}

// withoutSystem leaves out what nobody declares.
func withoutSystem(names []string) []string { return slices.DeleteFunc(names, pattern.IsSystem) }
