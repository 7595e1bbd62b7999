package service

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// checkPattern looks at a filter by name.
func checkPattern(field, named, rule string) error {
	if pattern.Check(named) == nil {
		return nil
	}
	return refusal.InvalidArgument("", []*api.Problem{{Field: field, Value: fmt.Sprintf("%q", named), Rule: rule}})
}

// alreadyExists is the answer to a creation of something that is there; nil when it is the same.
func alreadyExists(kind, name string, changes []*api.FieldChange) error {
	if len(changes) == 0 {
		return nil
	}
	first := changes[0]
	label := first.Name
	if check.Labels[label] != "" {
		label = check.Labels[label]
	}
	var problems []*api.Problem
	for _, change := range changes {
		problems = append(problems, &api.Problem{
			Field: "spec." + change.Name, Value: change.After,
			Rule: fmt.Sprintf("expected %s, as in the existing %s of that name: change it, or give another name",
				orAbsent(change.Name, change.Before), kind),
		})
	}
	verb := "is"
	if label == "members" {
		verb = "are"
	}
	text := fmt.Sprintf("%s %q exists: its %s %s %s, asked for %s", kind, name, label, verb,
		orAbsent(first.Name, first.Before), orAbsent(first.Name, first.After))
	return refusal.WithProblems(codes.AlreadyExists, text, problems)
}

// orAbsent says what an empty field is: an element of a list is not there, any other has its default.
func orAbsent(name, text string) string {
	if text == "" && strings.HasSuffix(name, "]") {
		return "none"
	}
	return fabric.OrDefault(text)
}
