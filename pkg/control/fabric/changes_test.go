package fabric

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Each field of a spec but its name is compared, also one that the API gets later.
func TestChanges_EachField(t *testing.T) {
	for _, have := range []proto.Message{new(api.TargetSpec), new(api.DrainSpec), new(api.TenantSpec)} {
		fields := have.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			asked, field := proto.Clone(have), fields.Get(i)
			asked.ProtoReflect().Set(field, otherValue(t, field))
			changes := Changes(have, asked)
			if i == 0 && len(changes) != 0 || i > 0 && (len(changes) != 1 ||
				changes[0].Name != string(field.Name()) || changes[0].Before == changes[0].After) {
				t.Errorf("%s is another: changes are %v", field.FullName(), changes)
			}
		}
	}
}

// Of a stream some fields may change and the others are refused, by name.
func TestStreamChanges_EachField(t *testing.T) {
	have := &api.StreamSpec{Name: "a", Members: 3, Needed: 3, FailureDomain: "rack"}
	fields := have.ProtoReflect().Descriptor().Fields()
	for i := 1; i < fields.Len(); i++ {
		asked, field := proto.Clone(have).(*api.StreamSpec), fields.Get(i)
		asked.ProtoReflect().Set(field, otherValue(t, field))
		changes, problems := StreamChanges(have, asked, "spec.")
		if len(changes)+len(problems) != 1 {
			t.Fatalf("%s is another: changes are %v, problems %v", field.Name(), changes, problems)
		}
		isFixed := map[string]bool{
			"ring_size_bytes": true, "record_len_max": true, "align": true, "target_host": true, "members": true,
			"needed": true, "failure_domain": true, "kind": true, "encryption": true,
		}[string(field.Name())]
		if isFixed && (len(problems) != 1 || problems[0].Field != "spec."+string(field.Name())) ||
			!isFixed && (len(changes) != 1 || changes[0].Name != string(field.Name())) {
			t.Errorf("%s is another: changes are %v, problems %v", field.Name(), changes, problems)
		}
	}
}

// otherValue is a value that no spec of these tests has.
func otherValue(t *testing.T, field protoreflect.FieldDescriptor) protoreflect.Value {
	t.Helper()
	if field.IsList() {
		list := new(api.TargetSpec).ProtoReflect().NewField(field)
		list.List().AppendMutable()
		return list
	}
	switch field.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("other")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.MessageKind:
		return protoreflect.ValueOfMessage(durationpb.New(time.Second).ProtoReflect())
	}
	t.Fatalf("%s is of kind %s, which fieldText does not know", field.FullName(), field.Kind())
	return protoreflect.Value{}
}
