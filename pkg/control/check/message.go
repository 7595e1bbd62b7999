package check

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// validator reads the rules in farlog.proto, once.
var validator = sync.OnceValues(func() (protovalidate.Validator, error) {
	return protovalidate.New(protovalidate.WithMessages(&api.StreamSpec{}, &api.TargetSpec{}, &api.DrainSpec{},
		&api.TenantSpec{}, &api.RouteSpec{}, &api.Fabric{}, &api.ListStreamsRequest{}, &api.WatchStreamsRequest{},
		&api.ListRoutesRequest{}, &api.WatchRoutesRequest{}, &api.TakeOverStreamRequest{}, &api.RebindStreamRequest{},
		&api.ReplaceMemberRequest{}, &api.AcceptLossRequest{}))
})

// Labels are the words for fields in a text for people, where these are others than the name.
var Labels = map[string]string{"ring_size_bytes": "ring size"}

// Message lists what is wrong with a message by the rules in farlog.proto; prefix stands before the names of fields.
func Message(message proto.Message, prefix string) ([]*api.Problem, error) {
	rules, err := validator()
	if err != nil {
		return nil, fmt.Errorf("read rules: %w", err)
	}
	err = rules.Validate(message)
	if err == nil {
		return nil, nil
	}
	var invalid *protovalidate.ValidationError
	if !errors.As(err, &invalid) {
		return nil, fmt.Errorf("apply rules: %w", err)
	}
	var problems []*api.Problem
	for _, violation := range invalid.Violations {
		problems = append(problems, problemOf(message, prefix, violation))
	}
	return problems, nil
}

func problemOf(message proto.Message, prefix string, violation *protovalidate.Violation) *api.Problem {
	field, value, descriptor := protovalidate.FieldPathString(violation.Proto.GetField()), violation.FieldValue,
		violation.FieldDescriptor
	if descriptor == nil { // a rule of several fields has the name of the one that is to be changed
		within := messageAt(message.ProtoReflect(), violation.Proto.GetField())
		name := violation.Proto.GetRuleId()
		field = strings.TrimPrefix(field+"."+name, ".")
		value = protoreflect.Value{}
		if descriptor = within.Descriptor().Fields().ByName(protoreflect.Name(name)); descriptor != nil {
			value = within.Get(descriptor)
		}
	}
	return &api.Problem{Field: prefix + field, Value: valueText(descriptor, value), Rule: violation.Proto.GetMessage()}
}

// messageAt goes down a path of messages and lists of them.
func messageAt(message protoreflect.Message, path *validate.FieldPath) protoreflect.Message {
	for _, element := range path.GetElements() {
		value := message.Get(message.Descriptor().Fields().ByName(protoreflect.Name(element.GetFieldName())))
		if element.HasIndex() {
			value = value.List().Get(int(element.GetIndex()))
		}
		message = value.Message()
	}
	return message
}

// valueText is a value as an operator would write it.
func valueText(descriptor protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if descriptor == nil || !value.IsValid() {
		return ""
	}
	if descriptor.IsList() {
		return fmt.Sprintf("%d of them", value.List().Len())
	}
	switch descriptor.Kind() {
	case protoreflect.EnumKind:
		if known := descriptor.Enum().Values().ByNumber(value.Enum()); known != nil {
			name := string(known.Name())
			if descriptor.Enum().Name() == "LegPolicy" {
				name = strings.TrimPrefix(name, "LEG_")
			}
			_, name, _ = strings.Cut(name, "_")
			return strings.ToLower(name)
		}
	case protoreflect.StringKind:
		return fmt.Sprintf("%q", value.String())
	case protoreflect.MessageKind:
		if duration, ok := value.Message().Interface().(*durationpb.Duration); ok {
			return duration.AsDuration().String()
		}
		return ""
	}
	return fmt.Sprint(value.Interface())
}

// Text is one problem for people.
func Text(problem *api.Problem) string {
	field := problem.Field[strings.LastIndexByte(problem.Field, '.')+1:]
	if label := Labels[field]; label != "" {
		field = label
	}
	return strings.TrimSpace(field+" "+problem.Value) + ": " + problem.Rule
}
