package service

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// What finds no space beside the rest is refused with its place in the file, and nothing of it is applied.
func TestApplyFabric_SumsOverCapacityAreRefused(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	apply := func(fabric *api.Fabric, isPrune bool) error {
		_, err := one.control.ApplyFabric(one.context(), &api.ApplyFabricRequest{Fabric: fabric, Prune: isPrune})
		return err
	}
	host := func(name string, capacity uint64) *api.TargetSpec {
		return &api.TargetSpec{Host: name, CapacityBytes: capacity}
	}
	stream := func(name string) *api.StreamSpec { return &api.StreamSpec{Name: name, RingSizeBytes: 60 << 20} }
	two := &api.Fabric{
		Targets: []*api.TargetSpec{host("vm", 100<<20)},
		Streams: []*api.StreamSpec{stream("c/b"), stream("c/a")},
	}
	err := apply(two, false)
	want := "fabric.streams[0].ring_size_bytes=62914560: expected a target with free space for it beside what is " +
		"declared: " +
		"host vm has 41943040 bytes left of its capacity of 104857600, the ring needs 62914560"
	if got := problemsIn(err); status.Code(err) != codes.InvalidArgument || !slices.Equal(got, []string{want}) {
		t.Fatalf("got %q (%v)", got, err)
	}
	if got, err := one.control.ListStreams(one.context(), &api.ListStreamsRequest{}); err != nil ||
		len(got.Streams) > 0 {
		t.Fatalf("applied: %v (%v)", got, err)
	}
	two.Streams[1].Members, two.Streams[1].Needed = 2, 1 // waits for a second host, not for space
	if err := apply(&api.Fabric{Targets: two.Targets, Streams: two.Streams[1:]}, false); err != nil {
		t.Errorf("too few hosts: %v", err)
	}
	if err := apply(&api.Fabric{Targets: two.Targets, Streams: []*api.StreamSpec{stream("c/b")}}, true); err != nil {
		t.Errorf("in the place of one that goes: %v", err)
	}
	three := &api.Fabric{
		Targets: []*api.TargetSpec{host("vm", 100<<20), host("wm", 0)},
		Streams: []*api.StreamSpec{stream("c/b"), stream("c/c"), stream("c/d")},
	}
	if err := apply(three, false); err != nil {
		t.Errorf("beside a host that nothing limits: %v", err)
	}
}

// Who waits for a stream that is not placed is told what status knows.
func TestAcquireWriter_SaysWhyAStreamIsNotPlaced(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	if _, err := one.control.CreateStream(one.context(),
		&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: "c/a", TargetHost: "elsewhere"}}); err != nil {
		t.Fatal(err)
	}
	one.reportTarget("t1")
	if _, err := one.control.AcquireWriter(one.context(),
		&api.AcquireWriterRequest{Stream: "c/a"}); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "no target on host elsewhere is registered") {
		t.Errorf("got %v", err)
	}
}
