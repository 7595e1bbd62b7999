package service

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/state"
)

func (i *instance) tellTarget(request *api.ReportTargetRequest) *api.ReportTargetResponse {
	i.t.Helper()
	answer, err := i.target.ReportTarget(i.context(), request)
	if err != nil {
		i.t.Fatal(err)
	}
	return answer
}

// isKnown asks whether what a report said is still what the control plane goes by.
func (i *instance) isKnown(agent *api.Agent, report uint64) bool {
	return !i.tellTarget(&api.ReportTargetRequest{Unchanged: &api.Unchanged{
		Agent:  agent,
		Report: report,
	}}).StateRequested
}

// An agent that says that nothing has changed is believed while what it told last is what is known of it, and lives.
// Whatever else has come in that place meanwhile, by another process of its name, by another instance, from a backup or
// with a restart, is wanted again.
func TestUnchanged_IsOfWhatIsKnown(t *testing.T) {
	cluster := etcdtest.Open(t, t.TempDir())
	one := startInstanceWith(t, cluster, Config{FiguresRate: 1, Lease: stepTimeout})
	agent := &api.Agent{Id: "t1", Host: "alpha"}
	state := func(lsn uint64) *api.ReportTargetRequest {
		return &api.ReportTargetRequest{State: &api.TargetState{
			Agent: proto.Clone(agent).(*api.Agent),
			Rings: []*api.RingState{{Stream: "a", WriterHeld: true, AppendedLsn: lsn, HeadLsn: 1}},
		}}
	}
	first := one.tellTarget(state(1))
	if first.Report == 0 || first.FiguresEach != 1 || !one.isKnown(agent, first.Report) ||
		!one.isKnown(agent, first.Report) {
		t.Fatalf("a first report: %v", first)
	}
	second := one.tellTarget(state(2)) // figures
	if one.isKnown(agent, first.Report) || !one.isKnown(agent, second.Report) || one.isKnown(agent, 0) ||
		one.isKnown(agent, second.Report+1) {
		t.Error("not the last report alone is known")
	}
	if one.isKnown(&api.Agent{Id: "t2", Host: "alpha"}, second.Report) ||
		one.isKnown(&api.Agent{Id: "t3", Host: "alpha"}, 0) {
		t.Error("another agent's report, or none, is known")
	}
	if _, err := one.target.ReportTarget(one.context(),
		&api.ReportTargetRequest{Unchanged: new(api.Unchanged)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nobody is unchanged: %v", err)
	}

	former, err := etcd.EncodeBytes(state(1).State)
	if err != nil {
		t.Fatal(err)
	}
	// as of a backup, or by another instance
	put, err := cluster.Client().Put(one.context(), etcd.KeyTargets+"t1", former)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.server.mirror.WaitRevision(one.context(), put.Header.Revision); err != nil ||
		one.isKnown(agent, second.Report) {
		t.Errorf("what was put in the place of a report is taken for it: %v", err)
	}
	third := one.tellTarget(state(3))
	if !one.isKnown(agent, third.Report) {
		t.Error("a report behind that is not known")
	}

	one.endLife(etcd.KeyLiveTargets + "t1")
	one.until("it is gone", func() bool { return !slices.Contains(one.agents().TargetsAlive, "t1") })
	if isKnown := one.isKnown(agent, third.Report); !isKnown {
		t.Error("a report is forgotten with a lease")
	}
	one.until("it lives again", func() bool { return slices.Contains(one.agents().TargetsAlive, "t1") })

	one.stop()
	one = startInstanceWith(t, cluster, Config{FiguresRate: 1, Lease: stepTimeout})
	if one.isKnown(agent, third.Report) {
		t.Error("a report to another instance is known")
	}
}

// What is decoded a second has a bound: few rings tell their figures with each report, many with each fifth.
func TestUnchanged_ManyRingsTellFiguresSeldom(t *testing.T) {
	server := &Server{config: Config{FiguresRate: 10}}
	for count, want := range map[int]uint32{0: 1, 1: 1, 10: 1, 11: 2, 25: 3, 41: 5, 1000: 5} {
		v := state.NewView()
		for i := range count {
			v.Rings[fmt.Sprint(i)] = new(api.RingSpec)
		}
		if each := server.figuresEach(v); each != want {
			t.Errorf("%d rings: figures with each %d. report, want %d", count, each, want)
		}
	}
}
