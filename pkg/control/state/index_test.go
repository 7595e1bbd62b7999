package state

import (
	"maps"
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// A target that does not live counts where it last said that it is. When that is another host, a stream that waits for
// space on the first one is planned again.
func TestNoteReport_FromAnotherHostLeavesRoomOnTheFirst(t *testing.T) {
	t.Parallel()
	state := func(host string) *api.TargetState { return &api.TargetState{Agent: &api.Agent{Id: "t1", Host: host}} }
	v, waiting := NewView(), map[string]bool{"waits": true}
	v.Streams["waits"] = new(api.Stream)
	for host, want := range map[string]int{"alpha": 0, "beta": 1} {
		touched := newTouched()
		touched.noteReport(v, "t1", state("alpha"), state(host))
		if planned := touched.Streams(v.World(), waiting); len(planned) != want {
			t.Errorf("alpha, then %s: %q are planned again, expected %d", host, planned, want)
		}
	}
}

// What a view shows and the prefixes that keys are told apart by are the same, and no prefix begins another one.
func TestKinds_AreThePrefixes(t *testing.T) {
	t.Parallel()
	have := slices.Sorted(maps.Keys(kinds))
	if want := slices.Sorted(slices.Values(etcd.Prefixes)); !slices.Equal(have, want) {
		t.Errorf("a view shows %q, keys are told apart by %q: add the missing one to both", have, want)
	}
	for i, one := range have[1:] {
		if strings.HasPrefix(one, have[i]) {
			t.Errorf("prefix %q begins %q: a key of the second would be taken for one of the first", have[i], one)
		}
	}
}
