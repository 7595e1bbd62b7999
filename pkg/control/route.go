package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const (
	spillSizeDefault = 64 << 20
	dropSizeDefault  = 4 << 20

	routeLegsMax = 16 // FARLOG_ROUTE_LEG_COUNT_MAX: of a route with those of the routes that it selects
)

// completeRoute fills in the defaults, and checks what can be seen of a route alone.
func completeRoute(asked *api.RouteSpec) (*api.RouteSpec, error) {
	if asked == nil {
		return nil, invalid("route: ", []*api.Problem{{Field: "spec", Rule: "expected a spec with a name"}})
	}
	spec := routeWithDefaults(asked)
	problems, err := problemsOf(spec, "spec.")
	if err != nil || len(problems) == 0 {
		return spec, err
	}
	return nil, invalid(fmt.Sprintf("route %q: ", spec.Name), problems)
}

// routeWithDefaults leaves alone what was given, right or wrong.
func routeWithDefaults(asked *api.RouteSpec) *api.RouteSpec {
	spec := proto.Clone(asked).(*api.RouteSpec)
	for _, rule := range spec.Rules {
		slices.SortFunc(rule.Classes, func(a, b *api.ClassRange) int {
			return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
		})
		for _, leg := range rule.Legs {
			policy := api.LegPolicy_LEG_POLICY_FAIL
			if leg.IsOptional {
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

// routes are the specs of all routes, by name.
type routes map[string]*api.RouteSpec

// routesWith is what there is, with what is asked for in its place.
func (v *view) routesWith(asked []*api.RouteSpec) routes {
	all := routes{}
	for name, route := range v.routes {
		all[name] = route.Spec
	}
	for _, spec := range slices.Backward(asked) { // of two the first counts
		all[spec.Name] = spec
	}
	return all
}

// resolve puts the rules of the routes that a route selects in the place of their names: what is left of them when the rule that names them has selected. A rule that is left
// without a class is none. It ends behind routeLegsMax rules.
func (r routes) resolve(name string) []*api.RouteRule {
	return r.resolveInto(nil, name, new(api.RouteRule), []string{name})
}

func (r routes) resolveInto(rules []*api.RouteRule, name string, within *api.RouteRule, path []string) []*api.RouteRule {
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

// legsOf are the legs of resolved rules, in their order.
func legsOf(rules []*api.RouteRule) (legs []*api.RouteLeg) {
	for _, rule := range rules {
		legs = append(legs, rule.Legs...)
	}
	return legs
}

// circle is the way from a route back to another one, which is where it began; nil: there is none.
func (r routes) circle(from, to string, seen map[string]bool) []string {
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
	routes   routes
	spec     *api.RouteSpec
	prefix   string                     // of fields
	whyNot   func(stream string) string // why a stream may not be selected; "": it may
	isAsked  func(route string) bool    // it is checked itself
	problems []*api.Problem
}

func (c *routeCheck) fail(field, value, rule string, args ...any) {
	c.problems = append(c.problems, &api.Problem{Field: c.prefix + field, Value: fmt.Sprintf("%q", value), Rule: fmt.Sprintf(rule, args...)})
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
		c.fail(field, route, "expected a route that does not lead back: %s", strings.Join(append([]string{c.spec.Name}, way...), " -> "))
	}
}

// checkWhole looks at a route together with those that it selects, and at those that select it.
func (c *routeCheck) checkWhole() {
	for _, name := range sortedKeys(c.routes) {
		isOther := name != c.spec.Name
		if isOther && (c.isAsked(name) || c.routes.circle(name, c.spec.Name, map[string]bool{}) == nil) {
			continue
		}
		of := ""
		if isOther {
			of = fmt.Sprintf(" of route %q, which selects it,", name)
		}
		legs, isTaken := legsOf(c.routes.resolve(name)), map[string]bool{}
		if len(legs) > routeLegsMax {
			c.fail("rules", c.spec.Name, "expected at most %d legs%s in all, with those of the routes that it selects", routeLegsMax, of)
		}
		for _, leg := range legs {
			if isTaken[leg.Stream] {
				c.fail("rules", c.spec.Name, "expected each stream in one rule%s with those of the routes that it selects: stream %q is in several", of, leg.Stream)
			}
			isTaken[leg.Stream] = true
		}
	}
}

// whoSelects names a route that selects a stream or another route; "": none does.
func (r routes) whoSelects(stream, route string) string {
	for _, name := range sortedKeys(r) {
		for _, rule := range r[name].GetRules() {
			hasStream := slices.ContainsFunc(rule.Legs, func(leg *api.RouteLeg) bool { return leg.Stream == stream })
			if stream != "" && hasStream || route != "" && rule.Route == route {
				return name
			}
		}
	}
	return ""
}

// whyNotSelect says why no route may select a stream that is there; "": it may, or it is not there.
func (v *view) whyNotSelect(stream string) string {
	switch {
	case isSystem(stream):
		return "expected a stream of yours: those that begin with " + SystemPrefix + " are the control plane's own"
	case v.isStaying(stream) != nil:
		return "expected a stream that is not being deleted"
	}
	return ""
}

// whyNoLeg says why no route may select a stream; "": it may.
func (v *view) whyNoLeg(stream string) string {
	if v.streams[stream] == nil && !isSystem(stream) {
		return "expected a stream that is there: farlog stream create makes one"
	}
	return v.whyNotSelect(stream)
}

// routeChanges compares two routes rule by rule.
func routeChanges(have, asked *api.RouteSpec) (changes []*api.FieldChange) {
	before, after := have.GetRules(), asked.GetRules()
	for i := range max(len(before), len(after)) {
		change := &api.FieldChange{Name: fmt.Sprintf("rules[%d]", i)}
		if i < len(before) {
			change.Before = ruleText(before[i])
		}
		if i < len(after) {
			change.After = ruleText(after[i])
		}
		if change.Before != change.After {
			changes = append(changes, change)
		}
	}
	return changes
}

// ruleText is a rule in one line; two rules that differ in anything differ in it.
func ruleText(rule *api.RouteRule) string {
	var words []string
	if len(rule.Classes) > 0 {
		words = append(words, "classes "+classesText(rule.Classes))
	}
	if rule.CriticalityMin > 0 {
		words = append(words, fmt.Sprintf("criticality %d", rule.CriticalityMin))
	}
	selects := cmp.Or(strings.Join(words, " "), "all")
	if rule.Route != "" {
		return selects + " => route " + rule.Route
	}
	var legs []string
	for _, leg := range rule.Legs {
		legs = append(legs, legText(leg))
	}
	return selects + " => " + strings.Join(legs, " + ")
}

func legText(leg *api.RouteLeg) string {
	words := []string{leg.Stream}
	if leg.Level != api.Level_LEVEL_UNSPECIFIED {
		words = append(words, levelName(leg.Level))
	}
	words = append(words, map[bool]string{true: "optional", false: "required"}[leg.IsOptional], legPolicyName(leg.Policy))
	if leg.BufferSizeBytes > 0 {
		words = append(words, fmt.Sprint(leg.BufferSizeBytes))
	}
	if leg.Deadline != nil {
		words = append(words, "deadline "+leg.Deadline.AsDuration().String())
	}
	return strings.Join(words, " ")
}

func classesText(ranges []*api.ClassRange) string {
	texts := make([]string, len(ranges))
	for i, one := range ranges {
		texts[i] = fmt.Sprint(one.First)
		if one.Last != one.First {
			texts[i] += fmt.Sprintf("-%d", one.Last)
		}
	}
	return strings.Join(texts, ",")
}

func legPolicyName(policy api.LegPolicy) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(policy.String(), "LEG_POLICY_"), "_", "-"))
}

// compareRoutes finds routes that are new, or have other rules. What they select is what there will be.
func (p *fabricPlan) compareRoutes(v *view, fabric *api.Fabric) {
	all := v.routesWith(fabric.Routes)
	isDeclared := map[string]bool{}
	for _, stream := range fabric.Streams {
		isDeclared[stream.Name] = true
	}
	whyNot := func(stream string) string {
		if v.streams[stream] == nil && !isDeclared[stream] && !isSystem(stream) {
			return "expected a stream under streams, or one that is there"
		}
		return v.whyNotSelect(stream)
	}
	isAsked := func(name string) bool {
		return slices.ContainsFunc(fabric.Routes, func(spec *api.RouteSpec) bool { return spec.Name == name })
	}
	for i, spec := range fabric.Routes {
		check := routeCheck{routes: all, spec: spec, prefix: fmt.Sprintf("fabric.routes[%d].", i), whyNot: whyNot, isAsked: isAsked}
		p.problems = append(p.problems, check.run()...)
		have := v.routes[spec.Name]
		changes := routeChanges(have.GetSpec(), spec)
		if have == nil || len(changes) > 0 {
			p.routes = append(p.routes, spec)
			p.changes = append(p.changes, &api.Change{Kind: "route", Name: spec.Name, IsNew: have == nil, Fields: changes})
		}
	}
}
