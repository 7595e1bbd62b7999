package plan

import (
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// legsOf are the legs that a load's records go to, as pkg/control resolves a route.
func (in Input) legsOf(load Load) []*api.RouteLeg {
	return in.legsInto(nil, load.Route, load, nil)
}

func (in Input) legsInto(legs []*api.RouteLeg, name string, load Load, path []string) []*api.RouteLeg {
	if slices.Contains(path, name) {
		return legs // a circle, which is told by itself
	}
	path = append(slices.Clone(path), name)
	for _, rule := range in.route(name).GetRules() {
		switch {
		case !selects(rule, load):
		case rule.Route != "":
			legs = in.legsInto(legs, rule.Route, load, path)
		default:
			legs = append(legs, rule.Legs...)
		}
	}
	return legs
}

func selects(rule *api.RouteRule, load Load) bool {
	isOfClass := func(one *api.ClassRange) bool { return one.First <= load.Class && load.Class <= one.Last }
	return load.Criticality >= rule.CriticalityMin && (len(rule.Classes) == 0 ||
		slices.ContainsFunc(rule.Classes, isOfClass))
}

// loadsOf are the numbers of the loads whose records go to a stream.
func (in Input) loadsOf(stream string) (numbers []int) {
	for i, load := range in.Loads {
		if load.Stream == stream || slices.ContainsFunc(in.legsOf(load),
			func(leg *api.RouteLeg) bool { return leg.Stream == stream }) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}
