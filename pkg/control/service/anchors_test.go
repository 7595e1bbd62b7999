package service

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// anchorAt is an anchor of a store as its drain would report it.
func anchorAt(store byte, segment, offset uint64) *api.StoreAnchor {
	return &api.StoreAnchor{
		StoreUuid: bytes.Repeat([]byte{store}, 16), RingUuid: bytes.Repeat([]byte{9}, 16), Generation: 1,
		Segment: segment, Offset: offset, NextLsn: segment<<20 + offset, Sha256: bytes.Repeat([]byte{byte(offset)}, 32),
		SealedSegment: segment - 1, ManifestSha256: bytes.Repeat([]byte{byte(segment)}, 32),
	}
}

// reportAnchor reports from the drain, or from another one.
func (i *instance) reportAnchor(drain string, anchor *api.StoreAnchor) {
	i.t.Helper()
	state := &api.DrainState{
		Agent:    &api.Agent{Id: drain, Host: "h", StoreUuid: bytes.Repeat([]byte{1}, 16)},
		Progress: []*api.DrainProgress{{Stream: "a", Anchor: anchor}},
	}
	if _, err := i.drain.ReportDrain(i.context(), &api.ReportDrainRequest{State: state}); err != nil {
		i.t.Fatal(err)
	}
}

// assign gives stream a to drain d1, of a store.
func (i *instance) assign(store byte) {
	i.t.Helper()
	value, err := etcd.Encode(&api.Assignment{
		Stream: "a", Drain: "d1", StoreUuid: bytes.Repeat([]byte{store}, 16), Generation: uint64(store),
	})
	if err != nil {
		i.t.Fatal(err)
	}
	put, err := i.etcd.Client().Put(i.context(), etcd.KeyAssignments+"a", value)
	if err == nil {
		err = i.server.mirror.WaitRevision(i.context(), put.Header.Revision)
	}
	if err != nil {
		i.t.Fatal(err)
	}
}

// kept is the anchor that etcd has.
func (i *instance) kept() *api.StoreAnchor {
	i.t.Helper()
	got, err := i.etcd.Client().Get(i.context(), etcd.KeyAnchors+"a")
	if err != nil {
		i.t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return nil
	}
	anchor := new(api.StoreAnchor)
	if err := etcd.Decode(etcd.KeyAnchors+"a", got.Kvs[0].Value, anchor); err != nil {
		i.t.Fatal(err)
	}
	return anchor
}

// A store that went back, or is another one, is told of in its stream's status and in the audit stream, and what was
// kept of it stays. The drain that the stream was taken from says nothing, and a rebinding to another store counts.
func TestAnchors_BackwardsIsRefused(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	s := new(sink)
	one := startInstanceWith(t, cluster, Config{IsSole: true, Audit: s.record})
	one.create("a")
	one.assign(1)
	first, later := anchorAt(1, 3, 8192), anchorAt(1, 3, 9000)
	one.reportAnchor("d1", first)
	one.expectAnchor("the first", first, "")
	one.reportAnchor("d1", later)
	one.expectAnchor("one at once behind it, which waits for its turn", first, "")
	other, lost := anchorAt(1, 3, 9000), anchorAt(1, 4, 4200)
	other.Sha256, lost.SealedSegment = bytes.Repeat([]byte{77}, 32), 1
	for name, anchor := range map[string]*api.StoreAnchor{
		"behind": anchorAt(1, 3, 8500), "a segment behind": anchorAt(1, 2, 9999), "another store": anchorAt(2, 5, 8192),
		"other records": other, "a manifest less": lost,
	} {
		one.reportAnchor("d2", anchor) // which is not its drain
		one.expectAnchor(name+", of another drain", first, "")
		if text := one.view().Drains["d2"].Progress[0].LastError; text != "" {
			t.Errorf("%s, of another drain: %q", name, text)
		}
		one.reportAnchor("d1", anchor)
		one.expectAnchor(name, first, "anchor is refused")
		one.reportAnchor("d1", later)
		one.expectAnchor(name+", and right again", first, "")
	}
	// Another instance compares with what is in etcd.
	two := startInstanceWith(t, cluster, Config{IsSole: true})
	two.reportAnchor("d1", anchorAt(1, 3, 8000))
	two.expectAnchor("behind, at another instance", first, "anchor is refused")
	two.assign(2)
	rebound := anchorAt(2, 1, 8192)
	two.reportAnchor("d1", rebound)
	two.expectAnchor("of the store that the stream was bound to since", rebound, "")
	one.until("five refusals and an anchor are in the audit stream", func() bool {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		refused, kept := 0, 0
		for _, act := range s.events {
			switch {
			case act.What != "ReportAnchor" || act.Stream != "a":
			case act.Outcome == "OK" && strings.Contains(string(act.Request), "sealedSegment"):
				kept++
			case strings.Contains(act.Error, "anchor is refused"):
				refused++
			}
		}
		return refused == 5 && kept == 1
	})
}

// expectAnchor looks at the anchor in etcd, and at the error that the stream's drain has.
func (i *instance) expectAnchor(what string, anchor *api.StoreAnchor, failure string) {
	i.t.Helper()
	if got := i.kept(); !proto.Equal(got, anchor) {
		i.t.Errorf("%s: etcd has the anchor %v, expected %v", what, got, anchor)
	}
	status := i.status("a")
	if text := status.Drain.GetLastError(); text != "" != (failure != "") || !strings.Contains(text, failure) {
		i.t.Errorf("%s: the drain's error is %q, expected %q", what, text, failure)
	}
}
