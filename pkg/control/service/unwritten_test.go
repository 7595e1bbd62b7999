package service

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// missing -- what the control plane keeps of it is more than what is reported.
func (i *instance) missing(name string) {
	i.t.Helper()
	state := &api.TargetState{
		Agent: &api.Agent{Id: "t1", Host: "alpha"},
		Rings: []*api.RingState{{
			Stream: name, Target: "t1", Uri: "mem:/" + name, Missing: true,
			Error: "is missing",
		}},
	}
	if _, err := i.target.ReportTarget(i.context(), &api.ReportTargetRequest{State: state}); err != nil {
		i.t.Fatal(err)
	}
}

// Somebody may have opened a ring by its URI alone: what was seen of that is not forgotten when the ring is missing.
func TestReportTarget_MissingRingKeepsWhatWasSeenInIt(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	one.reportTarget("t1")
	one.until("stream is placed", func() bool { return len(one.status("a").RingSpecs) == 1 })
	one.reportTarget("t1", &api.RingState{
		Stream: "a", Target: "t1", Uri: "mem:/a",
		RingUuid: []byte("0123456789abcdef"), WriterEpoch: 1, AppendedLsn: 64,
	})
	one.until("ring is bound", func() bool { return len(one.status("a").RingSpecs[0].RingUuid) > 0 })
	for range 2 { // the second report is the one that follows a missing one
		one.missing("a")
	}
	one.until("it is missing", func() bool { return strings.Contains(one.status("a").Reason, "is missing") })
	if status := one.status("a"); status.Rings[0].WriterEpoch != 1 || len(status.RingSpecs[0].RingUuid) == 0 {
		t.Errorf("forgotten: %v", status)
	}
	one.missing("a")
	one.create("b") // whatever was to be planned before it has been done
	one.until("b is placed", func() bool { return len(one.status("b").RingSpecs) == 1 })
	if status := one.status("a"); len(status.RingSpecs[0].RingUuid) == 0 {
		t.Errorf("wanted again: %v", status.RingSpecs)
	}
}

// A stream that was never granted when it was backed up may have been granted since.
func TestRestore_StreamWithoutAnEpochIsNotBlank(t *testing.T) {
	t.Parallel()
	before := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	before.create("a")
	entries := before.backup()
	cluster := etcdtest.Open(t, t.TempDir())
	after := startInstance(t, cluster, true)
	if err := after.restore(entries); err != nil {
		t.Fatal(err)
	}
	if got, err := cluster.Client().Get(t.Context(), etcd.KeyEpochs+"a", clientv3.WithCountOnly()); err != nil ||
		got.Count != 1 {
		t.Errorf("epochs of the stream: %v, %v", got, err)
	}
}
