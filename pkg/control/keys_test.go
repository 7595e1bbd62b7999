package control

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// reportOf is what a target says of a ring that is written.
func reportOf(name string) *api.TargetState {
	return &api.TargetState{Agent: &api.Agent{Id: "t1", Host: "storage1"}, Reported: timestamppb.Now(), Rings: []*api.RingState{{
		Stream: name, Target: "t1", Uri: "mem:/" + name, RingUuid: []byte("0123456789abcdef"), CapacityBytes: 1 << 20, AppendedLsn: 4096, HeadLsn: 64, LagAge: durationpb.New(1e6),
		Contract: &api.Contract{Kind: "file", Level: api.Level_LEVEL_PERSISTENT}}}}
}

// Reports are in etcd as bytes, so that a hundred rings are 30 kB and not 100; whoever reads a backup, or has an etcd that was written before, has text.
func TestKeys_ReportsAreBytes(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	one := startInstance(t, etcd, true)
	one.create("a")
	state := reportOf("a")
	drain := &api.DrainState{Agent: &api.Agent{Id: "d1", Host: "storage1"}, StoreDir: "/store", Progress: []*api.DrainProgress{{Stream: "a", StoredLsn: 64}}}
	if _, err := one.target.ReportTarget(one.context(), &api.ReportTargetRequest{State: state}); err != nil {
		t.Fatal(err)
	}
	if _, err := one.drain.ReportDrain(one.context(), &api.ReportDrainRequest{State: drain}); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]proto.Message{keyTargets + "t1": state, keyDrains + "d1": drain} {
		got, err := etcd.Client().Get(t.Context(), key)
		if err != nil || len(got.Kvs) != 1 {
			t.Fatal(got, err)
		}
		text, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if value := got.Kvs[0].Value; isJSON(value) || len(value) > len(text)/2 {
			t.Errorf("%s: %d bytes of %d as text: %.60q", key, len(value), len(text), value)
		}
	}
	entries := one.backup()
	for _, entry := range entries {
		if strings.HasPrefix(entry.Key, "state/") && !isJSON([]byte(entry.Value)) {
			t.Errorf("in the backup %s is %.60q, expected JSON", entry.Key, entry.Value)
		}
	}
	two := startInstance(t, openEtcd(t, t.TempDir()), true)
	if err := two.restore(entries); err != nil {
		t.Fatal(err)
	}
	before, _ := one.server.mirror.load()
	now, _ := two.server.mirror.load()
	if !proto.Equal(now.targets["t1"], state) || !proto.Equal(now.drains["d1"], before.drains["d1"]) {
		t.Errorf("restored: %v, %v", now.targets, now.drains)
	}
}

// A report of which nothing can be made is left out of a backup, and all else is in it.
func TestBackup_UnreadableReport(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	if _, err := etcd.Client().Put(t.Context(), keyTargets+"t1", "\xff\xff\xff"); err != nil {
		t.Fatal(err)
	}
	one := startInstance(t, etcd, true)
	one.create("a")
	entries := one.backup()
	said := fmt.Sprint(entries)
	if strings.Contains(said, "targets/t1") || !strings.Contains(said, "spec/streams/a") {
		t.Errorf("backed up %s", said)
	}
}

// What a newer control plane has written with fields that are not known here is read, and those are left out, in either form.
func TestDecode_UnknownFields(t *testing.T) {
	t.Parallel()
	want := &api.TargetState{Agent: &api.Agent{Id: "t1"}, Rings: []*api.RingState{{Stream: "a", RingUuid: []byte("0123456789abcdef")}}}
	raw, err := encodeBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	text, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	newer := protowire.AppendString(protowire.AppendTag([]byte(raw), 1000, protowire.BytesType), "new")
	for _, value := range []string{raw, text, string(newer), `{"new": 1, ` + text[1:]} {
		got := new(api.TargetState)
		if err := decode("key", []byte(value), got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%.40q is read as %v, %v", value, got, err)
		}
	}
	if err := decode("key", []byte(raw[:len(raw)-1]), new(api.TargetState)); err == nil {
		t.Error("half a report is read")
	}
}
