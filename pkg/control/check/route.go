package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

const (
	spillSizeDefault = 64 << 20
	dropSizeDefault  = 4 << 20

	routeLegsMax = 16 // FARLOG_ROUTE_LEG_COUNT_MAX: of a route with those of the routes that it selects
)

// RouteWithDefaults leaves alone what was given, right or wrong.
func RouteWithDefaults(asked *api.RouteSpec) *api.RouteSpec {
	spec := proto.Clone(asked).(*api.RouteSpec)
	for _, rule := range spec.Rules {
		slices.SortFunc(rule.Classes, func(a, b *api.ClassRange) int {
			return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
		})
		for _, leg := range rule.Legs {
			policy := api.LegPolicy_LEG_POLICY_FAIL
			if leg.Optional {
				policy = api.LegPolicy_LEG_POLICY_DROP
			}
			setDefault(&leg.Policy, policy)
			switch leg.Policy {
			case api.LegPolicy_LEG_POLICY_SPILL:
				setDefault(&leg.BufferSizeBytes, spillSizeDefault)
			case api.LegPolicy_LEG_POLICY_DROP:
				setDefault(&leg.BufferSizeBytes, dropSizeDefault)
			}
		}
	}
	return spec
}

// Routes are the specs of all routes, by name.
type Routes map[string]*api.RouteSpec

// With is what there is, with what is asked for in its place.
func (r Routes) With(asked []*api.RouteSpec) Routes {
	all := make(Routes, len(r)+len(asked))
	maps.Copy(all, r)
	for _, spec := range slices.Backward(asked) { // of two the first counts
		all[spec.Name] = spec
	}
	return all
}

// Resolve puts the rules of the routes that a route selects in the place of their names: what is left of them when the
// rule that names them has selected. A rule that is left without a class is none. It ends behind routeLegsMax rules.
func (r Routes) Resolve(name string) []*api.RouteRule {
	return r.resolveInto(nil, name, new(api.RouteRule), []string{name})
}

func (r Routes) resolveInto(rules []*api.RouteRule, name string, within *api.RouteRule, path []string,
) []*api.RouteRule {
	for _, rule := range r[name].GetRules() {
		narrowed, isAny := intersect(within, rule)
		switch {
		case !isAny || len(rules) > routeLegsMax:
		case rule.Route == "":
			rules = append(rules, narrowed)
		case !slices.Contains(path, rule.Route): // what goes round in a circle is refused before it is kept
			rules = r.resolveInto(rules, rule.Route, narrowed, append(slices.Clone(path), rule.Route))
		}
	}
	return rules
}

// intersect is what two rules select both, with the legs of the second; false: no class.
func intersect(a, b *api.RouteRule) (*api.RouteRule, bool) {
	both := &api.RouteRule{Classes: b.Classes, CriticalityMin: max(a.CriticalityMin, b.CriticalityMin), Legs: b.Legs}
	if len(a.Classes) == 0 {
		return both, true
	}
	if len(b.Classes) == 0 {
		both.Classes = a.Classes
		return both, true
	}
	both.Classes = nil
	for _, one := range a.Classes {
		for _, other := range b.Classes {
			if first, last := max(one.First, other.First), min(one.Last, other.Last); first <= last {
				both.Classes = append(both.Classes, &api.ClassRange{First: first, Last: last})
			}
		}
	}
	return both, len(both.Classes) > 0
}

// LegsOf are the legs of resolved rules, in their order.
func LegsOf(rules []*api.RouteRule) (legs []*api.RouteLeg) {
	for _, rule := range rules {
		legs = append(legs, rule.Legs...)
	}
	return legs
}

// circle is the way from a route back to another one, which is where it began; nil: there is none.
func (r Routes) circle(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{from}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, rule := range r[from].GetRules() {
		if way := r.circle(rule.Route, to, seen); rule.Route != "" && way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// routeCheck finds what is wrong with a route among the others.
type routeCheck struct {
	routes   Routes
	spec     *api.RouteSpec
	prefix   string                     // of fields
	whyNot   func(stream string) string // why a stream may not be selected; "": it may
	isAsked  func(route string) bool    // it is checked itself
	problems []*api.Problem
}

func (c *routeCheck) fail(field, value, rule string, args ...any) {
	c.problems = append(c.problems, &api.Problem{
		Field: c.prefix + field, Value: fmt.Sprintf("%q", value),
		Rule: fmt.Sprintf(rule, args...),
	})
}

// run finds streams and routes that are not there, rules that lead back, and too many or doubled legs.
func (c *routeCheck) run() []*api.Problem {
	seen := map[string]string{} // where a stream stands first
	for i, rule := range c.spec.Rules {
		for j, leg := range rule.Legs {
			place := fmt.Sprintf("rules[%d].legs[%d]", i, j)
			c.checkLeg(leg.Stream, place, seen[leg.Stream])
			if seen[leg.Stream] == "" {
				seen[leg.Stream] = place
			}
		}
		if rule.Route != "" {
			c.checkSelected(rule.Route, fmt.Sprintf("rules[%d].route", i))
		}
	}
	if len(c.problems) == 0 {
		c.checkWhole()
	}
	return c.problems
}

func (c *routeCheck) checkLeg(stream, place, first string) {
	if stream == "" {
		return // which is told already
	}
	if reason := c.whyNot(stream); reason != "" {
		c.fail(place+".stream", stream, "%s", reason)
	} else if first != "" {
		c.fail(place+".stream", stream, "expected each stream once in a route: %s is the same", first)
	}
}

func (c *routeCheck) checkSelected(route, field string) {
	if c.routes[route] == nil {
		c.fail(field, route, "expected a route that is declared, or there")
	} else if way := c.routes.circle(route, c.spec.Name, map[string]bool{}); way != nil {
		c.fail(field, route, "expected a route that does not lead back: %s",
			strings.Join(append([]string{c.spec.Name}, way...), " -> "))
	}
}

// checkWhole looks at a route together with those that it selects, and at those that select it.
func (c *routeCheck) checkWhole() {
	for _, name := range sortedNames(c.routes) {
		isOther := name != c.spec.Name
		if isOther && (c.isAsked(name) || c.routes.circle(name, c.spec.Name, map[string]bool{}) == nil) {
			continue
		}
		of := ""
		if isOther {
			of = fmt.Sprintf(" of route %q, which selects it,", name)
		}
		legs, isTaken := LegsOf(c.routes.Resolve(name)), map[string]bool{}
		if len(legs) > routeLegsMax {
			c.fail("rules", c.spec.Name, "expected at most %d legs%s in all, with those of the routes that it selects",
				routeLegsMax, of)
		}
		for _, leg := range legs {
			if isTaken[leg.Stream] {
				c.fail("rules", c.spec.Name, "expected each stream in one rule%s with those of the routes that it "+
					"selects: stream %q is in several", of, leg.Stream)
			}
			isTaken[leg.Stream] = true
		}
	}
}

// WhoSelects names a route that selects a stream or another route; "": none does.
func (r Routes) WhoSelects(stream, route string) string {
	for _, name := range sortedNames(r) {
		for _, rule := range r[name].GetRules() {
			hasStream := slices.ContainsFunc(rule.Legs, func(leg *api.RouteLeg) bool { return leg.Stream == stream })
			if stream != "" && hasStream || route != "" && rule.Route == route {
				return name
			}
		}
	}
	return ""
}

// WhyNotSelect says why no route may select a stream that is there; "": it may, or it is not there.
func (w World) WhyNotSelect(stream string) string {
	switch {
	case pattern.IsSystem(stream):
		return "expected a stream of yours: those that begin with " + pattern.SystemPrefix +
			" are the control plane's own"
	case reconcile.IsBeingDeleted(w.Deletions[stream]):
		return "expected a stream that is not being deleted"
	}
	return ""
}

// Route finds what is wrong with a complete route that is to be among those that there are; fields begin with spec.
func Route(world World, spec *api.RouteSpec) []*api.Problem {
	whyNot := func(stream string) string {
		if world.Streams[stream] == nil && !pattern.IsSystem(stream) {
			return "expected a stream that is there: farlog stream create makes one"
		}
		return world.WhyNotSelect(stream)
	}
	one := routeCheck{
		routes: world.Routes.With([]*api.RouteSpec{spec}), spec: spec, prefix: "spec.", whyNot: whyNot,
		isAsked: func(string) bool { return false },
	}
	return one.run()
}

func sortedNames(routes Routes) []string { return slices.Sorted(maps.Keys(routes)) }
