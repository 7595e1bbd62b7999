package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/report"
)

// largeTarget is a report of so many rings, each as large as they are in practice.
func largeTarget(rings int) *api.TargetState {
	state := &api.TargetState{Agent: &api.Agent{Id: "t1", Host: "storage1"}}
	for i := range rings {
		name := fmt.Sprintf("desk%02d/orders-%05d", i%40, i)
		state.Rings = append(state.Rings, &api.RingState{
			Stream: name, Target: "t1", Uri: "mem:/dev/dax0.0?ring=" + name,
			RingUuid:   fmt.Appendf(nil, "%-16.16s", name),
			Contract:   &api.Contract{Kind: "devdax", FlushMethod: "clwb", Probe: fmt.Sprintf("%0400d", 0), Level: 3},
			RemoteUris: []string{"verbs://storage1.ld4.example.com:7471/" + name}, AppendedLsn: 4096, DurableLsn: 4096,
		})
	}
	return state
}

func (i *instance) countUnder(prefix string, since int64) (count int) {
	i.t.Helper()
	got, err := i.etcd.Client().Get(i.context(), prefix, clientv3.WithPrefix(), clientv3.WithMinModRev(since),
		clientv3.WithKeysOnly())
	if err != nil {
		i.t.Fatal(err)
	}
	return len(got.Kvs)
}

// A report may be many times larger than what etcd takes as one value. Of the next one only what has changed is
// written, and another control plane, which reads all there is, sees the same.
func TestReport_LargerThanOneValue(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, cluster, false)
	const rings, streams = 4000, 25000
	target, drain := largeTarget(rings), &api.DrainState{Agent: &api.Agent{Id: "d1", Host: "central1"}}
	for i := range streams {
		name := fmt.Sprintf("desk%02d/orders-%05d", i%40, i)
		drain.Progress = append(drain.Progress, &api.DrainProgress{
			Stream: name, RingUuid: fmt.Appendf(nil, "%-16.16s", name), StoredLsn: 1 << 40, HeadLsn: 1 << 40,
			Records: 1 << 32, Bytes: 1 << 40,
		})
	}
	if least := min(proto.Size(target), proto.Size(drain)); least < 1600<<10 {
		t.Fatalf("the reports have %d bytes: expected more than etcd takes", least)
	}
	if _, err := one.drain.ReportDrain(one.context(), &api.ReportDrainRequest{State: drain}); err != nil {
		t.Fatal(err)
	}
	one.tellTarget(&api.ReportTargetRequest{State: target})
	check := func(i *instance, want int) {
		t.Helper()
		now := i.view()
		if len(now.Targets["t1"].GetRings()) != want || len(now.Drains["d1"].GetProgress()) != streams ||
			now.LiveTargets["t1"] == nil {
			t.Errorf("%d rings and %d streams are known, alive %v: expected %d and %d",
				len(now.Targets["t1"].GetRings()),
				len(now.Drains["d1"].GetProgress()), now.LiveTargets["t1"], want, streams)
		}
	}
	check(one, rings)
	next := one.view().Revision + 1
	target.Rings[7].EpochFenced = 3
	one.tellTarget(&api.ReportTargetRequest{State: target})
	if count := one.countUnder(etcd.KeyTargetRings, next); count != 1 {
		t.Errorf("one ring of a report has changed, %d are written", count)
	}
	target.Rings = slices.Delete(target.Rings, 9, 11)
	one.tellTarget(&api.ReportTargetRequest{State: target})
	if count := one.countUnder(etcd.KeyTargetRings, 0); count != rings-2 {
		t.Errorf("%d rings are kept, %d are reported", count, rings-2)
	}
	check(one, rings-2)
	other := startInstance(t, cluster, false)
	check(other, rings-2)
	if !slices.ContainsFunc(other.view().Targets["t1"].Rings,
		func(ring *api.RingState) bool { return ring.EpochFenced == 3 }) {
		t.Error("another control plane does not see what has changed")
	}
}

// What an earlier control plane has stored, or stores still beside this one, is one value: that is the report then.
func TestReport_OfAnEarlierControlPlane(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	whole := func(fenced uint32, rings int) (int64, *api.TargetState) {
		t.Helper()
		state := largeTarget(rings)
		slices.Reverse(state.Rings)
		state.Rings[0].EpochFenced = fenced
		value, err := etcd.EncodeBytes(state)
		if err != nil {
			t.Fatal(err)
		}
		put, err := cluster.Client().Put(t.Context(), etcd.KeyTargets+"t1", value)
		if err != nil {
			t.Fatal(err)
		}
		return put.Header.Revision, state
	}
	whole(1, 3)
	one := startInstance(t, cluster, false)
	fences := func() (list []uint32) {
		for _, ring := range one.view().Targets["t1"].GetRings() {
			list = append(list, ring.EpochFenced)
		}
		return list
	}
	check := func(when string, want ...uint32) {
		t.Helper()
		if got := fences(); !slices.Equal(got, want) {
			t.Errorf("%s: fences %v, expected %v", when, got, want)
		}
	}
	check("stored before the upgrade", 0, 0, 1)
	state := largeTarget(3)
	state.Rings[1].EpochFenced = 2
	one.tellTarget(&api.ReportTargetRequest{State: state})
	check("reported after it", 0, 2, 0)
	if count := one.countUnder(etcd.KeyTargetRings, 0); count != 3 {
		t.Errorf("%d rings are stored", count)
	}
	revision, _ := whole(5, 2)
	if err := one.server.mirror.WaitRevision(one.context(), revision); err != nil {
		t.Fatal(err)
	}
	check("stored by an earlier one beside it", 0, 5)
	one.tellTarget(&api.ReportTargetRequest{State: state})
	check("and reported again", 0, 2, 0)
	again := startInstance(t, cluster, false)
	if got := again.view().Targets["t1"]; len(got.GetRings()) != 3 || got.Rings[1].EpochFenced != 2 {
		t.Errorf("read again: %v", got)
	}
}

// A target may report two rings of one stream: one that is wanted, and what is left of one elsewhere.
func TestReport_TwoRingsOfAStream(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	wanted, left := ring("a", "t1"), ring("a", "t1")
	left.Uri, left.Error = "mem:/elsewhere", "left behind"
	one.reportTarget("t1", wanted, left)
	next := one.view().Revision + 1
	one.reportTarget("t1", wanted, left)
	if got := one.view().Targets["t1"].Rings; len(got) != 2 || got[0].Error != "" ||
		one.countUnder(etcd.KeyTargetRings, next) != 0 {
		t.Errorf("got %v", got)
	}
}

// fullEtcd takes nothing while it is full.
type fullEtcd struct {
	clientv3.KV
	isFull atomic.Bool
}

func (f *fullEtcd) Txn(ctx context.Context) clientv3.Txn {
	if !f.isFull.Load() {
		return f.KV.Txn(ctx)
	}
	return fullTxn{f.KV.Txn(ctx)}
}

type fullTxn struct{ clientv3.Txn }

var errFull = errors.New("etcdserver: mvcc: database space exceeded")

func (x fullTxn) Then(...clientv3.Op) clientv3.Txn       { return x }
func (x fullTxn) Commit() (*clientv3.TxnResponse, error) { return nil, errFull }

// An agent whose report cannot be stored is not alive with what it said before, and the control plane counts it.
func TestReport_ThatCannotBeStored(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	client, full := clientv3.NewCtxClient(context.Background()), &fullEtcd{KV: etcd.Client().KV}
	client.KV = full
	full.isFull.Store(true)
	one.server.reports = report.NewKeeper(client, one.server.mirror, true)
	request := &api.ReportTargetRequest{State: largeTarget(1)}
	if _, err := one.target.ReportTarget(one.context(), request); err == nil {
		t.Error("a report that cannot be stored is answered")
	}
	if count := one.server.Instance().ReportsUnstored; count != 1 || one.view().LiveTargets["t1"] != nil {
		t.Errorf("%d reports are told of that could not be stored, alive %v", count, one.view().LiveTargets["t1"])
	}
	status := &api.StreamStatus{RingSpecs: []*api.RingSpec{{Target: "t1"}}}
	if why := one.view().WithUnstored(status); !strings.Contains(why, errFull.Error()) {
		t.Errorf("the status says %q", why)
	}
	full.isFull.Store(false)
	one.tellTarget(request)
	one.until("it is alive", func() bool { return one.view().LiveTargets["t1"] != nil })
	if count := one.server.Instance().ReportsUnstored; count != 0 || one.view().WithUnstored(status) != "" {
		t.Errorf("%d reports are told of that could not be stored", count)
	}
}
