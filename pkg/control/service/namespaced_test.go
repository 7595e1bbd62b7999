package service

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

const standbyNQN = "nqn.2026-01.com.example:trading2"

// inNamespace has a stream whose writers are hosts trading1 and trading2, in a namespace of target t1 on host alpha.
type inNamespace struct {
	*instance
	spec *api.StreamSpec
}

// declareNamespace declares what the stream needs, without anybody who reports it yet.
func declareNamespace(t *testing.T) inNamespace {
	t.Helper()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	declared := exportingTarget("alpha", "desk7")
	declared.Namespaces[0].Hosts = []*api.NamespaceHost{
		{Nqn: tradingNQN, Host: "trading1"}, {Nqn: standbyNQN, Host: "trading2"},
	}
	fabric := &api.Fabric{Targets: []*api.TargetSpec{declared}}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	return inNamespace{one, &api.StreamSpec{Name: "desk7/a", Kind: "nvmeof", RingSizeBytes: 1 << 20}}
}

// reportExport says that the namespace is exported, and how the ring in it is.
func (i inNamespace) reportExport(rings ...*api.RingState) {
	i.t.Helper()
	i.tellTarget(&api.ReportTargetRequest{State: &api.TargetState{
		Agent: &api.Agent{Id: "t1", Host: "alpha"}, Rings: rings,
		Namespaces: []*api.NamespaceState{{
			Name: "desk7", Device: "/dev/desk7", Subsystem: "nqn.2026-01.com.example:desk7", Exported: true,
			Level: api.Level_LEVEL_PERSISTENT, FreeBytes: 8<<20 - uint64(len(rings))<<20,
		}},
	}})
}

// reportConnected says that a host has connected it.
func (i inNamespace) reportConnected(host, device string) {
	i.t.Helper()
	_, err := api.NewHostServiceClient(i.conn).ReportHost(i.context(), &api.ReportHostRequest{State: &api.HostState{
		Host: host, Namespaces: []*api.NamespaceConnection{{
			TargetHost: "alpha", Name: "desk7", Subsystem: "nqn.2026-01.com.example:desk7", Device: device,
		}},
	}})
	if err != nil {
		i.t.Fatal(err)
	}
}

// ringThere is the stream's ring as its target reports it.
func (i inNamespace) ringThere(change func(*api.RingState)) *api.RingState {
	state := ring("desk7/a", "t1")
	state.Uri = "nvme:/dev/desk7?ring=desk7/a"
	change(state)
	return state
}

func (i inNamespace) acquireOn(host string, isTakeover bool) (*api.Grant, error) {
	response, err := i.control.AcquireWriter(i.context(), &api.AcquireWriterRequest{
		Stream: "desk7/a", Holder: &api.Holder{Host: host, Pid: 1}, NoTakeover: !isTakeover,
	})
	return response.GetGrant(), err
}

// startNamespaced has the stream, and its ring there.
func startNamespaced(t *testing.T) inNamespace {
	t.Helper()
	one := declareNamespace(t)
	one.reportExport()
	one.reportDrain("d1")
	one.reportConnected("trading1", "/dev/nvme1n1")
	one.reportConnected("trading2", "/dev/nvme1n1")
	one.until("the stream is created", func() bool {
		_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: one.spec})
		return err == nil
	})
	one.until("it is placed", func() bool { return one.view().Rings["desk7/a"] != nil })
	one.reportExport(one.ringThere(func(*api.RingState) {}))
	one.until("it is bound", func() bool { return len(one.view().Rings["desk7/a"].GetRingUuid()) > 0 })
	return one
}

// A stream that nobody could write, or nobody drain, is refused before anything is made, with what is missing; a file
// may declare it before its namespace is connected.
func TestNamespaced_StreamThatNobodyReachesIsRefused(t *testing.T) {
	t.Parallel()
	one := declareNamespace(t)
	refused := func(want string) {
		t.Helper()
		one.until("it is refused: "+want, func() bool {
			_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: one.spec, DryRun: true})
			return status.Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), want)
		})
		if _, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: one.spec}); err == nil ||
			one.view().Streams["desk7/a"] != nil {
			t.Fatalf("%s: created, %v", want, err)
		}
	}
	refused("no target is registered")
	one.reportExport()
	refused("no host agent on host trading2 reports")
	one.reportConnected("trading2", "")
	refused("host trading2 has not connected it")
	one.reportConnected("trading1", "/dev/nvme1n1")
	refused("no drain for stream desk7/a is registered there")
	far := proto.Clone(one.spec).(*api.StreamSpec)
	far.WriterHost = "trading3"
	_, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{Streams: []*api.StreamSpec{far}}})
	if err == nil || !strings.Contains(err.Error(), "does not admit host trading3") {
		t.Errorf("declared for a writer that is not admitted: %v", err)
	}
	fabric := &api.Fabric{Streams: []*api.StreamSpec{one.spec}}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatalf("declared before its drain is there: %v", err)
	}
	if one.view().Rings["desk7/a"] != nil {
		t.Error("placed without a drain")
	}
	one.reportDrain("d1")
	one.until("it is placed", func() bool { return one.view().Rings["desk7/a"] != nil })
	if got := one.view().Rings["desk7/a"].Subsystem; got != "nqn.2026-01.com.example:desk7" {
		t.Errorf("placed in subsystem %q", got)
	}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{
		Targets: []*api.TargetSpec{{Host: "alpha"}},
	}}); err == nil || !strings.Contains(err.Error(), "the ring of stream desk7/a lies in it") {
		t.Errorf("its namespace is declared away: %v", err)
	}
	if _, err := one.fabric().DeleteTarget(one.context(), &api.DeleteTargetRequest{Host: "alpha"}); status.Code(err) !=
		codes.FailedPrecondition {
		t.Errorf("its target is deleted: %v", err)
	}
}

// Of two streams the second gets its ring when the target has said what is left beside the first.
func TestNamespaced_SecondStreamIsPlacedBesideTheFirst(t *testing.T) {
	t.Parallel()
	one := startNamespaced(t)
	one.reportExport()
	one.until("it is seen", func() bool { return len(one.view().Targets["t1"].GetRings()) == 0 })
	second, third := proto.Clone(one.spec).(*api.StreamSpec), proto.Clone(one.spec).(*api.StreamSpec)
	second.Name, third.Name = "desk7/b", "desk7/c"
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{
		Streams: []*api.StreamSpec{second, third},
	}}); err != nil {
		t.Fatal(err)
	}
	one.until("one is placed", func() bool { return len(one.view().Rings) == 2 })
	one.reportExport(one.ringThere(func(*api.RingState) {}))
	one.until("the other one is placed", func() bool { return len(one.view().Rings) == 3 })
}

// A writer gets the namespace's name, when its target has confirmed that no other host's writer is left; one on a host
// that does not connect it gets nothing, and nothing is fenced for it.
func TestNamespaced_WriterOfAConnectedHost(t *testing.T) {
	t.Parallel()
	one := startNamespaced(t)
	for host, want := range map[string]string{"alpha": "does not admit host", "trading3": "does not admit host"} {
		if _, err := one.acquireOn(host, true); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("on host %s: %v", host, err)
		}
	}
	one.reportConnected("trading2", "")
	one.until("it is seen", func() bool { return one.view().HostReport("trading2").Namespaces[0].Device == "" })
	if _, err := one.acquireOn("trading2", true); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "host trading2 has not connected it") {
		t.Errorf("not connected: %v", err)
	}
	if one.view().Epochs["desk7/a"] != 0 {
		t.Fatal("an epoch was granted to nobody")
	}
	answered := make(chan *api.Grant, 1)
	go func() {
		grant, err := one.acquireOn("trading1", false)
		if err != nil {
			t.Error(err)
		}
		answered <- grant
	}()
	one.until("it is admitted", func() bool { return len(one.view().Admissions["desk7/a"].GetGrants()) == 1 })
	if got := one.view().Admissions["desk7/a"].Grants[0].HostNqn; got != tradingNQN {
		t.Errorf("admitted is host %q", got)
	}
	one.reportExport(one.ringThere(func(state *api.RingState) { state.EpochMin = 1 }))
	select {
	case grant := <-answered:
		t.Fatalf("answered %v by the fence word alone", grant)
	default:
	}
	one.reportExport(one.ringThere(func(state *api.RingState) { state.EpochFenced, state.EpochAdmitted = 1, 1 }))
	grant := one.granted(answered)
	if member := grant.Members[0]; member.Uri != "nvme:nqn.2026-01.com.example:desk7/1?ring=desk7/a" ||
		len(member.Token) > 0 {
		t.Errorf("granted %v", grant)
	}
}

// A writer that another host did not close is taken over by request alone; on its own host the ring's lock decides.
func TestNamespaced_TakenOverByRequestAlone(t *testing.T) {
	t.Parallel()
	one := startNamespaced(t)
	held := func(state *api.RingState) {
		state.WriterHeld, state.WriterEpoch, state.WriterHost = true, 1, "trading1"
		state.EpochFenced, state.EpochAdmitted = 2, 2
	}
	one.reportExport(one.ringThere(held))
	one.until("it is held", func() bool { return one.status("desk7/a").Rings[0].WriterHeld })
	if _, err := one.acquireOn("trading2", false); !api.IsWriterLiving(err) {
		t.Errorf("without a takeover: %v", err)
	}
	if grant, err := one.acquireOn("trading1", false); err != nil || grant.Epoch != 2 {
		t.Errorf("on its own host: %v, %v", grant, err)
	}
}

// A reader on a connected host opens the namespace, and one on the target's host the device.
func TestNamespaced_Readers(t *testing.T) {
	t.Parallel()
	one := startNamespaced(t)
	for host, want := range map[string]string{
		"trading1": "nvme:nqn.2026-01.com.example:desk7/1?ring=desk7/a", "alpha": "nvme:/dev/desk7?ring=desk7/a",
		"trading3": "",
	} {
		response, err := one.control.AcquireReader(one.context(), &api.AcquireReaderRequest{
			Stream: "desk7/a", Holder: &api.Holder{Host: host},
		})
		got := ""
		if members := response.GetGrant().GetMembers(); len(members) == 1 && len(members[0].Token) == 0 {
			got = members[0].Uri
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("on host %s: %v, %v", host, response, err)
		}
	}
}
