package main

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

// fileList is a key of an item whose value is a list: how it is read and written.
type fileList[M any] struct {
	key, field string
	read       func(f *fabricFile, item M, path string, node *yaml.Node)
	write      func(M) *yaml.Node // nil = leave it out
}

var routeFields = []fileField[*api.RouteSpec]{
	{
		"name", "name", func(r *api.RouteSpec, text string) error { r.Name = text; return nil },
		func(r *api.RouteSpec) string { return r.Name },
	},
}

var routeLists = []fileList[*api.RouteSpec]{
	{"rules", "rules", func(f *fabricFile, r *api.RouteSpec, path string, node *yaml.Node) {
		r.Rules = readItemsWith(f, path, node, ruleFields, ruleLists,
			func() *api.RouteRule { return new(api.RouteRule) })
	}, func(r *api.RouteSpec) *yaml.Node { return writeItemsWith(r.Rules, ruleFields, ruleLists) }},
}

var ruleFields = []fileField[*api.RouteRule]{
	{
		"criticality", "criticality_min", func(r *api.RouteRule, text string) (err error) {
			r.CriticalityMin, err = readCriticality(text)
			return err
		},
		func(r *api.RouteRule) string { return countOrNothing(r.CriticalityMin) },
	},
	{
		"route", "route", func(r *api.RouteRule, text string) error { r.Route = text; return nil },
		func(r *api.RouteRule) string { return r.Route },
	},
}

var ruleLists = []fileList[*api.RouteRule]{
	{"classes", "classes", readClasses, writeClasses},
	{"legs", "legs", func(f *fabricFile, r *api.RouteRule, path string, node *yaml.Node) {
		r.Legs = readItems(f, path, node, legFields, func() *api.RouteLeg { return new(api.RouteLeg) })
	}, func(r *api.RouteRule) *yaml.Node {
		if len(r.Legs) == 0 {
			return nil
		}
		return writeItems(r.Legs, legFields)
	}},
}

var legFields = []fileField[*api.RouteLeg]{
	{
		"stream", "stream", func(l *api.RouteLeg, text string) error { l.Stream = text; return nil },
		func(l *api.RouteLeg) string { return l.Stream },
	},
	{"level", "level", func(l *api.RouteLeg, text string) (err error) {
		var level int32
		level, err = readEnum(text, "LEVEL_", api.Level_value, "posted, visible or persistent")
		l.Level = api.Level(level)
		return err
	}, func(l *api.RouteLeg) string {
		if l.Level == api.Level_LEVEL_UNSPECIFIED {
			return ""
		}
		return shortName(l.Level.String())
	}},
	{
		"optional", "is_optional", func(l *api.RouteLeg, text string) (err error) {
			l.IsOptional,
				err = readBool(text)
			return err
		},
		func(l *api.RouteLeg) string { return map[bool]string{true: "true"}[l.IsOptional] },
	},
	{"policy", "policy", func(l *api.RouteLeg, text string) (err error) {
		var policy int32
		policy, err = readEnum(text, "LEG_POLICY_", api.LegPolicy_value, "fail, spill or drop")
		l.Policy = api.LegPolicy(policy)
		return err
	}, func(l *api.RouteLeg) string { return legPolicyName(l.Policy) }},
	{"buffer", "buffer_size_bytes", func(l *api.RouteLeg, text string) (err error) {
		l.BufferSizeBytes, err = config.ParseSize(text)
		return err
	}, func(l *api.RouteLeg) string { return sizeOrNothing(l.BufferSizeBytes) }},
	{"deadline", "deadline", func(l *api.RouteLeg, text string) error {
		deadline, err := config.ParseDuration(text)
		l.Deadline = durationpb.New(deadline)
		return err
	}, func(l *api.RouteLeg) string { return durationOrNothing(l.Deadline.AsDuration()) }},
}

func legPolicyName(policy api.LegPolicy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "LEG_POLICY_"))
}

func readCriticality(text string) (uint32, error) {
	number, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("expected a whole number from 0 to 255")
	}
	return uint32(number), nil
}

// parseClassRange reads 7, or 1-3.
func parseClassRange(text string) (*api.ClassRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(strings.TrimSpace(first), 10, 16)
	to, toErr := strconv.ParseUint(strings.TrimSpace(last), 10, 16)
	if err != nil || toErr != nil || to < from {
		return nil, fmt.Errorf("expected a class from 0 to 65535, or the first and the last of several, such as 1-3")
	}
	return &api.ClassRange{First: uint32(from), Last: uint32(to)}, nil
}

func classRangeText(one *api.ClassRange) string {
	if one.First == one.Last {
		return fmt.Sprint(one.First)
	}
	return fmt.Sprintf("%d-%d", one.First, one.Last)
}

func classesText(ranges []*api.ClassRange) string {
	texts := make([]string, len(ranges))
	for i, one := range ranges {
		texts[i] = classRangeText(one)
	}
	return strings.Join(texts, ",")
}

// readClasses reads a list of classes, or one.
func readClasses(f *fabricFile, rule *api.RouteRule, path string, node *yaml.Node) {
	elements := node.Content
	if node.Kind == yaml.ScalarNode {
		elements = []*yaml.Node{node}
	} else if node.Kind != yaml.SequenceNode {
		f.fail(node, path, "", "expected a list of classes")
		return
	}
	for i, element := range elements {
		element = config.Referred(element)
		place := fmt.Sprintf("%s[%d]", path, i)
		f.note(place, place, element)
		one, err := parseClassRange(element.Value)
		if err != nil || element.Kind != yaml.ScalarNode {
			f.fail(element, place, element.Value,
				"expected a class from 0 to 65535, or the first and the last of several, such as 1-3")
			one = new(api.ClassRange) // so that those behind it keep their places
		}
		rule.Classes = append(rule.Classes, one)
	}
}

func writeClasses(rule *api.RouteRule) *yaml.Node {
	if len(rule.Classes) == 0 {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, one := range rule.Classes {
		list.Content = append(list.Content, scalar(classRangeText(one)))
	}
	return list
}
