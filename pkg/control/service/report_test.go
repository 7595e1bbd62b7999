package service

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// figures are the fields of reports by which nothing is decided, and those that the cases below are about.
var figures = map[protoreflect.FullName]bool{
	"farlog.v1.RingState.observe_time": true, "farlog.v1.RingState.head_seq": true,
	"farlog.v1.RingState.credit_lsn":  true,
	"farlog.v1.RingState.durable_lsn": true, "farlog.v1.RingState.lag_records": true,
	"farlog.v1.RingState.lag_age":      true,
	"farlog.v1.RingState.time_to_full": true, "farlog.v1.RingState.counters": true,
	"farlog.v1.TargetState.report_time":   true,
	"farlog.v1.MediaHealth.written_bytes": true, "farlog.v1.MediaHealth.read_time": true,
	"farlog.v1.DrainState.report_time": true, "farlog.v1.DrainProgress.stored_lsn": true,
	"farlog.v1.DrainProgress.head_lsn": true, "farlog.v1.DrainProgress.records": true,
	"farlog.v1.DrainProgress.bytes": true, "farlog.v1.DrainProgress.batches": true,
	"farlog.v1.DrainProgress.duplicates": true, "farlog.v1.DrainProgress.anchor": true,
}

// setEach calls for every field of a message, and of those in it, with the field set.
func setEach(message protoreflect.Message, each func(field protoreflect.FieldDescriptor)) {
	fields := message.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		before, had := message.Get(field), message.Has(field)
		if field.Message() != nil && had && field.IsList() {
			setEach(before.List().Get(0).Message(), each)
			continue
		}
		if field.Message() != nil && had {
			setEach(before.Message(), each)
			continue
		}
		switch {
		case field.IsList():
			list := message.NewField(field).List()
			list.Append(otherValue(field, list.NewElement()))
			message.Set(field, protoreflect.ValueOfList(list))
		default:
			message.Set(field, otherValue(field, message.NewField(field)))
		}
		each(field)
		if message.Clear(field); had {
			message.Set(field, before)
		}
	}
}

func otherValue(field protoreflect.FieldDescriptor, empty protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("other")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("other"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.MessageKind:
		return empty
	}
	panic(fmt.Sprintf("field %s: set a value for its kind here", field.FullName()))
}

// A field of a report that nobody has thought of would be kept from etcd: every one is either a figure or makes a
// report news.
func TestReport_EveryFieldCounts(t *testing.T) {
	target := &api.TargetState{
		Agent:      &api.Agent{Id: "t1"},
		Rings:      []*api.RingState{{Stream: "a", Contract: &api.Contract{Kind: "mem"}}},
		Media:      []*api.MediaHealth{{Device: "nvme"}},
		Namespaces: []*api.NamespaceState{{Name: "desk7"}},
	}
	drain := &api.DrainState{Agent: &api.Agent{Id: "d1"}, Progress: []*api.DrainProgress{{Stream: "a"}}}
	counted := 0
	for state, isSame := range map[proto.Message]func(proto.Message) bool{
		target: func(now proto.Message) bool { return api.IsSameTarget(target, now.(*api.TargetState)) },
		drain:  func(now proto.Message) bool { return api.IsSameDrain(drain, now.(*api.DrainState)) },
	} {
		changed := proto.Clone(state)
		if !isSame(changed) {
			t.Fatalf("a report that is the same is taken for news: %v", state)
		}
		setEach(changed.ProtoReflect(), func(field protoreflect.FieldDescriptor) {
			counted++
			if isSame(changed) != figures[field.FullName()] {
				t.Errorf("%s: compare it in IsSameRing or its like, or name it as a figure here", field.FullName())
			}
		})
	}
	if counted < 60 {
		t.Fatalf("%d fields were tried", counted)
	}
}

// What the end of a stream waits for is no figure: that all of a closed ring is stored, or of one that nobody writes.
func TestReport_EmptiedRingIsNews(t *testing.T) {
	for _, test := range []struct {
		name        string
		before, now *api.RingState
		isNews      bool
	}{
		{
			"written and stored", &api.RingState{WriterHeld: true, HeadLsn: 1, AppendedLsn: 5, LagBytes: 4},
			&api.RingState{WriterHeld: true, HeadLsn: 9, AppendedLsn: 9}, false,
		},
		{
			"first record stored", &api.RingState{WriterHeld: true, AppendedLsn: 5, LagBytes: 5},
			&api.RingState{WriterHeld: true, HeadLsn: 5, AppendedLsn: 5}, true,
		},
		{
			"all stored, nobody writes", &api.RingState{HeadLsn: 1, AppendedLsn: 5, LagBytes: 4},
			&api.RingState{HeadLsn: 5, AppendedLsn: 5}, true,
		},
		{
			"more stored, nobody writes", &api.RingState{HeadLsn: 1, AppendedLsn: 5, LagBytes: 4},
			&api.RingState{HeadLsn: 3, AppendedLsn: 5, LagBytes: 2}, false,
		},
		{
			"closed and all stored", &api.RingState{Closed: true, HeadLsn: 1, AppendedLsn: 5},
			&api.RingState{Closed: true, HeadLsn: 5, AppendedLsn: 5}, true,
		},
	} {
		if isNews := !api.IsSameRing(test.before, test.now); isNews != test.isNews {
			t.Errorf("%s: news %v, expected %v", test.name, isNews, test.isNews)
		}
	}
}
