package target

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/loop"
	"github.com/farlog/farlog/pkg/nvmet"
)

const (
	exportedNQN = "nqn.2026-01.com.example:desk7"
	tradingNQN  = "nqn.2026-01.com.example:trading1"
	standbyNQN  = "nqn.2026-01.com.example:trading2"
)

// exporting is a target with a namespace of a plain file, from which hosts may be evicted.
func exporting(t *testing.T) (one *Target, device string) {
	t.Helper()
	one, device = newTarget(t, t.TempDir()), blank(t, 8<<20)
	one.exported = map[string]*api.Namespace{exportedNQN: {
		Name: "desk7", Device: device, Subsystem: exportedNQN, Evict: true, Hosts: []*api.NamespaceHost{
			{Nqn: tradingNQN, Host: "trading1"}, {Nqn: standbyNQN, Host: "trading2"},
		},
	}}
	return one, device
}

// inNamespace is a ring in that namespace with these writers let in.
func inNamespace(epochMin uint32, grants ...*api.RemoteGrant) *api.RingSpec {
	spec := admitting(epochMin, grants...)
	spec.Subsystem = exportedNQN
	return spec
}

func grantOn(nqn string, epoch uint32) *api.RemoteGrant {
	grant := writerGrant(epoch)
	grant.HostNqn = nqn
	return grant
}

// writtenFrom leaves a ring as a writer of another host leaves it that has opened an epoch and was not closed: in its
// superblocks, which are the first two blocks of it, that host is named.
func writtenFrom(t *testing.T, device, stream, nqn string, epoch uint32) {
	t.Helper()
	region := "nvme:" + device
	writer, err := farlog.OpenWriter(inRegion(region, stream).uri, farlog.WriterOptions{
		Level: farlog.LevelPosted, Epoch: epoch, CountersDir: "none", Deadline: stepTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadFile(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	listed, err := farlog.ListRegion(region)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(listed.Rings, func(ring farlog.RegionRing) bool { return ring.Name == stream })
	for block := range uint64(2) {
		superblock := open[listed.Rings[at].OffsetBytes+4096*block:][:512]
		if binary.LittleEndian.Uint32(superblock[68:]) == epoch {
			binary.LittleEndian.PutUint64(superblock[340:], farlog.HostNumber(nqn))
			binary.LittleEndian.PutUint32(superblock[508:],
				crc32.Checksum(superblock[:508], crc32.MakeTable(crc32.Castagnoli)))
		}
	}
	if err := os.WriteFile(device, open, 0o600); err != nil {
		t.Fatal(err)
	}
	if former, err := farlog.FormerOf(inRegion(region, stream).uri); err != nil ||
		former.Host != farlog.HostNumber(nqn) || former.Epoch != epoch || former.IsClosed {
		t.Fatalf("the ring was written by %+v, %v, want epoch %d of %s", former, err, epoch, nqn)
	}
}

// formersOf are those of a device's rings that are to be evicted.
func formersOf(t *testing.T, one *Target, device string) (fenced []nvmet.Former) {
	t.Helper()
	formers, err := one.ExportedRings().Formers(device)
	if err != nil {
		t.Fatal(err)
	}
	for _, former := range formers {
		if former.IsFenced && !former.IsOut {
			fenced = append(fenced, former)
		}
		if !former.IsShared {
			t.Errorf("former %+v has all of the namespace, want it to share it", former)
		}
	}
	return fenced
}

// A writer of another host that was not closed is there as long as nobody knows that it is out, whatever becomes of its
// process: the next one is let in when the target has evicted that host.
func TestNamespaced_WriterOfAnotherHostIsThereUntilItIsOut(t *testing.T) {
	one, device := exporting(t)
	state := see(one, inNamespace(0))[0].State
	if state.Error != "" || len(state.RingUuid) == 0 || state.WriterHeld ||
		state.Uri != "nvme:"+device+"?ring=desk7/orders" || len(state.RemoteUris) > 0 {
		t.Fatalf("made: %v", state)
	}
	state = see(one, inNamespace(1, grantOn(tradingNQN, 1)))[0].State
	if state.EpochFenced != 1 || state.EpochAdmitted != 1 || !state.WriterHeld || state.WriterHost != "trading1" {
		t.Errorf("granted to trading1: %v, want it let in, and taken for the writer", state)
	}
	writtenFrom(t, device, "desk7/orders", tradingNQN, 1)
	state = see(one, inNamespace(1, grantOn(tradingNQN, 1)))[0].State
	if state.EpochFenced != 1 || !state.WriterHeld || state.WriterEpoch != 1 || state.WriterHost != "trading1" {
		t.Errorf("opened: %v, want trading1 to write it", state)
	}
	taken := inNamespace(2, grantOn(standbyNQN, 2))
	state = see(one, taken)[0].State
	if state.EpochFenced != 1 || state.EpochAdmitted != 0 || state.EpochMin != 2 ||
		!strings.Contains(state.FenceError, "its writer of epoch 1 on host trading1 has not closed it") {
		t.Fatalf("taken over: %v, want the fence raised, and nobody let in", state)
	}
	fenced := formersOf(t, one, device)
	if len(fenced) != 1 || fenced[0].Host != farlog.HostNumber(tradingNQN) || fenced[0].Epoch != 1 {
		t.Fatalf("to be evicted are %+v, want trading1", fenced)
	}
	if err := one.ExportedRings().Out(fenced[0]); err != nil {
		t.Fatal(err)
	}
	state = see(one, taken)[0].State
	if state.EpochFenced != 2 || state.EpochAdmitted != 2 || state.FenceError != "" || state.WriterHost != "trading2" {
		t.Errorf("evicted: %v, want trading2 let in", state)
	}
	one.exported[exportedNQN].Evict = false
	writtenFrom(t, device, "desk7/orders", standbyNQN, 2)
	state = see(one, inNamespace(3))[0].State
	if state.EpochFenced != 2 || !strings.Contains(state.FenceError, "declare evict: true") {
		t.Errorf("nobody evicts: %v, want it said", state)
	}
}

// On one host the ring's lock keeps writers apart: nobody is evicted, and the writer that has it is not told to stop.
func TestNamespaced_RestartOnTheSameHostEvictsNobody(t *testing.T) {
	one, device := exporting(t)
	see(one, inNamespace(1, grantOn(tradingNQN, 1)))
	writtenFrom(t, device, "desk7/orders", tradingNQN, 1)
	state := see(one, inNamespace(2, grantOn(tradingNQN, 2)))[0].State
	if state.EpochFenced != 2 || state.EpochAdmitted != 2 || state.EpochMin > 1 {
		t.Errorf("granted again: %v, want it let in, and the ring's fence as it was", state)
	}
	if fenced := formersOf(t, one, device); len(fenced) > 0 {
		t.Errorf("to be evicted are %+v, want nobody", fenced)
	}
}

// Who was granted an epoch and has not opened it may be opening it: its host is evicted before another one is let in,
// also when the target was started again meanwhile.
func TestNamespaced_GrantedAndNotOpenedIsNoGoneWriter(t *testing.T) {
	one, device := exporting(t)
	message := func(spec *api.RingSpec) *api.WatchRingsResponse {
		return &api.WatchRingsResponse{
			NamespacesDeclared: true, Namespaces: []*api.Namespace{one.exported[exportedNQN]},
			Rings: []*api.RingSpec{spec},
		}
	}
	looked := func() *api.RingState {
		one.observe()
		return one.Rings()[0].State
	}
	one.applyWanted(message(inNamespace(1, grantOn(tradingNQN, 1))))
	if state := looked(); state.EpochAdmitted != 1 {
		t.Fatalf("granted: %v", state)
	}
	one.applyWanted(message(inNamespace(2, grantOn(tradingNQN, 2))))
	if state := looked(); state.EpochAdmitted != 2 || state.EpochFenced != 2 {
		t.Errorf("granted again on the same host: %v, want it let in", state)
	}
	one.applyWanted(message(inNamespace(3, grantOn(standbyNQN, 3))))
	if state := looked(); state.EpochAdmitted != 0 || state.EpochFenced != 2 || state.EpochMin != 3 {
		t.Errorf("granted on another host: %v, want nobody let in", state)
	}
	one = restarted(t, one)
	if state := looked(); state.EpochAdmitted != 0 || state.EpochFenced != 2 || !state.WriterHeld {
		t.Errorf("after a restart: %v, want nobody let in", state)
	}
	fenced := formersOf(t, one, device)
	if len(fenced) != 1 || fenced[0].Host != farlog.HostNumber(tradingNQN) || fenced[0].Epoch != 2 {
		t.Fatalf("to be evicted are %+v, want trading1, of epoch 2", fenced)
	}
	if err := one.ExportedRings().Out(fenced[0]); err != nil {
		t.Fatal(err)
	}
	if state := looked(); state.EpochAdmitted != 3 || state.EpochFenced != 3 {
		t.Errorf("evicted: %v, want trading2 let in", state)
	}
	if fenced := formersOf(t, one, device); len(fenced) > 0 {
		t.Errorf("evicted: still to be evicted are %+v", fenced)
	}
	one.isUnsaved.Store(true)
	if state := looked(); state.EpochAdmitted != 0 || !strings.Contains(state.FenceError, "could not save") {
		t.Errorf("not saved: %v, want nobody let in", state)
	}
}

// The ring of a deleted stream is removed when no writer of another host may come to it any more.
func TestNamespaced_RemovedWhenNobodyWrites(t *testing.T) {
	one, device := exporting(t)
	bound := see(one, inNamespace(1, grantOn(tradingNQN, 1)))[0].State.RingUuid
	writtenFrom(t, device, "desk7/orders", tradingNQN, 1)
	ended := func(stage api.DeletionStage) *api.RingState {
		spec := inNamespace(2)
		spec.RingUuid, spec.Deletion = bound, stage
		return see(one, spec)[0].State
	}
	if state := ended(draining); state.Closed || !state.WriterHeld {
		t.Errorf("with a writer: %v, want it not closed", state)
	}
	drainAll(t, "nvme:"+device+"?ring=desk7/orders")
	if state := ended(removing); state.Removed {
		t.Errorf("with a writer: %v, want it not removed", state)
	}
	for _, former := range formersOf(t, one, device) {
		if err := one.ExportedRings().Out(former); err != nil {
			t.Fatal(err)
		}
	}
	if state := ended(draining); !state.Closed {
		t.Errorf("evicted: %v, want it closed", state)
	}
	if state := ended(removing); !state.Removed {
		t.Errorf("evicted: %v, want it removed", state)
	}
	delete(one.exported, exportedNQN)
	if state := ended(removing); state.Removed ||
		!strings.Contains(state.Error, "is not declared of this host") {
		t.Errorf("declared away: %v, want it said", state)
	}
}

// What a namespace has space for is what can be made there, and no ring is made where it could not be opened.
func TestProbeSpace(t *testing.T) {
	device := loop.Device(t, 8<<20)
	first := probeSpace(device)
	if first.failure != "" || first.level != api.Level_LEVEL_PERSISTENT || first.free == 0 {
		t.Fatalf("an empty device: %+v", first)
	}
	options := farlog.FormatOptions{SizeBytes: first.free, StreamName: "a"}
	if err := farlog.Format("nvme:"+device+"?ring=a", options); err != nil {
		t.Errorf("%d bytes are free: %v", first.free, err)
	}
	if full := probeSpace(device); full.failure != "" || full.free >= 16384 {
		t.Errorf("a full device: %+v", full)
	}
	if none := probeSpace(filepath.Join(t.TempDir(), "none")); none.failure == "" {
		t.Errorf("no device: %+v", none)
	}
	whole := loop.Device(t, 8<<20)
	if err := farlog.Format("nvme:"+whole, farlog.FormatOptions{StreamName: "a"}); err != nil {
		t.Fatal(err)
	}
	if one := probeSpace(whole); !strings.Contains(one.failure, "is one ring as a whole") {
		t.Errorf("a device that is one ring: %+v", one)
	}
	file := blank(t, 8<<20)
	if err := checkLBA(file, 512); err == nil || !strings.Contains(err.Error(), "has LBAs of 512 bytes") {
		t.Errorf("a file with other LBAs: %v", err)
	}
	if err := checkLBA(device, 512); err != nil {
		t.Errorf("a device: %v", err)
	}
}
