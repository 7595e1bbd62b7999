package service

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// patient marks the calls of a test that are made again while the control plane is blind, as it may be for a moment on
// a slow disk. It has done nothing then.
type patient struct{}

func TestCreateStream_SameSpecIsTheSameStream(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	first, again := one.create("desk7/orders"), one.create("desk7/orders")
	if first.StreamId != again.StreamId || first.Salt != again.Salt || uint32(first.Salt) == 0 {
		t.Errorf("not idempotent: %v then %v", first, again)
	}
	if other := one.create("desk7/fills"); other.StreamId == first.StreamId || other.Salt == first.Salt {
		t.Errorf("id or salt used twice: %v", other)
	}
	_, err := one.control.CreateStream(one.context(),
		&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "desk7/orders", RingSizeBytes: 1 << 20}})
	if status.Code(err) != codes.AlreadyExists || !strings.Contains(err.Error(),
		"ring size is 67108864, asked for 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestCreateStream_ConcurrentCallsMakeOneStream(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	var group sync.WaitGroup
	made := make(chan *api.CreateStreamResponse, 40)
	for n := range 40 {
		group.Go(func() {
			response, err := one.control.CreateStream(one.context(),
				&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: fmt.Sprintf("s%d", n%10)}})
			if err != nil {
				t.Error(err)
				return
			}
			made <- response
		})
	}
	group.Wait()
	close(made)
	ids, newCount := map[uint32]string{}, 0
	for response := range made {
		name := response.Stream.Spec.Name
		if other, ok := ids[response.Stream.StreamId]; ok && other != name {
			t.Errorf("stream id %d given to %s and %s", response.Stream.StreamId, other, name)
		}
		ids[response.Stream.StreamId] = name
		if response.Created {
			newCount++
		}
	}
	if newCount != 10 || len(ids) != 10 {
		t.Errorf("%d new, %d ids, want 10", newCount, len(ids))
	}
}

func TestAcquireWriter_HandsOutAHigherEpochEachTime(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	seen := ring("a", "t1")
	seen.WriterEpoch, seen.WriterHeld = 6, true // opened by its URI alone, and alive
	one.reportTarget("t1", seen)
	var group sync.WaitGroup
	var mutex sync.Mutex
	epochs := map[uint32]bool{}
	for range 50 {
		group.Go(func() {
			grant, err := one.acquire("a")
			if err != nil {
				t.Error(err)
				return
			}
			mutex.Lock()
			defer mutex.Unlock()
			if epochs[grant.Epoch] || grant.Epoch <= 6 {
				t.Errorf("epoch %d given twice, or not above the ring's", grant.Epoch)
			}
			epochs[grant.Epoch] = true
		})
	}
	group.Wait()
	if got := one.status("a"); got.EpochGranted != 56 || got.LastGrant.Epoch != 56 {
		t.Errorf("granted %d, last grant %v", got.EpochGranted, got.LastGrant)
	}
}

func TestAcquireWriter_WithoutRing(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	if _, err := one.acquire("nobody"); status.Code(err) != codes.NotFound ||
		!strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("unknown stream: %v", err)
	}
	one.create("a")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := one.control.AcquireWriter(ctx, &api.AcquireWriterRequest{Stream: "a"}); err == nil {
		t.Error("granted without a ring")
	}
	one.reportTarget("t1", &api.RingState{Stream: "a", Target: "t1", Error: "foreign bytes: run this"})
	if _, err := one.acquire("a"); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "run this") {
		t.Errorf("ring in error: %v", err)
	}
	if got := one.status("a"); got.Condition != api.Condition_CONDITION_ERROR || got.EpochGranted != 0 {
		t.Errorf("got %v", got)
	}
}

func TestAcquireWriter_WaitsForARingThatIsBeingMade(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	got := make(chan error, 1)
	go func() {
		_, err := one.acquire("a")
		got <- err
	}()
	one.reportTarget("t1", ring("a", "t1"))
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

func TestWatchRings_TellsOnlyWhatIsWantedOfThatTarget(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	watch, err := one.target.WatchRings(one.context(), &api.WatchRingsRequest{Agent: &api.Agent{
		Id:   "t1",
		Host: "alpha",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || len(first.Rings) != 0 {
		t.Fatalf("got %v, %v", first, err)
	}
	stream := one.create("a")
	next, err := watch.Recv()
	if err != nil || len(next.Rings) != 1 || next.Rings[0].Target != "t1" || next.Rings[0].Stream.Salt != stream.Salt {
		t.Fatalf("got %v, %v", next, err)
	}
}

func TestDrain_DeadOneIsReplacedAndTheLivingKeepTheirs(t *testing.T) {
	etcd := etcdtest.Open(t, t.TempDir())
	one, mortal := startInstance(t, etcd, false), startMortal(t, etcd, false)
	one.create("a")
	one.reportTarget("t1", ring("a", "t1"))
	one.until("d1 has it", func() bool {
		if len(one.agents().DrainsAlive) == 0 {
			mortal.reportDrain("d1")
		}
		return one.status("a").Assignment.GetDrain() == "d1"
	})
	first := one.status("a").Assignment
	one.reportDrain("d2")
	// d1 says nothing more; its lease is what ends it. d2 and the target live on.
	one.until("d2 has it", func() bool { return one.status("a").Assignment.Drain == "d2" })
	if got := one.status("a"); got.Assignment.Generation != first.Generation+1 || !got.DrainAlive {
		t.Errorf("got %v", got)
	}
	one.reportDrain("d1")
	if got := one.status("a").Assignment.Drain; got != "d2" {
		t.Errorf("the returned drain took it back: %q", got)
	}
}

func TestRing_MissingOneIsAnErrorAndItsDrainIsLeftAlone(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	one.reportDrain("d1")
	one.reportTarget("t1", ring("a", "t1"))
	if _, err := one.acquire("a"); err != nil {
		t.Fatal(err)
	}
	one.until("d1 has it", func() bool { return one.status("a").Assignment.GetDrain() == "d1" })
	before := one.status("a")
	if string(before.RingSpecs[0].RingUuid) != string(ring("a", "t1").RingUuid) {
		t.Fatalf("granted before the stream was bound to its ring: %v", before)
	}
	other := ring("a", "t1")
	other.RingUuid = []byte("fedcba9876543210")
	for name, seen := range map[string]*api.RingState{
		"missing": {Stream: "a", Target: "t1", Uri: other.Uri, Error: "ring is missing"}, "is another ring": other,
	} {
		one.reportTarget("t1", seen)
		one.until(name, func() bool {
			got := one.status("a")
			return got.Condition == api.Condition_CONDITION_ERROR && strings.Contains(got.Reason, name)
		})
		if _, err := one.acquire("a"); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: granted, or refused without saying why: %v", name, err)
		}
	}
	if after := one.status("a").Assignment; after.Generation != before.Assignment.Generation {
		t.Errorf("drain was given another ring: %v, had %v", after, before.Assignment)
	}
}

func TestDrain_OfAnotherStoreIsNotGivenTheStream(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	report := func(id, store string) {
		one.reportDrainOf(&api.Agent{Id: id, Host: "alpha", StoreUuid: []byte(store), StoreDir: "/" + store})
	}
	one.create("a")
	report("d1", "first")
	one.reportTarget("t1", ring("a", "t1"))
	if _, err := one.acquire("a"); err != nil {
		t.Fatal(err)
	}
	one.until("d1 has it", func() bool { return one.status("a").Assignment.GetDrain() == "d1" })
	report("d2", "second")
	one.endLife(etcd.KeyLiveDrains + "d1")
	one.until("the store is named as gone", func() bool {
		got := one.status("a")
		return got.Condition == api.Condition_CONDITION_DRAIN_GONE && strings.Contains(got.Reason, "store /first")
	})
	report("d1", "second") // the same drain on another directory
	watch, err := one.drain.WatchAssignments(one.context(), &api.WatchAssignmentsRequest{
		Agent: &api.Agent{Id: "d1", Host: "alpha", StoreUuid: []byte("second"), StoreDir: "/second"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Recv(); err != nil || len(first.Assignments) != 0 {
		t.Errorf("given to a drain of another store: %v, %v", first, err)
	}
	report("d3", "first")
	one.until("a drain of the store has it", func() bool {
		got := one.status("a")
		return got.Assignment.Drain == "d3" && got.DrainAlive
	})
}

func TestAcquireWriter_EpochIsAboveTheOneTheCallerHasSeen(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	one.reportTarget("t1", ring("a", "t1"))
	for _, step := range []struct{ seen, want uint32 }{{0, 1}, {7, 8}, {3, 9}, {1<<32 - 1, epochSeenMax + 1}} {
		response, err := one.control.AcquireWriter(one.context(),
			&api.AcquireWriterRequest{Stream: "a", EpochSeen: step.seen})
		if err != nil || response.Grant.Epoch != step.want {
			t.Errorf("seen %d: got %v, %v, want epoch %d", step.seen, response.GetGrant(), err, step.want)
		}
	}
}

func TestTwoInstances_OneLeadsAndTheOtherFollowsItsDeath(t *testing.T) {
	etcd := etcdtest.Open(t, t.TempDir())
	first, second := startInstance(t, etcd, false), startInstance(t, etcd, false)
	first.reportTarget("t1")
	first.create("a")
	second.until("a is placed", func() bool {
		response, err := second.control.GetStream(second.context(), &api.GetStreamRequest{Name: "a"})
		return err == nil && len(response.Stream.RingSpecs) == 1
	})
	first.stop()
	second.create("b")
	second.until("b is placed by the other instance", func() bool {
		second.reportTarget("t1")
		return len(second.status("b").RingSpecs) == 1
	})
}

// An agent registers by its watch and by its report at the same moment. Were both to make a lease, its key could end
// up under the one that is not renewed, and a living agent would be taken for dead for good.
func TestRegister_ConcurrentCallsLeaveOneLifeThatIsRenewed(t *testing.T) {
	one := startMortal(t, etcdtest.Open(t, t.TempDir()), true)
	agent := &api.Agent{Id: "d1", Host: "alpha"}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if err := one.sendDrainReport(agent); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	one.reportDrain("d1")
	renewed, before := time.Duration(0), time.Now()
	one.until("reports a lease and more have been in time", func() bool {
		now := time.Now()
		if err := one.sendDrainReport(agent); err != nil {
			t.Fatal(err)
		}
		isAlive := len(one.agents().DrainsAlive) == 1
		if time.Since(before) > mortalLease { // the machine was slow: it may have ended
			one.reportDrain("d1")
			renewed, before = 0, now
			return false
		}
		if !isAlive {
			t.Fatal("the lease ran out although the agent reports")
		}
		renewed, before = renewed+now.Sub(before), now
		return renewed > 2*mortalLease
	})
}

func TestRun_HealthAndReflectionAreServed(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.until("serving", func() bool {
		response, err := healthpb.NewHealthClient(one.conn).Check(one.context(),
			&healthpb.HealthCheckRequest{Service: "farlog.v1.ControlService"})
		return err == nil && response.Status == healthpb.HealthCheckResponse_SERVING
	})
	talk, err := reflectionpb.NewServerReflectionClient(one.conn).ServerReflectionInfo(one.context())
	if err != nil {
		t.Fatal(err)
	}
	request := &reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}
	if err := talk.Send(request); err != nil {
		t.Fatal(err)
	}
	answer, err := talk.Recv()
	if err != nil || !strings.Contains(answer.String(), "farlog.v1.DrainService") {
		t.Fatalf("got %v, %v", answer, err)
	}
}

func TestRegister_BadAgentIsRefused(t *testing.T) {
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	for _, id := range []string{"", "a/b", "a\nb", strings.Repeat("x", 200)} {
		state := &api.TargetState{Agent: &api.Agent{Id: id}}
		if _, err := one.target.ReportTarget(one.context(),
			&api.ReportTargetRequest{State: state}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: got %v", id, err)
		}
	}
}
