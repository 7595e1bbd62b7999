package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

func (i *instance) fabric() api.FabricServiceClient { return api.NewFabricServiceClient(i.conn) }

// wants fails unless an error has a code, and problems among its details.
func wants(t *testing.T, what string, err error, code codes.Code, problems ...string) {
	t.Helper()
	if got := problemsIn(err); status.Code(err) != code || !slices.Equal(got, problems) {
		t.Errorf("%s: got %v with %q, want %s with %q", what, err, got, code, problems)
	}
}

// A target is declared, changed and taken back, each only as its caller has seen it.
func TestTargets_AreDeclaredOneByOne(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	fabric, spec := one.fabric(), &api.TargetSpec{Host: "alpha", Rack: "r1"}
	_, err := fabric.CreateTarget(one.context(), &api.CreateTargetRequest{})
	wants(t, "no spec", err, codes.InvalidArgument, "spec=: value is required")
	_, err = fabric.CreateTarget(one.context(), &api.CreateTargetRequest{Spec: &api.TargetSpec{Host: "a/b"}})
	wants(t, "a bad host", err, codes.InvalidArgument,
		`spec.host="a/b": expected 1 to 128 letters, digits, '.', '_' or '-'`)
	dry, err := fabric.CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec, DryRun: true})
	if err != nil || !dry.Created || dry.Target.Revision != 0 {
		t.Fatalf("dry run: %v, %v", dry, err)
	}
	_, err = fabric.GetTarget(one.context(), &api.GetTargetRequest{Host: "alpha"})
	wants(t, "a dry run declares nothing", err, codes.NotFound)
	made, err := fabric.CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec})
	if err != nil || !made.Created || made.Target.Revision == 0 || made.Target.Presence != api.Presence_PRESENCE_GONE {
		t.Fatalf("create: %v, %v", made, err)
	}
	again, err := fabric.CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec})
	if err != nil || again.Created || again.Target.Revision != made.Target.Revision {
		t.Fatalf("create again: %v, %v", again, err)
	}
	_, err = fabric.CreateTarget(one.context(), &api.CreateTargetRequest{Spec: &api.TargetSpec{
		Host: "alpha",
		Rack: "r2",
	}})
	wants(t, "create what differs", err, codes.AlreadyExists,
		"spec.rack=r2: expected r1, as in the existing target of that name: change it, or give another name")
	changed, err := fabric.UpdateTarget(one.context(), &api.UpdateTargetRequest{Spec: &api.TargetSpec{
		Host: "alpha",
		Rack: "r2",
	}, Revision: made.Target.Revision})
	if err != nil || len(changed.Fields) != 1 || changed.Target.Revision <= made.Target.Revision ||
		changed.Target.Spec.Rack != "r2" {
		t.Fatalf("update: %v, %v", changed, err)
	}
	_, err = fabric.UpdateTarget(one.context(), &api.UpdateTargetRequest{Spec: spec, Revision: made.Target.Revision})
	wants(t, "an old revision", err, codes.Aborted,
		fmt.Sprintf("revision=%d: expected %d, which it is at: look at it again", made.Target.Revision,
			changed.Target.Revision))
	_, err = fabric.DeleteTarget(one.context(), &api.DeleteTargetRequest{Host: "alpha", Revision: made.Target.Revision})
	wants(t, "an old revision deleted", err, codes.Aborted,
		fmt.Sprintf("revision=%d: expected %d, which it is at: look at it again", made.Target.Revision,
			changed.Target.Revision))
	if _, err := fabric.DeleteTarget(one.context(), &api.DeleteTargetRequest{
		Host:     "alpha",
		Revision: changed.Target.Revision,
	}); err != nil {
		t.Fatal(err)
	}
	_, err = fabric.DeleteTarget(one.context(), &api.DeleteTargetRequest{Host: "alpha"})
	wants(t, "delete twice", err, codes.NotFound)
}

// Hosts come page by page, by what is asked for of them: those that are declared, and those whose daemons report.
func TestTargets_ListedByPageAndFilter(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	for i := range 5 {
		spec := &api.TargetSpec{Host: fmt.Sprintf("storage%d", i), Rack: fmt.Sprintf("r%d", i%2), Site: "s1"}
		if _, err := one.fabric().CreateTarget(one.context(), &api.CreateTargetRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	one.reportTarget("t1")
	one.reportDrainOf(&api.Agent{Id: "d1", Host: "central1", StoreDir: "/s"})
	list := func(request *api.ListTargetsRequest) (hosts []string) {
		for {
			page, err := one.fabric().ListTargets(one.context(), request)
			if err != nil || request.PageSize > 0 && len(page.Targets) > int(request.PageSize) {
				t.Fatalf("%v: %v, %v", request, page, err)
			}
			for _, target := range page.Targets {
				hosts = append(hosts, target.Host)
			}
			if request.PageToken = page.NextPageToken; request.PageToken == "" {
				return hosts
			}
		}
	}
	for _, test := range []struct {
		request *api.ListTargetsRequest
		want    string
	}{
		{&api.ListTargetsRequest{PageSize: 2}, "alpha storage0 storage1 storage2 storage3 storage4"},
		{&api.ListTargetsRequest{Host: "storage*", Rack: "r1", PageSize: 1}, "storage1 storage3"},
		{&api.ListTargetsRequest{Presence: api.Presence_PRESENCE_ALIVE}, "alpha"},
		{&api.ListTargetsRequest{Presence: api.Presence_PRESENCE_GONE, Host: "alph*"}, ""},
		{&api.ListTargetsRequest{Site: "s2"}, ""},
	} {
		name := test.request.String()
		if got := strings.Join(list(test.request), " "); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	for _, request := range []*api.ListTargetsRequest{{PageSize: 10001}, {PageToken: "!"}, {Host: "["}, {Presence: 9}} {
		if _, err := one.fabric().ListTargets(one.context(), request); status.Code(err) != codes.InvalidArgument ||
			len(problemsIn(err)) != 1 {
			t.Errorf("%v: %v with %q", request, err, problemsIn(err))
		}
	}
	drains, err := one.fabric().ListDrains(one.context(), &api.ListDrainsRequest{})
	if err != nil || len(drains.Drains) != 1 || drains.Drains[0].Host != "central1" ||
		!drains.Drains[0].Agents[0].Alive || drains.Drains[0].Agents[0].StoreDir != "/s" {
		t.Errorf("drains: %v, %v", drains, err)
	}
}

// hostWatch reads a watch of targets until what it knows is as wanted.
type hostWatch struct {
	t      *testing.T
	stream grpc.ServerStreamingClient[api.WatchTargetsResponse]
	known  map[string]string
	last   *api.WatchTargetsResponse
}

func (i *instance) watchTargets(ctx context.Context, known map[string]string, revision int64) *hostWatch {
	i.t.Helper()
	stream, err := i.fabric().WatchTargets(ctx, &api.WatchTargetsRequest{Revision: revision})
	if err != nil {
		i.t.Fatal(err)
	}
	return &hostWatch{t: i.t, stream: stream, known: known}
}

func (w *hostWatch) until(want string) {
	w.t.Helper()
	for {
		var err error
		if w.last, err = w.stream.Recv(); err != nil {
			w.t.Fatalf("waiting for %q: %v, known %v", want, err, w.known)
		}
		if w.last.Snapshot {
			clear(w.known)
		}
		for _, target := range w.last.Targets {
			w.known[target.Host] = fmt.Sprintf("%s rack %s alive %v", target.Host, target.GetSpec().GetRack(),
				target.Presence == api.Presence_PRESENCE_ALIVE)
		}
		for _, host := range w.last.Gone {
			delete(w.known, host)
		}
		var have []string
		for _, host := range slices.Sorted(maps.Keys(w.known)) {
			have = append(have, w.known[host])
		}
		if strings.Join(have, "; ") == want {
			return
		}
	}
}

// A watch tells what there is and then what changes; after a break it goes on from the last revision, with what was
// deleted meanwhile, and where that is no longer known with all there is.
func TestTargets_WatchedAcrossABreak(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	declare := func(host, rack string) {
		t.Helper()
		_, err := one.fabric().CreateTarget(one.context(),
			&api.CreateTargetRequest{Spec: &api.TargetSpec{Host: host, Rack: rack}})
		if status.Code(err) == codes.AlreadyExists {
			_, err = one.fabric().UpdateTarget(one.context(),
				&api.UpdateTargetRequest{Spec: &api.TargetSpec{Host: host, Rack: rack}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	declare("apple", "r1")
	declare("beta", "r1")
	ctx, stop := context.WithTimeout(t.Context(), stepTimeout)
	watch := one.watchTargets(ctx, map[string]string{}, 0)
	watch.until("apple rack r1 alive false; beta rack r1 alive false")
	declare("apple", "r2")
	watch.until("apple rack r2 alive false; beta rack r1 alive false")
	if watch.last.Snapshot || len(watch.last.Targets) != 1 {
		t.Errorf("a change is told as %v", watch.last)
	}
	one.reportTarget("t1")
	watch.until("alpha rack  alive true; apple rack r2 alive false; beta rack r1 alive false")
	stop()
	if _, err := one.fabric().DeleteTarget(one.context(), &api.DeleteTargetRequest{Host: "beta"}); err != nil {
		t.Fatal(err)
	}
	declare("delta", "r3")
	ctx, stop = context.WithTimeout(t.Context(), stepTimeout)
	defer stop()
	resumed := one.watchTargets(ctx, watch.known, watch.last.Revision)
	resumed.until("alpha rack  alive true; apple rack r2 alive false; delta rack r3 alive false")
	if resumed.last.Snapshot || len(resumed.last.Targets) != 1 || !slices.Equal(resumed.last.Gone, []string{"beta"}) {
		t.Errorf("a watch that goes on is told %v", resumed.last)
	}
	// Another control plane has begun after all that: it tells everything, so that what is gone is known to be.
	other := startInstance(t, etcd, false)
	known := map[string]string{"lost": "lost"}
	elsewhere := other.watchTargets(ctx, known, 1)
	elsewhere.until("alpha rack  alive true; apple rack r2 alive false; delta rack r3 alive false")
	if !elsewhere.last.Snapshot {
		t.Errorf("a watch of what is not known any more is told %v", elsewhere.last)
	}
	declare("epsilon", "r4")
	elsewhere.until("alpha rack  alive true; apple rack r2 alive false; delta rack r3 alive false; epsilon rack r4 " +
		"alive false")
}

// Regions, grants and epochs of streams that are written, each without a secret.
func TestRegionsGrantsEpochs_OfAStream(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.reportTarget("t1")
	one.create("desk7/orders")
	one.create("desk7/quotes")
	one.reportTarget("t1", ring("desk7/orders", "t1"), ring("desk7/quotes", "t1"))
	for range 2 {
		if _, err := one.acquire("desk7/orders"); err != nil {
			t.Fatal(err)
		}
	}
	regions, err := one.fabric().ListRegions(one.context(), &api.ListRegionsRequest{Host: "alpha", PageSize: 1})
	if err != nil || len(regions.Regions) != 1 || regions.Regions[0].Stream != "desk7/orders" ||
		regions.Regions[0].State.GetUri() == "" || regions.NextPageToken == "" {
		t.Fatalf("regions: %v, %v", regions, err)
	}
	regions, err = one.fabric().ListRegions(one.context(),
		&api.ListRegionsRequest{Host: "alpha", PageSize: 1, PageToken: regions.NextPageToken})
	if err != nil || len(regions.Regions) != 1 || regions.Regions[0].Stream != "desk7/quotes" ||
		regions.NextPageToken != "" {
		t.Errorf("second page of regions: %v, %v", regions, err)
	}
	grants, err := one.fabric().ListGrants(one.context(),
		&api.ListGrantsRequest{Role: api.GrantRole_GRANT_ROLE_WRITER, Host: "h"})
	if err != nil || len(grants.Grants) != 1 || grants.Grants[0].Epoch != 2 || grants.Grants[0].Holder.GetPid() != 1 ||
		grants.Grants[0].Fenced || !slices.Equal(grants.Grants[0].Targets, []string{"t1"}) {
		t.Errorf("grants: %v, %v", grants, err)
	}
	raw, err := protojson.Marshal(grants)
	if err != nil || strings.Contains(string(raw), "token\"") {
		t.Errorf("grants say %s, %v", raw, err)
	}
	epochs, err := one.fabric().ListEpochs(one.context(), &api.ListEpochsRequest{Stream: "desk7/*"})
	if err != nil || len(epochs.Epochs) != 2 || epochs.Epochs[0].Granted != 2 || epochs.Epochs[0].HolderEpoch != 2 ||
		len(epochs.Epochs[0].Members) != 1 || epochs.Epochs[1].Granted != 0 {
		t.Errorf("epochs: %v, %v", epochs, err)
	}
}
