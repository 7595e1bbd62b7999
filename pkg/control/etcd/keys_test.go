package etcd

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// What a newer control plane has written with fields that are not known here is read, and those are left out, in either
// form.
func TestDecode_UnknownFields(t *testing.T) {
	t.Parallel()
	want := &api.TargetState{
		Agent: &api.Agent{Id: "t1"},
		Rings: []*api.RingState{{Stream: "a", RingUuid: []byte("0123456789abcdef")}},
	}
	raw, err := EncodeBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	text, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	newer := protowire.AppendString(protowire.AppendTag([]byte(raw), 1000, protowire.BytesType), "new")
	for _, value := range []string{raw, text, string(newer), `{"new": 1, ` + text[1:]} {
		got := new(api.TargetState)
		if err := Decode("key", []byte(value), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%.40q is read as %v, %v", value, got, err)
		}
	}
	if err := Decode("key", []byte(raw[:len(raw)-1]), new(api.TargetState)); err == nil {
		t.Error("half a report is read")
	}
}
