package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// A stream with one ring is taken over when its target has said that the writer is fenced, and not before; the event is
// recorded with its reason and epoch.
func TestTakeOver_OfOneRingAndItsAct(t *testing.T) {
	t.Parallel()
	s := &sink{}
	one := startInstanceWith(t, etcdtest.Open(t, t.TempDir()), Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t1", remoteRing("a", "t1"))
	answered := make(chan *api.TakeOverStreamResponse, 1)
	ctx := one.context()
	go func() {
		response, err := one.control.TakeOverStream(ctx,
			&api.TakeOverStreamRequest{Stream: "a", Reason: "it still hangs"})
		if err != nil {
			t.Error(err)
		}
		answered <- response
	}()
	one.untilAdmission(1)
	one.confirm(0, 0)
	select {
	case response := <-answered:
		t.Fatalf("answered %v although nobody has confirmed it", response)
	default:
	}
	one.confirm(1, 0)
	if response := <-answered; response.GetEpoch() != 1 || len(response.GetFenced()) != 1 ||
		response.GetFenced()[0] != "t1" {
		t.Errorf("took over with %v", response)
	}
	if _, err := one.control.TakeOverStream(one.context(),
		&api.TakeOverStreamRequest{Stream: "a"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a reason: %v", err)
	}
	var events []auditlog.Event
	one.until("it is recorded", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		events = slices.DeleteFunc(slices.Clone(s.events),
			func(event auditlog.Event) bool { return event.What != "TakeOverStream" || event.Outcome != "OK" })
		return len(events) == 1
	})
	if events[0].Epoch != 1 || events[0].Stream != "a" || events[0].Who != "insecure" ||
		!strings.Contains(string(events[0].Request), "it still hangs") {
		t.Errorf("recorded %+v", events)
	}
}

// An epoch is granted for the rings that were looked at, or not at all: one that is granted for a ring after another
// took its place could be opened beside one for that.
func TestNextEpoch_RingReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, cluster, true)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t2") // or what is wanted of it would go back to where somebody lives
	m := state.NewMirror(cluster.Client(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go m.Run(ctx)
	before, err := m.Wait(one.context(), func(v *state.View) bool { return v.Rings["a"] != nil })
	if err != nil {
		t.Fatal(err)
	}
	admit := func(int, *api.Admission, uint32) error { return nil }
	replaced := proto.Clone(before.Rings["a"]).(*api.RingSpec)
	replaced.Target = "t2"
	if _, err := setRings(one.context(), cluster.Client(), before, "a",
		map[int]*api.RingSpec{0: replaced}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := grant.NextEpoch(one.context(), cluster.Client(), before, &api.Grant{Stream: "a"}, 0, 1, admit,
		nil); !errors.Is(err, grant.ErrRingsChanged) {
		t.Errorf("granted for the ring of before: %v", err)
	}
	if got, err := cluster.Client().Get(t.Context(), etcd.KeyEpochs+"a", clientv3.WithCountOnly()); err != nil ||
		got.Count != 0 {
		t.Errorf("an epoch was used: %v, %v", got, err)
	}
	// And the other way round: what was decided before a grant is not done after it.
	after, err := m.Wait(one.context(), func(v *state.View) bool { return v.Rings["a"].GetTarget() == "t2" })
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := grant.NextEpoch(one.context(), cluster.Client(), after, &api.Grant{Stream: "a"}, 0, 1, admit,
		nil); err != nil {
		t.Fatal(err)
	}
	if _, err := setRings(one.context(), cluster.Client(), after, "a",
		map[int]*api.RingSpec{0: replaced}); status.Code(err) != codes.Aborted {
		t.Errorf("replaced by what was seen before a grant: %v", err)
	}
}

// A new ring is taken for the one before it, with what that may have had, only where those that were never told an
// epoch, and hold nothing, are too few.
func TestToBeCounted_UntoldOnesFirst(t *testing.T) {
	stream := &api.Stream{Spec: &api.StreamSpec{Name: "a", Members: 3}, K: 2}
	of := func(target string, replacement *api.Replacement) *api.RingSpec {
		return &api.RingSpec{Target: target, RingUuid: []byte(target), Stream: stream, Replacement: replacement}
	}
	rings := []*api.RingSpec{of("t1", &api.Replacement{FormerTarget: "t0"}), of("t2", nil), of("t3", nil)}
	v := &state.View{
		Targets:     map[string]*api.TargetState{},
		LiveTargets: map[string]*api.Agent{"t1": {}, "t2": {}, "t3": {}},
	}
	for _, ring := range rings {
		v.Targets[ring.Target] = &api.TargetState{Rings: []*api.RingState{{
			Stream: "a", Target: ring.Target,
			RingUuid: ring.RingUuid,
		}}}
	}
	v.Targets["t2"].Rings[0].WriterEpoch = 7
	counted := func() (targets []string) {
		for _, ring := range toBeCounted(v, stream, rings) {
			targets = append(targets, ring.Target)
		}
		return targets
	}
	if got := counted(); !slices.Equal(got, []string{"t3"}) {
		t.Errorf("one of them is empty for sure, but counted were %v", got)
	}
	if text := lossText(v, "a", rings[2]); !strings.Contains(text, "nothing is lost with it") {
		t.Errorf("of t3 is said %q", text)
	}
	delete(v.LiveTargets, "t3")
	if got := counted(); !slices.Equal(got, []string{"t1", "t3"}) {
		t.Errorf("that one is away, and counted were %v", got)
	}
	after := accepted(rings[2], "test", "operator")
	if !after.Replacement.LossAccepted || rings[2].Replacement != nil ||
		reconcile.Counts(after, v.Targets["t3"].Rings[0]) || !bytes.Equal(after.RingUuid, rings[2].RingUuid) {
		t.Errorf("accepted %v", after)
	}
}
