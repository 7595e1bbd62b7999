package plan

import (
	"fmt"
	"slices"
	"strings"

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
	return load.Criticality >= rule.CriticalityMin && (len(rule.Classes) == 0 || slices.ContainsFunc(rule.Classes, isOfClass))
}

// loadsOf are the numbers of the loads whose records go to a stream.
func (in Input) loadsOf(stream string) (numbers []int) {
	for i, load := range in.Loads {
		if load.Stream == stream || slices.ContainsFunc(in.legsOf(load), func(leg *api.RouteLeg) bool { return leg.Stream == stream }) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// checkRoutes looks for streams and routes that are not there, and for rules that lead back.
func (c *checker) checkRoutes() {
	for i, route := range c.in.Fabric.Routes {
		c.checkName(fmt.Sprintf("routes[%d].name", i), route.Name)
		for j, rule := range route.Rules {
			at := fmt.Sprintf("routes[%d].rules[%d].", i, j)
			for k, leg := range rule.Legs {
				if c.in.stream(leg.Stream) == nil {
					c.fail(fmt.Sprintf("%slegs[%d].stream", at, k), fmt.Sprintf("%q", leg.Stream), "expected a stream under streams")
				}
			}
			if rule.Route == "" {
				continue
			}
			if c.in.route(rule.Route) == nil {
				c.fail(at+"route", fmt.Sprintf("%q", rule.Route), "expected a route that is declared")
			} else if way := c.in.circle(rule.Route, route.Name, map[string]bool{}); way != nil {
				c.fail(at+"route", fmt.Sprintf("%q", rule.Route), "expected a route that does not lead back: %s", strings.Join(append([]string{route.Name}, way...), " -> "))
			}
		}
	}
}

// circle is the way from a route to another one, by the routes that it selects; nil: there is none.
func (in Input) circle(from, to string, seen map[string]bool) []string {
	if from == to {
		return []string{from}
	}
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, rule := range in.route(from).GetRules() {
		if rule.Route == "" {
			continue
		}
		if way := in.circle(rule.Route, to, seen); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}
