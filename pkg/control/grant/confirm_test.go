package grant

import (
	"strings"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/state"
)

// The fence word is enough for a ring that only programs beside its target reach. In a namespace a writer of another
// host may not have read it yet: there its target says when that is out.
func TestConfirmation_FenceWordOfANamespace(t *testing.T) {
	spec := &api.RingSpec{Target: "t1", Stream: &api.Stream{Spec: &api.StreamSpec{Name: "a"}}}
	ring := &api.RingState{Stream: "a", EpochMin: 3, EpochFenced: 1, FenceError: "its writer is not out"}
	v := &state.View{
		Rings: map[string]*api.RingSpec{"a": spec}, LiveTargets: map[string]*api.Agent{"t1": {Id: "t1"}},
		Targets: map[string]*api.TargetState{"t1": {Rings: []*api.RingState{ring}}},
	}
	c := &Confirmation{Stream: "a", Epoch: 3, IsLocal: true, IsAsked: []bool{true}, IsLetIn: []bool{false}, Fences: 1}
	if !c.isConfirmed(v, 0) {
		t.Error("the fence word of a ring beside its target is not enough")
	}
	spec.Subsystem = "nqn.2026-01.com.example:desk7"
	if c.isConfirmed(v, 0) {
		t.Error("the fence word of a ring in a namespace is enough")
	}
	if err := c.refusal(v, time.Second); !strings.Contains(err.Error(), "its writer is not out") {
		t.Errorf("refused with %v, want why", err)
	}
	if ring.EpochFenced = 3; !c.isConfirmed(v, 0) {
		t.Error("the target's word is not enough")
	}
}
