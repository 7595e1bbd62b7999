package service

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// Whoever does not keep up is shown by each control plane, once however often it says so, and is forgotten by itself.
// So many may say so of a stream and no more.
func TestReportConsumer_IsShownUntilItIsOld(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one, two := startInstance(t, cluster, false), startInstance(t, cluster, false)
	one.create("a")
	one.create("b")
	report := func(pid uint32, lost uint64) error {
		told := &api.SlowConsumer{
			Stream: "a", Route: "all", Holder: &api.Holder{Host: "beta", Pid: pid, Name: "desk"},
			LostRecords: lost,
		}
		answer, err := one.control.ReportConsumer(one.context(), &api.ReportConsumerRequest{Consumer: told})
		if err == nil && answer.Interval.AsDuration() != slowInterval {
			t.Errorf("say it again after %s", answer.Interval.AsDuration())
		}
		return err
	}
	for lost := range uint64(3) {
		if err := report(1, lost); err != nil {
			t.Fatal(err)
		}
	}
	two.until("the other control plane shows it as it is now", func() bool {
		shown := two.status("a").SlowConsumers
		return len(shown) == 1 && shown[0].LostRecords == 2 && shown[0].Holder.Pid == 1 && shown[0].Route == "all"
	})
	if shown := one.status("b").SlowConsumers; len(shown) != 0 {
		t.Errorf("of another stream: %v", shown)
	}
	kept, err := cluster.Client().Get(t.Context(), etcd.KeySlow, clientv3.WithPrefix())
	if err != nil || len(kept.Kvs) != 1 {
		t.Fatal(kept, err)
	}
	lease, err := cluster.Client().TimeToLive(t.Context(), clientv3.LeaseID(kept.Kvs[0].Lease))
	if err != nil || lease.TTL <= 0 || time.Duration(lease.TTL)*time.Second > slowKept {
		t.Errorf("kept for %v s (%v), expected at most %s", lease, err, slowKept)
	}
	for pid := range uint32(slowMax - 1) {
		if err := report(2+pid, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := report(100, 0); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if err := report(1, 7); err != nil {
		t.Errorf("one of those that are known: %v", err)
	}
	if _, err := cluster.Client().Revoke(t.Context(), clientv3.LeaseID(kept.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if shown := one.status("a").SlowConsumers; len(shown) != slowMax || shown[0].LostRecords != 7 {
		t.Errorf("its last report counts, and not the lease of an earlier one: %v", shown)
	}
}

// A stall is told while it lasts: by the target of a writer beside it, and by the host agent of one on another host,
// for the epoch that writes now, and as long as the agent reports.
func TestStatus_StalledWriter(t *testing.T) {
	t.Parallel()
	one := startFar(t)
	one.reportDrain("d1")
	answered := one.acquireFar("ofi")
	one.untilAdmission(1)
	one.confirm(1, 1)
	one.granted(answered)
	now, _ := one.server.mirror.Load()
	local := remoteRing("a", "t1")
	local.WriterHeld, local.Counters = true, &api.WriterCounters{StalledFor: durationpb.New(2 * time.Second)}
	for name, test := range map[string]struct {
		rings  []*api.RingState
		host   *api.HostState
		isTold bool
	}{
		"nobody tells of it": {},
		"its target":         {rings: []*api.RingState{local}, isTold: true},
		"its host agent":     {host: stalledHost(1, 0), isTold: true},
		"told this instance": {host: stalledHost(1, 0), isTold: true},
		"of another epoch":   {host: stalledHost(2, 0)},
		"agent that is gone": {host: stalledHost(1, time.Minute)},
	} {
		next := now.Clone()
		next.Hosts = map[string]*api.HostState{"beta": test.host}
		if strings.HasPrefix(name, "told") {
			next.Hosts, next.HostsTold = map[string]*api.HostState{"beta": stalledHost(1, time.Minute)}, next.Hosts
		}
		told := &api.StreamStatus{
			Stream: now.Streams["a"], LastGrant: now.Grants["a"], Rings: test.rings, TargetsAlive: []string{"t1"},
			Condition: api.Condition_CONDITION_OK,
		}
		next.WarnOfWriter(told, time.Now())
		isTold := told.Condition == api.Condition_CONDITION_WARN &&
			strings.Contains(told.Reason, "no acknowledgement has come to its writer for 2")
		if isTold != test.isTold || test.isTold != (told.StalledFor.AsDuration() >= 2*time.Second) {
			t.Errorf("%s: %s %q, stalled for %s", name, told.Condition, told.Reason, told.StalledFor.AsDuration())
		}
		if isKnown := test.isTold && test.host != nil; isKnown != (told.Writer.GetRecords() == 7) {
			t.Errorf("%s: the writer's figures are %v", name, told.Writer)
		}
	}
}

func stalledHost(epoch uint32, ago time.Duration) *api.HostState {
	return &api.HostState{Host: "beta", ReportTime: timestamppb.New(time.Now().Add(-ago)), Writers: []*api.HostWriter{
		{
			Stream: "a", Epoch: epoch, StalledFor: durationpb.New(2 * time.Second),
			Counters: &api.WriterCounters{Records: 7},
		},
	}}
}

// Figures of a host's writers are shown at once and reach etcd now and then.
func TestReportHost_WritersFigures(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	hosts := api.NewHostServiceClient(one.conn)
	for records := range uint64(3) {
		writer := &api.HostWriter{Stream: "s", Epoch: 1, Counters: &api.WriterCounters{Records: records}}
		state := &api.HostState{Host: "h", Writers: []*api.HostWriter{writer}}
		if _, err := hosts.ReportHost(one.context(), &api.ReportHostRequest{State: state}); err != nil {
			t.Fatal(err)
		}
		now, _ := one.server.mirror.Load()
		if told := now.HostReport("h").GetWriters(); len(told) != 1 || told[0].Counters.Records != records {
			t.Errorf("report %d: this instance shows %v", records, told)
		}
		if kept := now.Hosts["h"].GetWriters(); len(kept) != 1 || kept[0].Counters.Records != 0 {
			t.Errorf("report %d: in etcd is %v, expected what was told first", records, kept)
		}
	}
}

// What a host says of its writers is in etcd at once, and so is that it is over.
func TestReportHost_StallsAreStoredAtOnce(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	hosts := api.NewHostServiceClient(one.conn)
	for round, count := range []int{0, 1, 2, 0} {
		state := &api.HostState{Host: "h"}
		for i := range count {
			state.Writers = append(state.Writers, &api.HostWriter{
				Stream: fmt.Sprint("s", i), Epoch: 1,
				StalledFor: durationpb.New(time.Second),
			})
		}
		if _, err := hosts.ReportHost(one.context(), &api.ReportHostRequest{State: state}); err != nil {
			t.Fatal(err)
		}
		if now, _ := one.server.mirror.Load(); len(now.Hosts["h"].GetWriters()) != count {
			t.Errorf("round %d: %v, expected %d of them", round, now.Hosts["h"], count)
		}
	}
}
