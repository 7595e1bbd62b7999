package fabric

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Changes lists the fields in which two specs of a target, a drain or a tenant differ, in the order of the API. The
// first spec may be nil.
func Changes[M proto.Message](have, asked M) []*api.FieldChange {
	return changesOf(have, asked, func(spec M, field protoreflect.FieldDescriptor) string {
		return fieldText(spec.ProtoReflect(), field)
	})
}

func changesOf[M proto.Message](have, asked M, text func(M, protoreflect.FieldDescriptor) string,
) (changes []*api.FieldChange) {
	for _, field := range fieldsOf(asked) {
		if before, after := text(have, field), text(asked, field); before != after {
			changes = append(changes, &api.FieldChange{Name: string(field.Name()), Before: before, After: after})
		}
	}
	return changes
}

// fieldsOf are the fields of a spec but its first, which is its name.
func fieldsOf(spec proto.Message) (fields []protoreflect.FieldDescriptor) {
	all := spec.ProtoReflect().Descriptor().Fields()
	for i := 1; i < all.Len(); i++ {
		fields = append(fields, all.Get(i))
	}
	return fields
}

// fieldText is the value of a field as flags and files spell it; 0 and 0s where it has none.
func fieldText(spec protoreflect.Message, field protoreflect.FieldDescriptor) string {
	value := spec.Get(field)
	if field.IsList() {
		return listText(field, value.List())
	}
	return valueText(field, value)
}

// listText is a list as a file could have it in one line; "": it is empty.
func listText(field protoreflect.FieldDescriptor, list protoreflect.List) string {
	texts := make([]string, list.Len())
	for i := range texts {
		texts[i] = valueText(field, list.Get(i))
	}
	if len(texts) == 0 {
		return ""
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// itemText is an item of a list: the fields that it has.
func itemText(item protoreflect.Message) string {
	var texts []string
	fields := item.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); item.Has(field) {
			texts = append(texts, string(field.Name())+": "+fieldText(item, field))
		}
	}
	return "{" + strings.Join(texts, ", ") + "}"
}

func valueText(field protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch field.Kind() {
	case protoreflect.EnumKind:
		if known := field.Enum().Values().ByNumber(value.Enum()); known != nil {
			_, name, _ := strings.Cut(string(known.Name()), "_")
			return strings.ToLower(name)
		}
		return fmt.Sprint(value.Enum())
	case protoreflect.MessageKind:
		if duration, ok := value.Message().Interface().(*durationpb.Duration); ok {
			return duration.AsDuration().String()
		}
		return itemText(value.Message())
	}
	return fmt.Sprint(value.Interface())
}
