package fabric

import (
	"cmp"
	"fmt"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// CompleteRoute fills in the defaults, and checks what can be seen of a route alone.
func CompleteRoute(asked *api.RouteSpec) (*api.RouteSpec, error) {
	if asked == nil {
		return nil, refusal.InvalidArgument("route: ", []*api.Problem{{
			Field: "spec",
			Rule:  "expected a spec with a name",
		}})
	}
	spec := check.RouteWithDefaults(asked)
	problems, err := check.Message(spec, "spec.")
	if err != nil || len(problems) == 0 {
		return spec, err
	}
	return nil, refusal.InvalidArgument(fmt.Sprintf("route %q: ", spec.Name), problems)
}

// RouteChanges compares two routes rule by rule.
func RouteChanges(have, asked *api.RouteSpec) (changes []*api.FieldChange) {
	before, after := have.GetRules(), asked.GetRules()
	for i := range max(len(before), len(after)) {
		change := &api.FieldChange{Name: fmt.Sprintf("rules[%d]", i)}
		if i < len(before) {
			change.Before = RuleText(before[i])
		}
		if i < len(after) {
			change.After = RuleText(after[i])
		}
		if change.Before != change.After {
			changes = append(changes, change)
		}
	}
	return changes
}

// RuleText is a rule in one line; two rules that differ in anything differ in it.
func RuleText(rule *api.RouteRule) string {
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
		words = append(words, check.LevelName(leg.Level))
	}
	words = append(words, map[bool]string{true: "optional", false: "required"}[leg.Optional], legPolicyName(leg.Policy))
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

// compareRoutes finds routes that are new, or have other rules.
func (p *Plan) compareRoutes(v *state.View, fabric *api.Fabric) {
	for _, spec := range fabric.Routes {
		have := v.Routes[spec.Name]
		changes := RouteChanges(have.GetSpec(), spec)
		if have == nil || len(changes) > 0 {
			p.routes = append(p.routes, spec)
			p.Changes = append(p.Changes, &api.Change{
				Kind: "route", Name: spec.Name, Created: have == nil,
				Fields: changes,
			})
		}
	}
}
