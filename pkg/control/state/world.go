package state

import (
	"maps"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// Declared is what there is, for those who look at what is to be declared beside it.
func (v *View) Declared() check.World {
	world := check.World{
		World: v.World(), Tenants: v.Tenants, Routes: v.RouteSpecs(), DrainHosts: map[string]bool{},
		Now: time.Now(),
	}
	for host := range v.DrainHosts() {
		world.DrainHosts[host] = true
	}
	return world
}

// RouteSpecs are the routes that there are.
func (v *View) RouteSpecs() check.Routes {
	all := make(check.Routes, len(v.Routes))
	for name, route := range v.Routes {
		all[name] = route.Spec
	}
	return all
}

// World is a view as the reconciler plans by it.
func (v *View) World() reconcile.World {
	return reconcile.World{
		Streams: v.Streams, Epochs: v.Epochs, Rings: v.Rings, Assignments: v.Assignments, Admissions: v.Admissions,
		LiveTargets: v.LiveTargets, LiveDrains: v.LiveDrains, Targets: v.Targets, TargetSpecs: v.TargetSpecs,
		Deletions: v.Deletions, DrainSpecs: v.DrainSpecs, Hosts: v.Hosts,
	}
}

// Statuses lists the status of every stream.
func (v *View) Statuses() []*api.StreamStatus {
	list := make([]*api.StreamStatus, 0, len(v.Streams))
	for _, name := range slices.Sorted(maps.Keys(v.Streams)) {
		list = append(list, v.Status(name))
	}
	return list
}
