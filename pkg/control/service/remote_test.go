package service

import (
	"bytes"
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
)

// remoteRing is a ring that its target, on host alpha, offers to other hosts.
func remoteRing(stream, target string) *api.RingState {
	state := ring(stream, target)
	state.RemoteUris = []string{"ofi:tcp://alpha:7471/" + stream, "verbs://alpha:7472/" + stream}
	return state
}

func startFar(t *testing.T) *instance {
	t.Helper()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t1", remoteRing("a", "t1"))
	return one
}

// acquireFar asks from another host than the target's.
func (i *instance) acquireFar(transport string) <-chan *api.Grant {
	answered := make(chan *api.Grant, 1)
	ctx := i.context()
	go func() {
		response, err := i.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
			Stream: "a",
			Holder: &api.Holder{Host: "beta"}, Transport: transport,
		})
		if err != nil {
			i.t.Error(err)
		}
		answered <- response.GetGrant()
	}()
	return answered
}

// untilAdmission follows what target t1 is told, as its daemon does, until there is a fence at this epoch.
func (i *instance) untilAdmission(epoch uint32) *api.Admission {
	i.t.Helper()
	watch, err := i.target.WatchRings(i.context(), &api.WatchRingsRequest{Agent: &api.Agent{Id: "t1", Host: "alpha"}})
	if err != nil {
		i.t.Fatal(err)
	}
	for {
		message, err := watch.Recv()
		if err != nil {
			i.t.Fatal(err)
		}
		if len(message.Rings) == 1 && message.Rings[0].Admission.GetEpochMin() == epoch {
			return message.Rings[0].Admission
		}
	}
}

// granted waits for the answer, and ends the test when it is none.
func (i *instance) granted(answered <-chan *api.Grant) *api.Grant {
	i.t.Helper()
	grant := <-answered
	if len(grant.GetMembers()) != 1 {
		i.t.Fatalf("granted %v, expected one member", grant)
	}
	return grant
}

func (i *instance) confirm(fenced, admitted uint32) {
	i.t.Helper()
	state := remoteRing("a", "t1")
	state.EpochFenced, state.EpochAdmitted = fenced, admitted
	i.reportTarget("t1", state)
}

func TestAcquireWriter_FarHolderIsAnsweredWhenTheTargetHasFencedAndAdmitted(t *testing.T) {
	one := startFar(t)
	answered := one.acquireFar("")
	admission := one.untilAdmission(1)
	if len(admission.Grants) != 1 || admission.Grants[0].Epoch != 1 ||
		len(admission.Grants[0].Token) != grant.TokenLen || admission.Grants[0].ExpireTime == nil {
		t.Fatalf("the target is told %v", admission)
	}
	one.confirm(1, 0)
	one.until("the fence is seen", func() bool { return one.status("a").Rings[0].EpochFenced == 1 })
	select {
	case grant := <-answered:
		t.Fatalf("answered %v before the writer was admitted", grant)
	default:
	}
	one.confirm(1, 1)
	grant := one.granted(answered)
	if member := grant.Members[0]; member.Uri != "verbs://alpha:7472/a" ||
		!bytes.Equal(member.Token, admission.Grants[0].Token) || grant.Epoch != 1 {
		t.Errorf("granted %s with epoch %d, expected verbs with the token that the target was told", member.Uri,
			grant.Epoch)
	}
	again := one.acquireFar("ofi")
	second := one.untilAdmission(2)
	if len(second.Grants) != 1 || bytes.Equal(second.Grants[0].Token, admission.Grants[0].Token) {
		t.Errorf("the target is told %d grants; expected one, with another token", len(second.Grants))
	}
	one.confirm(2, 2)
	if member := one.granted(again).Members[0]; !strings.HasPrefix(member.Uri, "ofi:tcp:") {
		t.Errorf("granted %s, expected what was asked for", member.Uri)
	}
}

// Of two control planes on one etcd each draws tokens of its own: a grant of one ends that of the other, and the ring's
// target is told of one token alone, whichever of them it asks.
func TestAcquireWriter_TokensOfTwoControlPlanes(t *testing.T) {
	etcd := etcdtest.Open(t, t.TempDir())
	both := []*instance{startInstance(t, etcd, false), startInstance(t, etcd, false)}
	both[0].create("a")
	both[0].reportTarget("t1")
	both[0].until("stream is placed", func() bool { return len(both[0].status("a").RingSpecs) == 1 })
	both[0].reportTarget("t1", remoteRing("a", "t1"))
	drawn := map[string]bool{}
	for i := range 4 {
		epoch := uint32(i + 1)
		granting, telling := both[i%2], both[(i+1)%2]
		granting.until("the ring is bound", func() bool { return len(granting.status("a").Rings) == 1 })
		answered := granting.acquireFar("ofi")
		admission := telling.untilAdmission(epoch)
		telling.confirm(epoch, epoch)
		token := granting.granted(answered).Members[0].Token
		if len(token) != grant.TokenLen || drawn[string(token)] || len(admission.Grants) != 1 ||
			!bytes.Equal(admission.Grants[0].Token, token) {
			t.Errorf(
				"epoch %d: the target is told of %d tokens, expected the one that was granted alone, and a new one",
				epoch,
				len(admission.Grants),
			)
		}
		drawn[string(token)] = true
		if same := granting.untilAdmission(epoch); !proto.Equal(same, admission) {
			t.Errorf("epoch %d: the other control plane tells %v, expected the same", epoch, same)
		}
	}
}

// What the holder says of its host's addresses reaches the listener. Its loopback is none of them at a target on
// another host, where it would be somebody else's.
func TestAcquireWriter_TargetIsToldFromWhereAWriterMayCome(t *testing.T) {
	one := startFar(t)
	ctx := one.context()
	for epoch, test := range []struct {
		host       string
		transport  string
		told, want []string
	}{
		{"beta", "ofi", []string{"127.0.0.1", "::1", "10.1.2.3", "fd00::/64"}, []string{"10.1.2.3", "fd00::/64"}},
		{"beta", "verbs", []string{"127.0.0.1"}, []string{"127.0.0.1"}},
		{"alpha", "ofi", []string{"127.0.0.1", "10.1.2.3"}, []string{"127.0.0.1", "10.1.2.3"}},
		{"beta", "ofi", nil, nil},
	} {
		answered := make(chan error, 1)
		go func() {
			holder := &api.Holder{Host: test.host, Addresses: test.told}
			_, err := one.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
				Stream: "a", Holder: holder,
				Transport: test.transport,
			})
			answered <- err
		}()
		admission := one.untilAdmission(uint32(epoch + 1))
		if got := admission.Grants[0].Addresses; !slices.Equal(got, test.want) {
			t.Errorf("a writer on %s at %q may come from %q, expected %q", test.host, test.told, got, test.want)
		}
		one.confirm(uint32(epoch+1), uint32(epoch+1))
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
	}
	for _, wrong := range []string{"", "10.1.2", "10.1.2.3/99", "storage1"} {
		_, err := one.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
			Stream: "a",
			Holder: &api.Holder{Addresses: []string{wrong}},
		})
		if status.Code(err) != codes.InvalidArgument ||
			!strings.Contains(err.Error(), "expected one such as 10.1.2.3") {
			t.Errorf("address %q: %v", wrong, err)
		}
	}
}

// A drain says where its host is each time that it reports; the listener is told of a change at once, with the token
// that it has.
func TestDrain_TargetIsToldFromWhereItMayCome(t *testing.T) {
	one := startFar(t)
	one.drainToken(&api.Agent{Id: "d1", Host: "beta", Addresses: []string{"10.1.2.3"}})
	watch, err := one.target.WatchRings(one.context(), &api.WatchRingsRequest{Agent: &api.Agent{
		Id:   "t1",
		Host: "alpha",
	}})
	if err != nil {
		t.Fatal(err)
	}
	from := func(want string) *api.RemoteGrant {
		for {
			message, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			grants := message.Rings[0].Admission.GetGrants()
			if len(grants) == 1 && slices.Equal(grants[0].Addresses, []string{want}) {
				return grants[0]
			}
		}
	}
	first := from("10.1.2.3")
	if _, err := one.drain.ReportDrain(one.context(),
		&api.ReportDrainRequest{State: &api.DrainState{Agent: &api.Agent{
			Id: "d1", Host: "beta",
			Addresses: []string{"10.9.9.9"},
		}}}); err != nil {
		t.Fatal(err)
	}
	if moved := from("10.9.9.9"); !bytes.Equal(moved.Token, first.Token) {
		t.Error("another token was drawn for the same assignment")
	}
}

func TestAcquireWriter_TokensAreInNoStatus(t *testing.T) {
	one := startFar(t)
	answered := one.acquireFar("")
	one.untilAdmission(1)
	one.confirm(1, 1)
	writer := one.granted(answered).Members[0].Token
	drain := one.drainToken(&api.Agent{Id: "d1", Host: "beta"})
	agents, err := one.control.ListAgents(one.context(), &api.ListAgentsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []proto.Message{one.status("a"), agents} {
		raw, err := protojson.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range [][]byte{writer, drain} {
			if bytes.Contains(raw, []byte(base64.StdEncoding.EncodeToString(token))) {
				t.Errorf("a token is shown: %s", raw)
			}
		}
	}
}

// drainToken registers a drain and gives the token that it is told.
func (i *instance) drainToken(agent *api.Agent) []byte {
	i.t.Helper()
	watch, err := i.drain.WatchAssignments(i.context(), &api.WatchAssignmentsRequest{Agent: agent})
	if err != nil {
		i.t.Fatal(err)
	}
	for {
		message, err := watch.Recv()
		if err != nil {
			i.t.Fatal(err)
		}
		if len(message.Assignments) == 0 {
			continue
		}
		given := message.Assignments[0]
		if given.Uri != "verbs://alpha:7472/a" || len(given.Token) != grant.TokenLen {
			i.t.Fatalf("drain is told %s with a token of %d bytes", given.Uri, len(given.Token))
		}
		return given.Token
	}
}

func TestDrain_OnAnotherHostIsAdmittedAndItsSuccessorTakesItsPlace(t *testing.T) {
	one := startFar(t)
	first := one.drainToken(&api.Agent{Id: "d1", Host: "beta"})
	one.endLife(etcd.KeyLiveDrains + "d1")
	one.until("the first is gone", func() bool { return !one.status("a").DrainAlive })
	second := one.drainToken(&api.Agent{Id: "d2", Host: "gamma"})
	watch, err := one.target.WatchRings(one.context(), &api.WatchRingsRequest{Agent: &api.Agent{
		Id:   "t1",
		Host: "alpha",
	}})
	if err != nil {
		t.Fatal(err)
	}
	message, err := watch.Recv()
	if err != nil {
		t.Fatal(err)
	}
	grants := message.Rings[0].Admission.GetGrants()
	if len(grants) != 1 || !bytes.Equal(grants[0].Token, second) || bytes.Equal(first, second) ||
		grants[0].Generation != 2 {
		t.Errorf("%d grants are wanted of the target, expected that of the second drain alone", len(grants))
	}
}

func TestAcquireWriter_HolderOnTheTargetsHostEndsAFarOne(t *testing.T) {
	one := startFar(t)
	far := one.acquireFar("")
	one.untilAdmission(1)
	one.confirm(1, 1)
	<-far
	answered := make(chan *api.Grant, 1)
	ctx := one.context()
	go func() {
		response, err := one.control.AcquireWriter(ctx,
			&api.AcquireWriterRequest{Stream: "a", Holder: &api.Holder{Host: "alpha"}})
		if err != nil {
			t.Error(err)
		}
		answered <- response.GetGrant()
	}()
	if admission := one.untilAdmission(2); len(admission.Grants) != 0 {
		t.Errorf("%d far grants are left, expected none", len(admission.Grants))
	}
	one.confirm(2, 0)
	if member := one.granted(answered).Members[0]; !strings.HasPrefix(member.Uri, "mem:") || len(member.Token) != 0 {
		t.Errorf("granted %s, expected the region itself", member.Uri)
	}
}

func TestAcquireWriter_TargetThatDoesNotConfirmIsNamed(t *testing.T) {
	one := startFar(t)
	limit := time.Second // longer each time: on a slow machine it may be over before the target is waited for
	one.until("the target is named", func() bool {
		ctx, cancel := context.WithTimeout(one.context(), limit)
		defer cancel()
		limit *= 2
		_, err := one.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
			Stream: "a",
			Holder: &api.Holder{Host: "beta"},
		})
		if err == nil {
			t.Fatal("granted")
		}
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "target t1 has not confirmed")
	})
}

func TestAcquireWriter_TransportIsChecked(t *testing.T) {
	one := startFar(t)
	one.reportTarget("t1", ring("a", "t1"))
	one.until("the target listens no more", func() bool { return len(one.status("a").Rings[0].RemoteUris) == 0 })
	for transport, want := range map[string]codes.Code{
		"verbs":          codes.FailedPrecondition,
		"carrier pigeon": codes.InvalidArgument, "mem": codes.OK,
	} {
		_, err := one.control.AcquireWriter(one.context(),
			&api.AcquireWriterRequest{Stream: "a", Holder: &api.Holder{Host: "beta"}, Transport: transport})
		if status.Code(err) != want {
			t.Errorf("transport %q: %v, expected %s", transport, err, want)
		}
	}
}
