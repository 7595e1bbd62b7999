package service

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// shown is the ring of a stream of that id with records in it.
func shown(stream *api.Stream, change func(*api.RingState)) *api.RingState {
	state := ring(stream.Spec.Name, "t1")
	state.StreamId = stream.StreamId
	change(state)
	return state
}

func (i *instance) delete(name string) error {
	_, err := i.control.DeleteStream(i.context(), &api.DeleteStreamRequest{Name: name})
	return err
}

// Each reason says what it counts and what helps, and then nothing has changed.
func TestDeleteStream_Refusals(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("desk7/orders")
	one.reportTarget("t1")
	one.until("it is placed", func() bool { return len(one.status("desk7/orders").RingSpecs) > 0 })
	for _, tc := range []struct {
		name, want string
		change     func(*api.RingState)
	}{
		{
			"writer", "a writer has its ring (trading1/77, epoch 3)",
			func(r *api.RingState) { r.WriterHeld, r.WriterId, r.WriterEpoch = true, "trading1/77", 3 },
		},
		{
			"records", "12 records (4096 bytes) of its ring are not stored yet: farlog status desk7/orders",
			func(r *api.RingState) { r.LagRecords, r.LagBytes, r.AppendedLsn = 12, 4096, 4096 },
		},
		{
			"error", "target t1: disk on fire; if it is lost for good",
			func(r *api.RingState) { r.Error = "disk on fire" },
		},
		{
			"error of one that was bound", "target t1: disk on fire; if it is lost for good",
			func(r *api.RingState) { r.Error, r.RingUuid = "disk on fire", nil },
		},
	} {
		one.reportTarget("t1", shown(stream, tc.change))
		for _, isDryRun := range []bool{true, false} {
			_, err := one.control.DeleteStream(one.context(),
				&api.DeleteStreamRequest{Name: "desk7/orders", DryRun: isDryRun})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%s, dry %v: got %v, want %q", tc.name, isDryRun, err, tc.want)
			}
		}
	}
	if got := one.status("desk7/orders"); got.Deletion != nil || got.EpochGranted != 0 {
		t.Errorf("changed: %v", got)
	}
	if err := one.delete("farlog/audit"); status.Code(err) != codes.NotFound {
		t.Errorf("got %v", err)
	}
}

// What a target could not make holds nothing: to end it needs no word of a loss.
func TestDeleteStream_RingThatWasNeverMade(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("desk7/orders")
	one.reportTarget("t1", shown(stream, func(r *api.RingState) {
		r.Error, r.RingUuid, r.StreamId = "no space", nil, 0
	}))
	one.until("it is placed and not made", func() bool {
		return strings.Contains(one.status("desk7/orders").Reason, "no space")
	})
	if err := one.delete("desk7/orders"); err != nil {
		t.Fatal(err)
	}
	one.reportTarget("t1", shown(stream, func(r *api.RingState) {
		r.RingUuid, r.Closed, r.Removed = nil, true, true
	}))
	one.until("it is gone", func() bool {
		_, err := one.control.GetStream(one.context(), &api.GetStreamRequest{Name: "desk7/orders"})
		return status.Code(err) == codes.NotFound
	})
}

// Whoever was told the last revision learns of what went and of what came under its name. Between any two steps the
// control plane is another one.
func TestDeleteStream_GoesOnInAnotherControlPlane(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var cluster *etcd.Cluster
	start := func() *instance {
		cluster = etcdtest.Open(t, dir)
		return startInstance(t, cluster, true)
	}
	one := start()
	again := func() {
		one.stop()
		if err := cluster.Close(); err != nil {
			t.Fatal(err)
		}
		one = start()
	}
	stream := one.create("desk7/orders")
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.reportDrain("d1")
	one.until("it is drained", func() bool { return one.status("desk7/orders").Assignment != nil })
	if _, err := one.acquire("desk7/orders"); err != nil {
		t.Fatal(err)
	}
	// as if it had been granted before, and segments of it had been removed
	for _, prefix := range []string{etcd.KeyPastEpochs, etcd.KeyPastBases} {
		if _, err := cluster.Client().Put(one.context(), prefix+"desk7/orders", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.delete("desk7/orders"); err != nil {
		t.Fatal(err)
	}
	again()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.WriterHeld, r.WriterEpoch = true, 1 }))
	one.reportDrain("d1")
	if got := one.status("desk7/orders"); got.Condition != api.Condition_CONDITION_DELETING ||
		got.Deletion.EpochMin != 2 {
		t.Errorf("got %v", got)
	}
	if _, err := one.acquire("desk7/orders"); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "being deleted") {
		t.Errorf("granted: %v", err)
	}
	request := &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "desk7/orders"}}
	if _, err := one.control.CreateStream(one.context(), request); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("created: %v", err)
	}
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.Closed, r.EpochMin = true, 2 }))
	one.until("nobody drains it", func() bool { return one.status("desk7/orders").Assignment == nil })
	again()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) {
		r.RingUuid, r.Closed, r.Removed = nil, true, true
	}))
	one.until("it is gone", func() bool {
		_, err := one.control.GetStream(one.context(), &api.GetStreamRequest{Name: "desk7/orders"})
		return status.Code(err) == codes.NotFound
	})
	if _, err := one.acquire("desk7/orders"); status.Code(err) != codes.NotFound {
		t.Errorf("granted: %v", err)
	}
	if epochs, bases := one.countUnder(etcd.KeyPastEpochs, 0), one.countUnder(etcd.KeyPastBases, 0); epochs+bases > 0 {
		t.Errorf("of its epochs %d keys are kept, of its bases %d", epochs, bases)
	}
	again()
	checkNext(t, one, stream)
}

// checkNext creates a stream of the name of one that was deleted: it is another one, and a watch says so.
func checkNext(t *testing.T, one *instance, stream *api.Stream) {
	t.Helper()
	next := one.create("desk7/orders")
	if next.StreamId <= stream.StreamId || next.Salt == stream.Salt {
		t.Errorf("the new stream is the old one: %v", next)
	}
	watch, err := one.control.WatchStreams(one.context(), &api.WatchStreamsRequest{Revision: stream.Revision})
	if err != nil {
		t.Fatal(err)
	}
	told, err := watch.Recv()
	if err != nil || len(told.Deleted) != 1 || told.Deleted[0].StreamId != stream.StreamId || len(told.Streams) != 1 ||
		told.Streams[0].StreamId != next.StreamId {
		t.Errorf("told %v, %v", told, err)
	}
}

// A target that lives and has not reported the ring yet has said neither that it is empty nor that it is lost.
func TestDeleteStream_RingThatIsNotReportedYet(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("desk7/orders")
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.until("it is bound", func() bool {
		specs := one.status("desk7/orders").RingSpecs
		return len(specs) > 0 && len(specs[0].RingUuid) > 0
	})
	one.reportTarget("t1")
	one.until("it is reported no more", func() bool { return len(one.view().Targets["t1"].GetRings()) == 0 })
	for _, isLost := range []bool{false, true} {
		_, err := one.control.DeleteStream(one.context(),
			&api.DeleteStreamRequest{Name: "desk7/orders", RingLost: isLost})
		if status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "has not reported its ring yet") {
			t.Errorf("ring lost: %v: got %v, want it refused", isLost, err)
		}
	}
}

// A target that is gone for good holds nothing up when the operator says so; its ring that is there after all is named,
// and stays.
func TestDeleteStream_RingLost(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	stream := one.create("desk7/orders")
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.until("it is bound", func() bool {
		specs := one.status("desk7/orders").RingSpecs
		return len(specs) > 0 && len(specs[0].RingUuid) > 0
	})
	lost := &api.DeleteStreamRequest{Name: "desk7/orders", RingLost: true}
	if _, err := one.control.DeleteStream(one.context(), lost); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), "is not lost") {
		t.Errorf("got %v", err)
	}
	one.endLife(etcd.KeyLiveTargets + "t1")
	one.until("the target is gone", func() bool { return !one.status("desk7/orders").TargetAlive })
	if err := one.delete("desk7/orders"); err == nil || !strings.Contains(err.Error(), "--ring-lost") {
		t.Errorf("got %v", err)
	}
	if _, err := one.control.DeleteStream(one.context(), lost); err != nil {
		t.Fatal(err)
	}
	one.until("it is gone", func() bool {
		_, err := one.control.GetStream(one.context(), &api.GetStreamRequest{Name: "desk7/orders"})
		return status.Code(err) == codes.NotFound
	})
}
