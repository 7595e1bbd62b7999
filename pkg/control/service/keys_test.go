package service

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// reportOf is what a target says of a ring that is written.
func reportOf(name string) *api.TargetState {
	return &api.TargetState{
		Agent: &api.Agent{Id: "t1", Host: "storage1"}, ReportTime: timestamppb.Now(),
		Rings: []*api.RingState{{
			Stream: name, Target: "t1", Uri: "mem:/" + name, RingUuid: []byte("0123456789abcdef"),
			CapacityBytes: 1 << 20, AppendedLsn: 4096, HeadLsn: 64, LagAge: durationpb.New(1e6),
			Contract: &api.Contract{Kind: "file", Level: api.Level_LEVEL_PERSISTENT},
		}},
	}
}

// Reports are in etcd as bytes, so that a hundred rings are 30 kB and not 100; whoever reads a backup, or has an etcd
// that was written before, has text.
func TestKeys_ReportsAreBytes(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, cluster, true)
	one.create("a")
	state := reportOf("a")
	drain := &api.DrainState{
		Agent: &api.Agent{Id: "d1", Host: "storage1"}, StoreDir: "/store",
		Progress: []*api.DrainProgress{{Stream: "a", StoredLsn: 64}},
	}
	if _, err := one.target.ReportTarget(one.context(), &api.ReportTargetRequest{State: state}); err != nil {
		t.Fatal(err)
	}
	if _, err := one.drain.ReportDrain(one.context(), &api.ReportDrainRequest{State: drain}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]proto.Message{etcd.KeyTargets + "t1": state, etcd.KeyDrains + "d1": drain} {
		got, err := cluster.Client().Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatal(got, err)
		}
		text, err := etcd.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if value := got.Kvs[0].Value; etcd.IsJSON(value) || len(value) > len(text)/2 {
			t.Errorf("%s: %d bytes of %d as text: %.60q", key, len(value), len(text), value)
		}
	}
	entries := one.backup()
	for _, entry := range entries {
		if strings.HasPrefix(entry.Key, "state/") && !etcd.IsJSON([]byte(entry.Value)) {
			t.Errorf("in the backup %s is %.60q, expected JSON", entry.Key, entry.Value)
		}
	}
	two := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	if err := two.restore(entries); err != nil {
		t.Fatal(err)
	}
	before, _ := one.server.mirror.Load()
	now, _ := two.server.mirror.Load()
	if !proto.Equal(now.Targets["t1"], state) || !proto.Equal(now.Drains["d1"], before.Drains["d1"]) {
		t.Errorf("restored: %v, %v", now.Targets, now.Drains)
	}
}

// A report of which nothing can be made is left out of a backup, and all else is in it.
func TestBackup_UnreadableReport(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	if _, err := cluster.Client().Put(t.Context(), etcd.KeyTargets+"t1", "\xff\xff\xff"); err != nil {
		t.Fatal(err)
	}
	one := startInstance(t, cluster, true)
	one.create("a")
	entries := one.backup()
	said := fmt.Sprint(entries)
	if strings.Contains(said, "targets/t1") || !strings.Contains(said, "spec/streams/a") {
		t.Errorf("backed up %s", said)
	}
}
