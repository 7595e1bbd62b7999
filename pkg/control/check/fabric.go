// Package check finds all that is wrong with what is declared: pure functions from what is asked for and what there is
// to a list of problems, each with its field. The control plane refuses by it, and farlog plan, which asks no control
// plane, tells the same by it.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// SystemRule is what a name is told that nobody may give.
const SystemRule = "expected a name that does not begin with " + pattern.SystemPrefix +
	": those are the control plane's own"

// World is what there is before something is declared; the zero World has nothing.
type World struct {
	reconcile.World
	Tenants    map[string]*api.TenantSpec
	Routes     Routes
	DrainHosts map[string]bool // of which a drain is declared or has ever reported
	Ending     map[string]bool // streams that go with what is declared
	Now        time.Time       // measurements of latency are of before
}

// Findings is what comes of a look at a fabric.
type Findings struct {
	Problems []*api.Problem // fields begin with fabric.
	IsRaised bool           // a stream that is there declares more of its tenant's quota
	// a stream that is new has to find space beside others, of a target's capacity or of a tenant's quota
	IsLimited bool
}

// finder collects what is wrong with a fabric.
type finder struct {
	world  World
	fabric *api.Fabric
	Findings
}

// Complete fills in the defaults of all streams and routes, and leaves alone what was given.
func Complete(asked *api.Fabric) *api.Fabric {
	fabric := &api.Fabric{
		Targets: slices.Clone(asked.GetTargets()), Drains: slices.Clone(asked.GetDrains()),
		Tenants: slices.Clone(asked.GetTenants()),
	}
	for _, stream := range asked.GetStreams() {
		fabric.Streams = append(fabric.Streams, StreamWithDefaults(stream))
	}
	for _, route := range asked.GetRoutes() {
		fabric.Routes = append(fabric.Routes, RouteWithDefaults(route))
	}
	return fabric
}

// Fabric finds all that is wrong with a complete fabric that is to be declared in a world. What follows from another
// problem of the same stream is left out.
func Fabric(world World, fabric *api.Fabric) (Findings, error) {
	f := &finder{world: world, fabric: fabric}
	problems, err := Message(fabric, "fabric.")
	if err != nil {
		return Findings{}, err
	}
	f.Problems = problems
	f.findDoubles()
	f.checkNames()
	f.checkDrains()
	f.checkRoutes()
	f.checkNamespaces()
	f.checkPlaces()
	f.checkTenants()
	f.checkSpace()
	return f.Findings, nil
}

func (f *finder) fail(field, value, rule string, args ...any) {
	f.Problems = append(f.Problems, &api.Problem{
		Field: "fabric." + field, Value: value,
		Rule: fmt.Sprintf(rule, args...),
	})
}

func (f *finder) findDoubles() {
	findDoubles(f, "targets", "host", f.fabric.Targets, (*api.TargetSpec).GetHost)
	findDoubles(f, "drains", "host", f.fabric.Drains, (*api.DrainSpec).GetHost)
	findDoubles(f, "tenants", "name", f.fabric.Tenants, (*api.TenantSpec).GetName)
	findDoubles(f, "streams", "name", f.fabric.Streams, (*api.StreamSpec).GetName)
	findDoubles(f, "routes", "name", f.fabric.Routes, (*api.RouteSpec).GetName)
}

func findDoubles[M any](f *finder, list, field string, items []M, nameOf func(M) string) {
	names := map[string]int{}
	for i, item := range items {
		name := nameOf(item)
		if first, isThere := names[name]; isThere {
			f.fail(fmt.Sprintf("%s[%d].%s", list, i, field), fmt.Sprintf("%q", name),
				"expected each %s once: %s[%d] is the same", field, list, first)
			continue
		}
		names[name] = i
	}
}

// checkNames refuses streams whose names are taken by what ends, or are nobody's to give.
func (f *finder) checkNames() {
	for i, spec := range f.fabric.Streams {
		field, value := fmt.Sprintf("streams[%d].name", i), fmt.Sprintf("%q", spec.Name)
		switch {
		case reconcile.IsBeingDeleted(f.world.Deletions[spec.Name]):
			f.fail(field, value, "expected a stream that is not being deleted: declare it again when it is gone")
		case f.world.Streams[spec.Name] == nil && pattern.IsSystem(spec.Name):
			f.fail(field, value, SystemRule)
		}
	}
}

// checkDrains looks for the drains that streams want. Where drains are declared, a stream that is to be drained on a
// certain host is drained on one of them, or on one whose drain is registered.
func (f *finder) checkDrains() {
	if len(f.fabric.Drains) == 0 && len(f.world.DrainSpecs) == 0 {
		return
	}
	isDeclared := map[string]bool{}
	for _, drain := range f.fabric.Drains {
		isDeclared[drain.Host] = true
	}
	for i, stream := range f.fabric.Streams {
		isAsItIs := f.world.Streams[stream.Name].GetSpec().GetDrainHost() == stream.DrainHost
		if host := stream.DrainHost; host != "" && !isAsItIs && !isDeclared[host] && !f.world.DrainHosts[host] {
			f.fail(fmt.Sprintf("streams[%d].drain_host", i), fmt.Sprintf("%q", host),
				"expected a host under drains, or one whose drain is registered")
		}
	}
}

// checkRoutes looks at routes together with what they select, as it will be.
func (f *finder) checkRoutes() {
	all := f.world.Routes.With(f.fabric.Routes)
	isDeclared := map[string]bool{}
	for _, stream := range f.fabric.Streams {
		isDeclared[stream.Name] = true
	}
	whyNot := func(stream string) string {
		if f.world.Streams[stream] == nil && !isDeclared[stream] && !pattern.IsSystem(stream) {
			return "expected a stream under streams, or one that is there"
		}
		return f.world.WhyNotSelect(stream)
	}
	isAsked := func(name string) bool {
		return slices.ContainsFunc(f.fabric.Routes, func(spec *api.RouteSpec) bool { return spec.Name == name })
	}
	for i, spec := range f.fabric.Routes {
		one := routeCheck{
			routes: all, spec: spec, prefix: fmt.Sprintf("fabric.routes[%d].", i), whyNot: whyNot,
			isAsked: isAsked,
		}
		f.Problems = append(f.Problems, one.run()...)
	}
}

// added are the places in the fabric of the streams that would be new, each once.
func (f *finder) added() (places []int) {
	isSeen := map[string]bool{}
	for i, spec := range f.fabric.Streams {
		if !isSeen[spec.Name] && f.world.Streams[spec.Name] == nil {
			places = append(places, i)
		}
		isSeen[spec.Name] = true
	}
	return places
}

// changed are the places of the streams that are there, each once, and stay, in the order of what they take less: so
// that one may have what another one gives back.
func (f *finder) changed() (places []int) {
	isSeen, isWrong := map[string]bool{}, f.wrong()
	for i, spec := range f.fabric.Streams {
		before := f.world.Streams[spec.Name]
		if before != nil && !isSeen[spec.Name] && !isWrong[i] && !pattern.IsSystem(spec.Name) &&
			(spec.RecordsPerSecond != before.Spec.RecordsPerSecond ||
				spec.BytesPerSecond != before.Spec.BytesPerSecond) {
			places = append(places, i)
		}
		isSeen[spec.Name] = true
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(f.gain(a), f.gain(b)) })
	return places
}

// gain is what a stream that is there would declare more of than it does, in either unit; negative: less.
func (f *finder) gain(i int) int64 {
	spec := f.fabric.Streams[i]
	before := f.world.Streams[spec.Name].Spec
	return max(int64(spec.RecordsPerSecond)-int64(before.RecordsPerSecond),
		int64(spec.BytesPerSecond)-int64(before.BytesPerSecond))
}

// validStreams are those that are added of which nothing is wrong so far: they take space.
func (f *finder) validStreams() []int {
	isWrong := f.wrong()
	return slices.DeleteFunc(f.added(), func(i int) bool { return isWrong[i] })
}

// wrong are the places of streams of which a problem is told.
func (f *finder) wrong() map[int]bool {
	isWrong := map[int]bool{}
	for _, problem := range f.Problems {
		var i int
		if _, err := fmt.Sscanf(problem.Field, "fabric.streams[%d]", &i); err == nil {
			isWrong[i] = true
		}
	}
	return isWrong
}
