package fabric

import (
	"fmt"
	"slices"

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

// specField is one field of a spec, for comparisons.
type specField struct {
	name, path   string
	text         func(*api.StreamSpec) string
	isChangeable bool
}

var specFields = []specField{
	{"ring size", "ring_size_bytes", func(s *api.StreamSpec) string { return fmt.Sprint(s.RingSizeBytes) }, false},
	{"record_len_max", "record_len_max", func(s *api.StreamSpec) string { return fmt.Sprint(s.RecordLenMax) }, false},
	{"align", "align", func(s *api.StreamSpec) string { return fmt.Sprint(s.Align) }, false},
	{"level", "level", func(s *api.StreamSpec) string { return check.LevelName(s.Level) }, true},
	{"policy", "policy", func(s *api.StreamSpec) string { return check.PolicyName(s.Policy) }, true},
	{"deadline", "deadline", func(s *api.StreamSpec) string { return s.Deadline.AsDuration().String() }, true},
	{"target_host", "target_host", func(s *api.StreamSpec) string { return s.TargetHost }, false},
	{"drain_host", "drain_host", func(s *api.StreamSpec) string { return s.DrainHost }, true},
	{
		"members", "members", func(s *api.StreamSpec) string { return unlessDefault(fmt.Sprint(s.Members), "0", "1") },
		false,
	},
	{"needed", "needed", func(s *api.StreamSpec) string {
		return unlessDefault(fmt.Sprint(s.Needed), "0", fmt.Sprint(s.Members/2+1))
	}, false},
	{"failure_domain", "failure_domain", func(s *api.StreamSpec) string {
		return unlessDefault(s.FailureDomain,
			reconcile.DomainHost)
	}, false},
	{"writer_host", "writer_host", func(s *api.StreamSpec) string { return s.WriterHost }, true},
	{
		"latency_limit", "latency_limit",
		func(s *api.StreamSpec) string { return unlessDefault(s.LatencyLimit.AsDuration().String(), "0s") }, true,
	},
	{
		"records_per_second", "records_per_second",
		func(s *api.StreamSpec) string { return unlessDefault(fmt.Sprint(s.RecordsPerSecond), "0") }, true,
	},
	{
		"bytes_per_second", "bytes_per_second",
		func(s *api.StreamSpec) string { return unlessDefault(fmt.Sprint(s.BytesPerSecond), "0") }, true,
	},
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
func StreamDifferences(have, asked *api.StreamSpec) (changes []*api.FieldChange) {
	for _, field := range specFields {
		if before, after := field.text(have), field.text(asked); before != after {
			changes = append(changes, &api.FieldChange{Name: field.path, Before: before, After: after})
		}
	}
	return changes
}

// StreamChanges lists what an update would change, and what it may not.
func StreamChanges(have, asked *api.StreamSpec, prefix string) (changes []*api.FieldChange, problems []*api.Problem) {
	for _, field := range specFields {
		before, after := field.text(have), field.text(asked)
		if before == after {
			continue
		}
		if !field.isChangeable {
			problems = append(problems, &api.Problem{
				Field: prefix + field.path, Value: after,
				Rule: fmt.Sprintf("expected %s as it is: it cannot be changed, make another stream",
					OrDefault(before)),
			})
			continue
		}
		changes = append(changes, &api.FieldChange{Name: field.path, Before: before, After: after})
	}
	return changes, problems
}
