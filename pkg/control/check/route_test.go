package check

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Whatever routes there are: each that passes the check selects a record for just those streams for which the rules
// that name each other say so.
func TestResolve_SelectsAsTheRulesSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := Routes{}
		for i := range 4 {
			all[fmt.Sprint("r", i)] = drawRoute(rt, i)
		}
		for _, name := range sortedNames(all) {
			one := routeCheck{
				routes: all, spec: all[name], whyNot: func(string) string { return "" },
				isAsked: func(string) bool { return true },
			}
			if len(one.run()) > 0 {
				return // none of them would be kept
			}
		}
		for _, name := range sortedNames(all) {
			resolved := all.Resolve(name)
			for range 10 {
				class, criticality := uint32(rapid.IntRange(0, 9).Draw(rt, "class")),
					uint32(rapid.IntRange(0, 3).Draw(rt, "criticality"))
				got, want := map[string]bool{}, map[string]bool{}
				walk(all, resolved, class, criticality, got)
				walk(all, all[name].Rules, class, criticality, want)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					rt.Fatalf("route %s, class %d, criticality %d: resolved to %v, the rules say %v: %v", name, class,
						criticality, got, want, all)
				}
			}
		}
	})
}

// walk follows the rules as they are written.
func walk(all Routes, rules []*api.RouteRule, class, criticality uint32, selected map[string]bool) {
	for _, rule := range rules {
		isClass := len(rule.Classes) == 0 || slices.ContainsFunc(rule.Classes,
			func(one *api.ClassRange) bool { return one.First <= class && class <= one.Last })
		if !isClass || criticality < rule.CriticalityMin {
			continue
		}
		for _, leg := range rule.Legs {
			selected[leg.Stream] = true
		}
		walk(all, all[rule.Route].GetRules(), class, criticality, selected)
	}
}

func drawRoute(rt *rapid.T, number int) *api.RouteSpec {
	spec := &api.RouteSpec{Name: fmt.Sprint("r", number)}
	for i := range rapid.IntRange(1, 3).Draw(rt, "rules") {
		rule := &api.RouteRule{CriticalityMin: uint32(rapid.IntRange(0, 3).Draw(rt, "least"))}
		for range rapid.IntRange(0, 2).Draw(rt, "ranges") {
			first := uint32(rapid.IntRange(0, 9).Draw(rt, "first"))
			rule.Classes = append(rule.Classes, &api.ClassRange{
				First: first,
				Last:  first + uint32(rapid.IntRange(0, 4).Draw(rt, "more")),
			})
		}
		if rapid.IntRange(0, 3).Draw(rt, "by route") == 0 {
			rule.Route = fmt.Sprint("r", (number+rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(rt, "route"))%4)
		} else {
			rule.Legs = []*api.RouteLeg{{Stream: fmt.Sprintf("s%d%d", number, i)}}
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec
}
