package service

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
)

// startLimited starts two control planes on one etcd, of which both know a target with space for so many rings of a
// MiB.
func startLimited(t *testing.T, rings uint64) []*instance {
	t.Helper()
	etcd := etcdtest.Open(t, t.TempDir())
	both := []*instance{startInstance(t, etcd, false), startInstance(t, etcd, false)}
	fabric := &api.Fabric{Targets: []*api.TargetSpec{{Host: "alpha", CapacityBytes: rings << 20}}}
	if _, err := both[0].apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	for _, one := range both {
		one.until("the capacity is known", func() bool {
			got, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
			return err == nil && len(got.Fabric.Targets) == 1
		})
	}
	return both
}

// Many ask at once, of two control planes: as many streams are made as the target has space for, and all others are
// told why not. Each control plane alone judges by what it has seen: without the guard in the transaction that creates
// a stream, two that are made at the same moment take the same space.
func TestCreateStream_RoomHoldsAgainstManyAtOnce(t *testing.T) {
	t.Parallel()
	const space, asked = 5, 24
	both := startLimited(t, space)
	var made atomic.Int32
	var asking sync.WaitGroup
	for i := range asked {
		one, ctx := both[i%2], both[i%2].context()
		asking.Go(func() {
			_, err := one.control.CreateStream(ctx,
				&api.CreateStreamRequest{Spec: &api.StreamSpec{
					Name:          fmt.Sprintf("desk%d/x", i),
					RingSizeBytes: 1 << 20,
				}})
			switch {
			case err == nil:
				made.Add(1)
			case status.Code(err) != codes.ResourceExhausted ||
				!strings.Contains(err.Error(), "has 0 bytes left of its capacity of 5242880"):
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	asking.Wait()
	if made.Load() != space {
		t.Errorf("%d streams were made, there is space for %d", made.Load(), space)
	}
}

// A control plane judges by what it has seen, and the other one was faster: what it writes then does not hold, for one
// stream and for a batch of them.
func TestCreateStream_RoomOfAViewThatIsOld(t *testing.T) {
	t.Parallel()
	both := startLimited(t, 1)
	spec := check.StreamWithDefaults(&api.StreamSpec{Name: "late", RingSizeBytes: 1 << 20})
	old, _ := both[1].server.mirror.Load()
	plan, err := fabric.NewPlan(old, &api.Fabric{Streams: []*api.StreamSpec{spec}}, nil)
	if isLimited, refusal := fabric.CheckSpace(old, spec); err != nil || refusal != nil || len(plan.Problems) > 0 ||
		!isLimited || !plan.IsLimited {
		t.Fatalf("there was space: %v, %v, %v", refusal, plan.Problems, err)
	}
	if _, err := both[0].control.CreateStream(both[0].context(),
		&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "first", RingSizeBytes: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	if stream, _, _, err := both[1].server.fabric.CreateStreamAt(both[1].context(), old, spec); !errors.Is(err,
		fabric.ErrUsedMeanwhile) {
		t.Errorf("created %v, %v", stream, err)
	}
	if _, err := both[1].server.fabric.ApplyPlan(both[1].context(), old,
		plan); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "has 0 bytes left of its capacity of 1048576") {
		t.Errorf("applied: %v", err)
	}
}

// Whole fabrics are applied through one control plane while streams are created through the other: what is there in the
// end has space, and all that have space are there.
func TestApplyFabric_RoomHoldsAgainstOthers(t *testing.T) {
	t.Parallel()
	const space, batches, ones = 3*etcd.BatchMax + 6, 3, 24
	both := startLimited(t, space)
	var made atomic.Int32
	var asking sync.WaitGroup
	fabric := new(api.Fabric)
	for i := range batches * etcd.BatchMax {
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{
			Name:          fmt.Sprintf("many/%d", i),
			RingSizeBytes: 1 << 20,
		})
	}
	asking.Go(func() {
		_, err := both[0].apply(&api.ApplyFabricRequest{Fabric: fabric})
		if code := status.Code(err); err != nil && code != codes.FailedPrecondition && code != codes.InvalidArgument {
			t.Errorf("apply: %v", err)
		}
	})
	for range 4 {
		ctx := both[1].context()
		asking.Go(func() {
			for made.Load() < ones {
				_, err := both[1].control.CreateStream(ctx,
					&api.CreateStreamRequest{Spec: &api.StreamSpec{
						Name:          fmt.Sprintf("one/%d", made.Add(1)),
						RingSizeBytes: 1 << 20,
					}})
				if code := status.Code(err); err != nil && code != codes.ResourceExhausted {
					t.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	asking.Wait()
	var there int
	both[0].until("both know the same", func() bool {
		got, err := both[0].control.GetFabric(both[0].context(), &api.GetFabricRequest{})
		other, failed := both[1].control.GetFabric(both[1].context(), &api.GetFabricRequest{})
		there = len(got.GetFabric().GetStreams())
		return err == nil && failed == nil && got.Revision == other.Revision
	})
	if there > space {
		t.Errorf("%d streams are there, there is space for %d", there, space)
	}
	if there < ones { // those that were created one by one, at least
		t.Errorf("only %d streams are there", there)
	}
}
