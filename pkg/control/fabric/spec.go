package fabric

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// CompleteStream fills in the defaults and checks every field. It is pure: the same request always means the same
// stream, which is what makes creation idempotent.
func CompleteStream(asked *api.StreamSpec) (*api.StreamSpec, error) {
	if asked == nil {
		return nil, refusal.InvalidArgument("stream: ",
			[]*api.Problem{{Field: "spec", Rule: "expected a spec with a name"}})
	}
	spec := check.StreamWithDefaults(asked)
	problems, err := check.Message(spec, "spec.")
	if err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		return spec, nil
	}
	if problems[0].Field == "spec.name" {
		return nil, refusal.InvalidArgument("stream ", problems)
	}
	return nil, refusal.InvalidArgument(fmt.Sprintf("stream %q: ", spec.Name), problems)
}

// changeable are the fields of a stream's spec that an update may change.
var changeable = []string{
	"level", "policy", "deadline", "drain_host", "writer_host", "latency_limit", "records_per_second",
	"bytes_per_second",
}

// streamText is the text of one field of a stream's spec, for comparisons.
func streamText(spec *api.StreamSpec, field protoreflect.FieldDescriptor) string {
	text := fieldText(spec.ProtoReflect(), field)
	switch field.Name() {
	case "members":
		return unlessDefault(text, "0", "1")
	case "needed":
		return unlessDefault(text, "0", fmt.Sprint(spec.Members/2+1))
	case "failure_domain":
		return unlessDefault(text, reconcile.DomainHost)
	case "latency_limit", "records_per_second", "bytes_per_second":
		return unlessDefault(text, "0", "0s")
	}
	return text
}

// unlessDefault is empty for what a spec has that says nothing. Those that were declared before there were members say
// nothing of them.
func unlessDefault(text string, defaults ...string) string {
	if slices.Contains(defaults, text) {
		return ""
	}
	return text
}

// OrDefault is the text of a field, or what stands for an empty one.
func OrDefault(text string) string {
	if text == "" {
		return "the default"
	}
	return text
}

// StreamDifferences lists the fields in which two complete specs differ.
func StreamDifferences(have, asked *api.StreamSpec) []*api.FieldChange {
	return changesOf(have, asked, streamText)
}

// StreamChanges lists what an update would change, and what it may not.
func StreamChanges(have, asked *api.StreamSpec, prefix string) (changes []*api.FieldChange, problems []*api.Problem) {
	for _, change := range StreamDifferences(have, asked) {
		if slices.Contains(changeable, change.Name) {
			changes = append(changes, change)
			continue
		}
		problems = append(problems, &api.Problem{
			Field: prefix + change.Name, Value: change.After,
			Rule: fmt.Sprintf("expected %s as it is: it cannot be changed, make another stream",
				OrDefault(change.Before)),
		})
	}
	return changes, problems
}
