package control

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// Defaults of a stream. Limits are rules in farlog.proto; docs/format.md §2 and §3 say where they come from.
const (
	ringHeaderBytes     = 0x3000
	ringSizeDefault     = 64 << 20
	recordLenMaxDefault = 1 << 20
	ringRecordsLeast    = 4 // a ring holds at least so many of its largest records
	alignDefault        = 64
)

// completeSpec fills in the defaults and checks every field. It is pure: the same request always means the same
// stream, which is what makes creation idempotent.
func completeSpec(asked *api.StreamSpec) (*api.StreamSpec, error) {
	if asked == nil {
		return nil, invalid("stream: ", []*api.Problem{{Field: "spec", Rule: "expected a spec with a name"}})
	}
	spec := withDefaults(asked)
	problems, err := problemsOf(spec, "spec.")
	if err != nil {
		return nil, err
	}
	if len(problems) == 0 {
		return spec, nil
	}
	if problems[0].Field == "spec.name" {
		return nil, invalid("stream ", problems)
	}
	return nil, invalid(fmt.Sprintf("stream %q: ", spec.Name), problems)
}

// withDefaults leaves alone what was given, right or wrong.
func withDefaults(asked *api.StreamSpec) *api.StreamSpec {
	spec := proto.Clone(asked).(*api.StreamSpec)
	setDefault(&spec.RingSizeBytes, ringSizeDefault)
	setDefault(&spec.Align, alignDefault)
	setDefault(&spec.Level, api.Level_LEVEL_PERSISTENT)
	setDefault(&spec.Policy, api.Policy_POLICY_BLOCK)
	setDefault(&spec.Members, 1)
	setDefault(&spec.Needed, spec.Members/2+1) // more than half: then any two groups that acknowledge have one in common
	setDefault(&spec.FailureDomain, reconcile.DomainHost)
	if spec.RingSizeBytes > ringHeaderBytes {
		capacity := spec.RingSizeBytes - ringHeaderBytes
		setDefault(&spec.RecordLenMax, uint32(min(capacity/ringRecordsLeast, recordLenMaxDefault))&^(spec.Align-1))
	}
	return spec
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func levelName(level api.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

func policyName(policy api.Policy) string {
	return strings.ToLower(strings.TrimPrefix(policy.String(), "POLICY_"))
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
	{"level", "level", func(s *api.StreamSpec) string { return levelName(s.Level) }, true},
	{"policy", "policy", func(s *api.StreamSpec) string { return policyName(s.Policy) }, true},
	{"deadline", "deadline", func(s *api.StreamSpec) string { return s.Deadline.AsDuration().String() }, true},
	{"target_host", "target_host", func(s *api.StreamSpec) string { return s.TargetHost }, false},
	{"drain_host", "drain_host", func(s *api.StreamSpec) string { return s.DrainHost }, true},
	{"members", "members", func(s *api.StreamSpec) string { return unlessDefault(fmt.Sprint(s.Members), "0", "1") }, false},
	{"needed", "needed", func(s *api.StreamSpec) string {
		return unlessDefault(fmt.Sprint(s.Needed), "0", fmt.Sprint(s.Members/2+1))
	}, false},
	{"failure_domain", "failure_domain", func(s *api.StreamSpec) string { return unlessDefault(s.FailureDomain, reconcile.DomainHost) }, false},
	{"writer_host", "writer_host", func(s *api.StreamSpec) string { return s.WriterHost }, true},
	{"latency_limit", "latency_limit", func(s *api.StreamSpec) string { return unlessDefault(s.LatencyLimit.AsDuration().String(), "0s") }, true},
}

// unlessDefault is empty for what a spec has that says nothing. Those that were declared before there were members say nothing of them.
func unlessDefault(text string, defaults ...string) string {
	if slices.Contains(defaults, text) {
		return ""
	}
	return text
}

func orDefault(text string) string {
	if text == "" {
		return "the default"
	}
	return text
}

// specDifferences lists the fields in which two complete specs differ.
func specDifferences(have, asked *api.StreamSpec) (changes []*api.FieldChange) {
	for _, field := range specFields {
		if before, after := field.text(have), field.text(asked); before != after {
			changes = append(changes, &api.FieldChange{Name: field.path, Before: before, After: after})
		}
	}
	return changes
}

// specChanges lists what an update would change, and what it may not.
func specChanges(have, asked *api.StreamSpec, prefix string) (changes []*api.FieldChange, problems []*api.Problem) {
	for _, field := range specFields {
		before, after := field.text(have), field.text(asked)
		if before == after {
			continue
		}
		if !field.isChangeable {
			problems = append(problems, &api.Problem{Field: prefix + field.path, Value: after,
				Rule: fmt.Sprintf("expected %s as it is: it cannot be changed, make another stream", orDefault(before))})
			continue
		}
		changes = append(changes, &api.FieldChange{Name: field.path, Before: before, After: after})
	}
	return changes, problems
}
