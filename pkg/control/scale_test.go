package control

import (
	"fmt"
	"testing"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

const (
	scaleStreams = 10_000
	scaleTargets = 100
)

// TestScale_TenThousandStreams declares that many, with targets that say they are there and provide nothing, and lists and watches them. It tells the
// times; what it checks is that nothing is left out.
func TestScale_TenThousandStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 streams take their time; run without -short")
	}
	one := startInstance(t, openEtcd(t, t.TempDir()), true)
	fabric := new(api.Fabric)
	for i := range scaleStreams {
		// Declared for a host that has no target yet, so that what is timed is the declaration and not the placement.
		fabric.Streams = append(fabric.Streams, &api.StreamSpec{Name: fmt.Sprintf("desk%02d/s%05d", i%50, i), TargetHost: "later"})
	}
	fabric.Targets = []*api.TargetSpec{{Host: "later"}}
	for i := range scaleTargets {
		one.reportTarget(fmt.Sprintf("t%03d", i))
	}
	began := time.Now()
	done, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric})
	if err != nil || len(done.Changes) != scaleStreams+1 {
		t.Fatalf("%d changes, %v", len(done.GetChanges()), err)
	}
	applied := time.Since(began)
	began = time.Now()
	if again, err := one.apply(&api.ApplyFabricRequest{Fabric: fabric}); err != nil || len(again.Changes) != 0 {
		t.Fatalf("%v, %v", again, err)
	}
	compared := time.Since(began)
	began = time.Now()
	count := 0
	for request := new(api.ListStreamsRequest); ; {
		page, err := one.control.ListStreams(one.context(), request)
		if err != nil {
			t.Fatal(err)
		}
		count += len(page.Streams)
		if request.PageToken = page.NextPageToken; request.PageToken == "" {
			break
		}
	}
	listed := time.Since(began)
	began = time.Now()
	watch, err := one.control.WatchStreams(one.context(), &api.WatchStreamsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := watch.Recv()
	if err != nil || count != scaleStreams || len(first.Streams) != scaleStreams {
		t.Fatalf("listed %d, watched %d, %v", count, len(first.GetStreams()), err)
	}
	t.Logf("%d streams: applied in %s, the same again in %s, listed in %s, first message of a watch in %s", scaleStreams, applied, compared, listed, time.Since(began))
}
