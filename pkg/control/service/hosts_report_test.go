package service

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// What hosts tell every few seconds is shown, and stands in etcd only where it moved; a way that drifts by little each
// time is written when all of that is much. Their clock may be another one.
func TestReportHost_FiguresStayOutOfEtcd(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	hosts := api.NewHostServiceClient(one.conn)
	writes := func() int64 {
		t.Helper()
		got, err := one.etcd.Client().Get(one.context(), etcd.KeyHosts+"desk7", clientv3.WithLimit(1))
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		return got.Kvs[0].Version
	}
	off := 3 * time.Hour
	for i, micros := range []int64{100, 110, 90, 124, 126, 126, 130} {
		measured := time.Now().Add(off)
		reported := &api.HostState{
			Host: "desk7", ReportTime: timestamppb.New(measured.Add(time.Second)),
			Paths: []*api.NetworkPath{{
				Target: "t1", Listener: "ofi:tcp://x:1", Count: 1,
				RttMin: durationpb.New(
					time.Duration(micros) * time.Microsecond,
				), MeasureTime: timestamppb.New(measured),
			}},
		}
		response, err := hosts.ReportHost(one.context(), &api.ReportHostRequest{State: reported})
		if err != nil || response.Interval.AsDuration() != state.HostInterval {
			t.Fatalf("got %v, %v", response, err)
		}
		want := int64(1)
		if micros >= 126 {
			want = 2
		}
		if got := writes(); got != want {
			t.Errorf("report %d of %d µs: %d writes, want %d", i, micros, got, want)
		}
		listed, err := one.fabric().ListHosts(one.context(), &api.ListHostsRequest{Host: "desk*"})
		if err != nil || len(listed.Hosts) != 1 ||
			listed.Hosts[0].Paths[0].RttMin.AsDuration() != time.Duration(micros)*time.Microsecond {
			t.Errorf("listed %v, %v, want what was told last", listed, err)
		}
		if age := time.Since(listed.Hosts[0].Paths[0].MeasureTime.AsTime()); age < time.Second ||
			age > reconcile.MeasuredMax {
			t.Errorf("measured %s ago by our clock", age)
		}
	}
	if _, err := hosts.ReportHost(one.context(),
		&api.ReportHostRequest{State: &api.HostState{Host: "no host"}}); err == nil {
		t.Error("a host that has no name was taken")
	}
}
