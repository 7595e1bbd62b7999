package service

import (
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// membersView is of stream "a" with three rings, of which two have to acknowledge, each on a target that lives.
func membersView(rings ...*api.RingState) *state.View {
	stream := &api.Stream{Spec: &api.StreamSpec{Name: "a", Members: 3}, K: 2}
	v := &state.View{
		Streams: map[string]*api.Stream{"a": stream}, Rings: map[string]*api.RingSpec{},
		Targets: map[string]*api.TargetState{}, LiveTargets: map[string]*api.Agent{},
	}
	for i, ring := range rings {
		target := "t" + string(rune('1'+i))
		ring.Stream, ring.RingUuid = "a", []byte(target)
		v.Rings[reconcile.MemberKey("a", i)] = &api.RingSpec{Target: target, Stream: stream, RingUuid: ring.RingUuid}
		v.Targets[target] = &api.TargetState{Rings: []*api.RingState{ring}}
		v.LiveTargets[target] = &api.Agent{}
	}
	return v
}

// One ring's lock decides over its writer, but of another one, to which the writer would come from afar, the target
// cannot say whether it has a writer: the grant would fence that writer, and is not to be given.
func TestLivingWriter_LockedRingBesideUnknownOne(t *testing.T) {
	t.Parallel()
	const cause = "admit a client: no answer"
	unknown := &api.RingState{Error: cause}
	request := &api.AcquireWriterRequest{Stream: "a", Holder: &api.Holder{Host: "t1", Pid: 7}}
	admitting := &grant.WriterAdmission{IsFar: []bool{false, true, true}}
	for _, test := range []struct {
		name      string
		rings     []*api.RingState
		isUnknown bool
	}{
		{"two of three are not free", []*api.RingState{{WriterHeld: true}, unknown, {}}, true},
		{"two of three are free", []*api.RingState{{}, unknown, {}}, false},
		{"the lock decides over the only one", []*api.RingState{{WriterHeld: true}, {}, {}}, false},
	} {
		held, unseen := livingWriter(membersView(test.rings...), request, admitting)
		if held != nil || strings.Contains(unseen, "target t2: "+cause) != test.isUnknown {
			t.Errorf("%s: held %v, not known: %q", test.name, held, unseen)
		}
	}
}
