package service

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// A stream whose ring could only lie where its writer does not reach it is refused when it is created or declared, with
// the reason, and does not become one that stays in error.
func TestCreateStream_RegionOfItsHostAlone(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	region := &api.Region{Uri: "nvme:/dev/nvme2n1", Level: api.Level_LEVEL_PERSISTENT}
	one.tellTarget(&api.ReportTargetRequest{State: &api.TargetState{Agent: &api.Agent{
		Id: "t1", Host: "alpha",
		Regions: []*api.Region{region},
	}}})
	one.until("it is alive", func() bool { return one.view().LiveTargets["t1"] != nil })
	const want = "region nvme:/dev/nvme2n1, which serves host alpha alone"
	far := &api.StreamSpec{Name: "desk7/orders", WriterHost: "desk7"}
	for _, isDryRun := range []bool{true, false} {
		_, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: far, DryRun: isDryRun})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) {
			t.Errorf("created, dry run %v: %v", isDryRun, err)
		}
	}
	if _, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{Streams: []*api.StreamSpec{far}}}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("declared: %v", err)
	}
	if one.view().Streams["desk7/orders"] != nil {
		t.Error("the stream is there")
	}
	near := &api.StreamSpec{Name: "desk7/near", WriterHost: "alpha"}
	if _, err := one.control.CreateStream(one.context(), &api.CreateStreamRequest{Spec: near}); err != nil {
		t.Error(err)
	}
	one.until("it is placed", func() bool { return one.view().Rings["desk7/near"] != nil })
}
