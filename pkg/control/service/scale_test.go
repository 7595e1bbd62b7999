package service

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/grant"
)

// As many as a test has time for. `build/gobench fabric` is the same with 10,000 streams on 100 hosts, and measures.
const (
	scaleStreams = 1_000
	scaleTargets = 20
)

// scaleFabric is a control plane with targets that make every ring that is wanted of them, and drains beside them.
type scaleFabric struct{ *instance }

func startScale(t *testing.T, etcd *etcd.Cluster) *scaleFabric {
	t.Helper()
	return &scaleFabric{startInstanceWith(t, etcd, Config{IsSole: true, CallRate: 1e6})}
}

func (f *scaleFabric) reportAll(round int) {
	f.t.Helper()
	now, _ := f.server.mirror.Load()
	for i := range scaleTargets {
		host := fmt.Sprintf("host%02d", i)
		target, drain := &api.TargetState{Agent: &api.Agent{Id: "t" + host, Host: host}, ReportTime: timestamppb.Now()},
			&api.DrainState{Agent: &api.Agent{Id: "d" + host, Host: host}, ReportTime: timestamppb.Now()}
		for _, ring := range grant.RingsOf(now, &api.Agent{Id: "t" + host, Host: host}).Rings {
			name := ring.Stream.Spec.Name
			target.Rings = append(target.Rings, &api.RingState{
				Stream: name, Target: target.Agent.Id,
				Uri: "mem:/" + name, RingUuid: []byte(fmt.Sprintf("%-16.16s", name)), ObserveTime: timestamppb.Now(),
				CapacityBytes: 1 << 20, AppendedLsn: 64, HeadLsn: 64, CreditLsn: uint64(64 + round),
				Contract: &api.Contract{Kind: "file", Level: api.Level_LEVEL_PERSISTENT},
			})
		}
		for _, given := range grant.AssignmentsOf(now, drain.Agent).Assignments {
			drain.Progress = append(drain.Progress, &api.DrainProgress{
				Stream: given.Stream, RingUuid: given.RingUuid,
				StoredLsn: uint64(64 + round),
			})
		}
		if _, err := f.target.ReportTarget(f.context(), &api.ReportTargetRequest{State: target}); err != nil {
			f.t.Fatal(err)
		}
		if _, err := f.drain.ReportDrain(f.context(), &api.ReportDrainRequest{State: drain}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// good counts the streams that are listed as in order.
func (f *scaleFabric) good() (count int) {
	page, err := f.control.ListStreams(f.context(), &api.ListStreamsRequest{PageSize: scaleStreams})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, one := range page.Streams {
		if one.Condition == api.Condition_CONDITION_OK {
			count++
		}
	}
	return count
}

func (f *scaleFabric) revision() int64 {
	got, err := f.etcd.Client().Get(f.context(), etcd.KeyStreamID)
	if err != nil {
		f.t.Fatal(err)
	}
	return got.Header.Revision
}

// TestScale_WhatAReportCosts places, binds and assigns many streams on targets that report, and restarts the control
// plane. What it counts is work and not time: reports that say nothing new change nothing in etcd and make no stream be
// looked at again, before a restart as after it; and a fabric is brought to what is declared in far fewer transactions
// than it has streams.
func TestScale_WhatAReportCosts(t *testing.T) {
	etcd := etcdtest.Open(t, t.TempDir())
	f := startScale(t, etcd)
	f.reportAll(0)
	fabric := new(api.Fabric)
	for i := range scaleStreams {
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{Name: fmt.Sprintf("s%05d", i), RingSizeBytes: 1 << 20})
	}
	began, before := time.Now(), f.revision()
	if done, err := f.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil || len(done.Changes) != scaleStreams {
		t.Fatalf("%d changes, %v", len(done.GetChanges()), err)
	}
	f.waitSettled()
	writes := f.revision() - before
	t.Logf("%d streams on %d targets: in order after %s and %d transactions", scaleStreams, scaleTargets,
		time.Since(began), writes)
	if writes > scaleStreams/2 {
		t.Errorf("%d transactions for %d streams: expected many streams in one", writes, scaleStreams)
	}
	f.checkIdle()
	f.stop()
	f = startScale(t, etcd)
	f.waitSettled()
	f.checkIdle()
}

// waitSettled lets agents report until all is in order, and nothing is left to do.
func (f *scaleFabric) waitSettled() {
	round := 0
	f.until("all streams are in order", func() bool {
		round++
		f.reportAll(round)
		return f.good() == scaleStreams
	})
	f.until("no stream is looked at any more", func() bool {
		looked := f.server.planned.Load()
		f.reportAll(round)
		return f.server.planned.Load() == looked && f.server.mirror.IsClean()
	})
}

// checkIdle looks again where it finds something: now and then figures are written and all streams are looked at, but
// not each time.
func (f *scaleFabric) checkIdle() {
	f.t.Helper()
	round := 1000
	f.until("reports with nothing but figures change nothing in etcd and make no stream be looked at", func() bool {
		revision, looked := f.revision(), f.server.planned.Load()
		for range 3 {
			round++
			f.reportAll(round)
		}
		return f.revision() == revision && f.server.planned.Load() == looked
	})
}
