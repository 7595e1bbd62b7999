package main

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/config"
)

func legPolicyName(policy api.LegPolicy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "LEG_POLICY_"))
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

// classesField is the key of a list of classes, or of one.
var classesField = apiField{key: "classes", field: "classes", read: readClasses, write: writeClasses}

func readClasses(f *fabricFile, rule protoreflect.Message, path string, node *yaml.Node) {
	elements, list := node.Content, rule.Mutable(apiFieldOf(rule, "classes")).List()
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
		list.Append(protoreflect.ValueOfMessage(one.ProtoReflect()))
	}
}

func writeClasses(rule protoreflect.Message) *yaml.Node {
	classes := rule.Get(apiFieldOf(rule, "classes")).List()
	if classes.Len() == 0 {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for i := range classes.Len() {
		one, _ := classes.Get(i).Message().Interface().(*api.ClassRange)
		list.Content = append(list.Content, scalar(classRangeText(one)))
	}
	return list
}
