package service

import (
	"slices"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// Regions and grants are told as they are listed, filtered as they are listed, when something of them has changed; not
// each time that a target reports its cursors.
func TestRegionsAndGrants_Watched(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.reportTarget("t1")
	one.create("a")
	one.create("b")
	one.reportTarget("t1", ring("a", "t1"), ring("b", "t1"))
	one.until("the rings are bound", func() bool { // of which a watch tells, too
		return len(one.status("a").RingSpecs[0].RingUuid) > 0 && len(one.status("b").RingSpecs[0].RingUuid) > 0
	})
	regions, err := one.fabric().WatchRegions(one.context(), &api.WatchRegionsRequest{Host: "alpha", InError: true})
	if err != nil {
		t.Fatal(err)
	}
	grants, err := one.fabric().WatchGrants(one.context(),
		&api.WatchGrantsRequest{Role: api.GrantRole_GRANT_ROLE_WRITER, Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if told, err := regions.Recv(); err != nil || !told.Snapshot || len(told.Regions)+len(told.Streams) != 0 ||
		told.Revision == 0 {
		t.Errorf("at first: regions %v, %v", told, err)
	}
	if told, err := grants.Recv(); err != nil || !told.Snapshot || len(told.Grants)+len(told.Streams) != 0 ||
		told.Revision == 0 {
		t.Errorf("at first: grants %v, %v", told, err)
	}
	moved := ring("a", "t1")
	moved.HeadLsn, moved.AppendedLsn, moved.LagBytes = 1<<20, 2<<20, 1<<20
	broken := ring("b", "t1")
	broken.Error = "the device is gone"
	one.reportTarget("t1", moved, ring("b", "t1"))
	one.reportTarget("t1", moved, broken)
	told, err := regions.Recv()
	if err != nil || told.Snapshot || len(told.Regions) != 1 || told.Regions[0].State.Error != broken.Error ||
		!slices.Equal(told.Streams, []string{"b"}) {
		t.Errorf("in error: %v, %v", told, err)
	}
	one.reportTarget("t1", moved, ring("b", "t1"))
	if told, err := regions.Recv(); err != nil || len(told.Regions) != 0 || !slices.Equal(told.Streams, []string{"b"}) {
		t.Errorf("not in error any more: %v, %v", told, err)
	}
	if _, err := one.acquire("a"); err != nil {
		t.Fatal(err)
	}
	if told, err := grants.Recv(); err != nil || len(told.Grants) != 1 || told.Grants[0].Epoch != 1 ||
		told.Grants[0].Active || !slices.Equal(told.Streams, []string{"a"}) {
		t.Errorf("granted: %v, %v", told, err)
	}
	moved.WriterHeld, moved.WriterEpoch = true, 1
	one.reportTarget("t1", moved, ring("b", "t1"))
	if told, err := grants.Recv(); err != nil || len(told.Grants) != 1 || !told.Grants[0].Active {
		t.Errorf("in: %v, %v", told, err)
	}
	one.endLife(etcd.KeyLiveTargets + "t1")
	one.until("it is gone", func() bool { return len(one.agents().TargetsAlive) == 0 })
	all, err := one.fabric().WatchRegions(one.context(), &api.WatchRegionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if told, err := all.Recv(); err != nil || len(told.Regions) != 2 {
		t.Fatalf("all: %v, %v", told, err)
	}
	one.reportTarget("t1", moved, ring("b", "t1"))
	if told, err := all.Recv(); err != nil || told.Snapshot || len(told.Regions) != 2 || !told.Regions[0].TargetAlive {
		t.Errorf("its target is back: %v, %v", told, err)
	}
}
