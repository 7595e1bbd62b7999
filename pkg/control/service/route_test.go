package service

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/deletion"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/identity"
)

func routeTrials() map[string]trial {
	spec := &api.RouteSpec{
		Name:  "desk7/all",
		Rules: []*api.RouteRule{{Legs: []*api.RouteLeg{{Stream: "desk7/orders"}}}},
	}
	call := func(do func(context.Context, api.ControlServiceClient) error) trial {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return do(ctx, api.NewControlServiceClient(conn))
		}
	}
	return map[string]trial{
		"CreateRoute": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.CreateRoute(ctx, &api.CreateRouteRequest{Spec: spec})
			return err
		}),
		"UpdateRoute": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.UpdateRoute(ctx, &api.UpdateRouteRequest{Spec: spec})
			return err
		}),
		"DeleteRoute": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.DeleteRoute(ctx, &api.DeleteRouteRequest{Name: spec.Name, DryRun: true})
			return err
		}),
		"ListRoutes": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.ListRoutes(ctx, &api.ListRoutesRequest{})
			return err
		}),
		"GetRoute": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.GetRoute(ctx, &api.GetRouteRequest{Name: spec.Name})
			return err
		}),
		"AcquireRoute": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.AcquireRoute(ctx, &api.AcquireRouteRequest{Route: "desk7/none"})
			return err
		}),
		"AcquireReader": call(func(ctx context.Context, client api.ControlServiceClient) error {
			_, err := client.AcquireReader(ctx, &api.AcquireReaderRequest{Stream: "desk7/orders"})
			return err
		}),
		"WatchRoutes": call(func(ctx context.Context, client api.ControlServiceClient) error {
			watch, err := client.WatchRoutes(ctx, &api.WatchRoutesRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			return err
		}),
	}
}

// route is a spec of rules in words: "to STREAM" is a leg, "by ROUTE" another route; "1-3:by x" only for these classes.
func route(name string, rules ...string) *api.RouteSpec {
	spec := &api.RouteSpec{Name: name}
	for _, text := range rules {
		rule := new(api.RouteRule)
		if classes, rest, ok := strings.Cut(text, ":"); ok {
			one := new(api.ClassRange)
			fmt.Sscanf(classes, "%d-%d", &one.First, &one.Last)
			rule.Classes, text = append(rule.Classes, one), rest
		}
		if way, ok := strings.CutPrefix(text, "by "); ok {
			rule.Route = way
		} else if stream, ok := strings.CutPrefix(text, "to "); ok {
			rule.Legs = append(rule.Legs, &api.RouteLeg{Stream: stream})
		}
		spec.Rules = append(spec.Rules, rule)
	}
	return spec
}

func TestApplyFabric_Routes(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("there")
	wanted := &api.Fabric{
		Streams: []*api.StreamSpec{{Name: "orders"}, {Name: "fills"}},
		Routes: []*api.RouteSpec{
			route("all", "to orders", "1-9:by some"),
			route("some", "5-20:to fills", "30-40:to there"),
		},
	}
	done, err := one.apply(&api.ApplyFabricRequest{Fabric: wanted})
	if got := changesText(done.GetChanges()); err != nil ||
		got != "stream orders new; stream fills new; route all new; route some new" {
		t.Fatalf("got %q, %v", got, err)
	}
	got, err := one.control.GetRoute(one.context(), &api.GetRouteRequest{Name: "all"})
	var rules []string
	for _, rule := range got.GetResolved() {
		rules = append(rules, fabric.RuleText(rule))
	}
	want := []string{"all => orders required fail", "classes 5-9 => fills required fail"}
	if err != nil || !slices.Equal(rules, want) {
		t.Errorf("resolved %q, %v, want %q", rules, err, want)
	}
	exported, err := one.control.GetFabric(one.context(), &api.GetFabricRequest{})
	if err != nil {
		t.Fatal(err)
	}
	again, err := one.apply(&api.ApplyFabricRequest{Fabric: exported.Fabric, Revision: done.Revision})
	if err != nil || len(again.Changes)+len(again.Undeclared) != 0 {
		t.Errorf("exported and applied: %v, %v", again, err)
	}
	wanted.Routes[1].Rules[0].CriticalityMin = 3
	changed, err := one.apply(&api.ApplyFabricRequest{Fabric: wanted, DryRun: true})
	if got := changesText(changed.GetChanges()); err != nil ||
		got != "route some rules[0] classes 5-20 => fills required fail->classes 5-20 criticality 3 => fills "+
			"required fail" {
		t.Errorf("got %q, %v", got, err)
	}
	one.dropRoutes(wanted)
}

// dropRoutes lets a stream go only when no route selects it, and a route likewise.
func (i *instance) dropRoutes(fabric *api.Fabric) {
	i.t.Helper()
	if _, err := i.control.DeleteStream(i.context(), &api.DeleteStreamRequest{
		Name:   "fills",
		DryRun: true,
	}); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), `route "some" selects it`) {
		i.t.Errorf("stream of a route: %v", err)
	}
	if _, err := i.control.DeleteRoute(i.context(),
		&api.DeleteRouteRequest{Name: "some"}); status.Code(err) != codes.FailedPrecondition ||
		!strings.Contains(err.Error(), `route "all" selects it`) {
		i.t.Errorf("route of a route: %v", err)
	}
	fabric.Routes = nil
	pruned, err := i.apply(&api.ApplyFabricRequest{Fabric: fabric, Prune: true, DryRun: true})
	if !slices.ContainsFunc(problemsIn(err), func(text string) bool {
		return strings.HasPrefix(text,
			`fabric.streams="there"`)
	}) && err != nil {
		i.t.Errorf("pruned: %v, %v", pruned, err)
	}
	fabric.Streams = append(fabric.Streams, &api.StreamSpec{Name: "there", RingSizeBytes: i.streamSize("there")})
	pruned, err = i.apply(&api.ApplyFabricRequest{Fabric: fabric, Prune: true})
	if err != nil || len(pruned.Changes) != 2 || !pruned.Changes[0].Deleted {
		i.t.Errorf("pruned: %v, %v", pruned, err)
	}
	if list, err := i.control.ListRoutes(i.context(), &api.ListRoutesRequest{}); err != nil || len(list.Routes) != 0 {
		i.t.Errorf("left: %v, %v", list, err)
	}
}

func (i *instance) streamSize(name string) uint64 {
	got, err := i.control.GetStream(i.context(), &api.GetStreamRequest{Name: name})
	if err != nil {
		i.t.Fatal(err)
	}
	return got.Stream.Stream.Spec.RingSizeBytes
}

func TestApplyFabric_AllProblemsOfRoutes(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	wrong := route("x", "to a", "to ", "to nowhere", "by none", "to a", "to farlog/audit")
	wrong.Rules[0].Legs[0].Policy, wrong.Rules[0].CriticalityMin = api.LegPolicy_LEG_POLICY_DROP, 300
	wrong.Rules = append(wrong.Rules, &api.RouteRule{
		Classes: []*api.ClassRange{{First: 9, Last: 3}},
		Legs:    []*api.RouteLeg{{Stream: "b", Optional: true, BufferSizeBytes: 5}},
	}, &api.RouteRule{})
	_, err := one.apply(&api.ApplyFabricRequest{Fabric: &api.Fabric{
		Streams: []*api.StreamSpec{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Routes: []*api.RouteSpec{
			wrong, route("one", "by two"), route("two", "to a", "by three"), route("three", "to b", "by one"),
			route("self", "by self"), route("one"),
			route("twice", "by deep", "to c"), route("deep", "to c"),
		},
	}})
	got := problemsIn(err)
	for _, want := range []string{
		`fabric.routes[0].rules[0].legs[0].policy=drop: expected fail or spill`,
		`fabric.routes[0].rules[0].criticality_min=300: expected 0 to 255`,
		`fabric.routes[0].rules[1].legs[0].stream="": expected the name of a stream`,
		`fabric.routes[0].rules[7].legs=0 of them: expected at least one leg with a stream, or else a route`,
		`fabric.routes[0].rules[2].legs[0].stream="nowhere": expected a stream under streams`,
		`fabric.routes[0].rules[3].route="none": expected a route that is declared`,
		`fabric.routes[0].rules[4].legs[0].stream="a": expected each stream once in a route: rules[0].legs[0] is ` +
			`the same`,
		`fabric.routes[0].rules[5].legs[0].stream="farlog/audit": expected a stream of yours`,
		`fabric.routes[0].rules[6].classes[0].last=3: expected a class from 0 to 65535`,
		`fabric.routes[0].rules[6].legs[0].buffer_size_bytes=5: expected a multiple of 4096 bytes`,
		`fabric.routes[1].rules[0].route="two": expected a route that does not lead back: one -> two -> three -> one`,
		`fabric.routes[2].rules[1].route="three": expected a route that does not lead back: two -> three -> one -> two`,
		`fabric.routes[3].rules[1].route="one": expected a route that does not lead back: three -> one -> two -> three`,
		`fabric.routes[4].rules[0].route="self": expected a route that does not lead back: self -> self`,
		`fabric.routes[5].rules=`,
		`fabric.routes[5].name="one": expected each name once: routes[1] is the same`,
		`fabric.routes[6].rules="twice": expected each stream in one rule`,
	} {
		if !slices.ContainsFunc(got, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("not told: %s", want)
		}
	}
	if status.Code(err) != codes.InvalidArgument || len(got) != 17 {
		t.Errorf("told %d problems:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// A route that is right alone may make another one wrong that selects it.
func TestCreateRoute_AmongOthers(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	for _, name := range []string{"a", "b"} {
		one.create(name)
	}
	create := func(spec *api.RouteSpec) (*api.CreateRouteResponse, error) {
		return one.control.CreateRoute(one.context(), &api.CreateRouteRequest{Spec: spec})
	}
	first, err := create(route("low", "to a"))
	if err != nil || !first.Created || first.Route.Revision == 0 {
		t.Fatalf("got %v, %v", first, err)
	}
	if again, err := create(route("low", "to a")); err != nil || again.Created ||
		!proto.Equal(again.Route.Spec, first.Route.Spec) {
		t.Errorf("again: %v, %v", again, err)
	}
	if _, err := create(route("low", "to b")); status.Code(err) != codes.AlreadyExists {
		t.Errorf("another one: %v", err)
	}
	if _, err := create(route("high", "by low", "to b")); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []*api.RouteSpec{
		route("low", "to a", "by high"), route("low", "to a", "to b"),
		route("low", "to c"), route("low"),
	} {
		if _, err := one.control.UpdateRoute(one.context(),
			&api.UpdateRouteRequest{Spec: bad}); status.Code(err) != codes.InvalidArgument ||
			len(problemsIn(err)) == 0 {
			t.Errorf("%v: %v", bad, err)
		}
	}
	spec := route("low", "to a")
	spec.Rules[0].CriticalityMin = 1
	changed, err := one.control.UpdateRoute(one.context(),
		&api.UpdateRouteRequest{Spec: spec, Revision: first.Route.Revision})
	if err != nil || len(changed.Fields) != 1 || changed.Route.Revision <= first.Route.Revision {
		t.Fatalf("got %v, %v", changed, err)
	}
	spec.Rules[0].CriticalityMin = 2
	if _, err := one.control.UpdateRoute(one.context(),
		&api.UpdateRouteRequest{Spec: spec, Revision: first.Route.Revision}); status.Code(err) != codes.Aborted {
		t.Errorf("an old revision: %v", err)
	}
	for page, token := range []string{"", pageToken("high")} {
		list, err := one.control.ListRoutes(one.context(), &api.ListRoutesRequest{PageSize: 1, PageToken: token})
		if err != nil || len(list.Routes) != 1 || list.Routes[0].Spec.Name != []string{"high", "low"}[page] ||
			(list.NextPageToken == "") != (page == 1) {
			t.Errorf("page %d: %v, %v", page, list, err)
		}
	}
	if list, err := one.control.ListRoutes(one.context(), &api.ListRoutesRequest{Stream: "b"}); err != nil ||
		len(list.Routes) != 1 {
		t.Errorf("of stream b: %v, %v", list, err)
	}
}

// Two who each make one half of a circle at the same moment do not both get it; and a route is not left with a stream
// that goes at the same moment.
func TestRoutes_GuardedAgainstEachOther(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	one := startInstance(t, etcd, true)
	one.create("a")
	one.create("b")
	m := state.NewMirror(etcd.Client(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { m.Run(ctx) })
	t.Cleanup(following.Wait)
	t.Cleanup(cancel)
	for _, spec := range []*api.RouteSpec{route("left", "to a"), route("right", "to b")} {
		if _, err := one.control.CreateRoute(one.context(), &api.CreateRouteRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	// by both, before either wrote
	seen, err := m.Wait(one.context(), func(v *state.View) bool { return len(v.Routes) == 2 })
	if err != nil {
		t.Fatal(err)
	}
	revision, err := fabric.WriteRoute(one.context(), etcd.Client(), seen,
		check.RouteWithDefaults(route("left", "to a", "by right")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fabric.WriteRoute(one.context(), etcd.Client(), seen,
		check.RouteWithDefaults(route("right", "to b", "by left"))); status.Code(err) != codes.Aborted {
		t.Errorf("the other half: %v", err)
	}
	if _, err := fabric.DeleteRoute(one.context(), etcd.Client(), seen, "right"); status.Code(err) != codes.Aborted {
		t.Errorf("selected meanwhile, and deleted: %v", err)
	}
	if _, err := deletion.Begin(one.context(), etcd.Client(), seen, seen.Revision,
		deletion.New(seen, "b", false, "test")); status.Code(err) != codes.Aborted {
		t.Errorf("a stream, when routes have changed: %v", err)
	}
	if err := m.WaitRevision(one.context(), revision); err != nil {
		t.Fatal(err)
	}
	seen, _ = m.Load()
	if _, err := fabric.DeleteRoute(one.context(), etcd.Client(), seen, "left"); err != nil {
		t.Fatal(err)
	}
	if _, err := fabric.WriteRoute(one.context(), etcd.Client(), seen,
		check.RouteWithDefaults(route("right", "by left"))); status.Code(err) != codes.Aborted {
		t.Errorf("by one that is gone: %v", err)
	}
}

// Who watches learns of what was made, changed and taken away, also behind a break.
func TestWatchRoutes_TellsTheWholeTruth(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	one.create("a")
	revision := int64(0)
	receive := func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		defer cancel()
		watch, err := one.control.WatchRoutes(ctx, &api.WatchRoutesRequest{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		message, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		revision = message.Revision
		var texts []string
		for _, one := range message.Routes {
			texts = append(texts, one.Route.Spec.Name+": "+fabric.RuleText(one.Resolved[0]))
		}
		return strings.Join(texts, "; ")
	}
	if got := receive(); got != "" {
		t.Errorf("at first %q", got)
	}
	if _, err := one.control.CreateRoute(one.context(), &api.CreateRouteRequest{Spec: route("r", "to a")}); err != nil {
		t.Fatal(err)
	}
	if got := receive(); got != "r: all => a required fail" {
		t.Errorf("made: %q", got)
	}
	if _, err := one.control.DeleteRoute(one.context(), &api.DeleteRouteRequest{Name: "r"}); err != nil {
		t.Fatal(err)
	}
	if got := receive(); got != "" {
		t.Errorf("taken away: %q", got)
	}
}

// Somebody with a role on some names sees no other route, and gets no stream by way of one.
func TestGuard_RoutesOfARole(t *testing.T) {
	t.Parallel()
	g := startGuarded(t,
		"rules:\n- {identities: [spiffe://farlog/farlog/host/desk7], roles: [append], streams: [desk7/*]}\n")
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	desk7 := api.NewControlServiceClient(g.dial(g.keeper(identity.KindHost, "desk7", time.Hour)))
	for _, name := range []string{"desk7/orders", "desk8/orders"} {
		if _, err := admin.CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, spec := range []*api.RouteSpec{
		route("desk7/all", "to desk7/orders", "to desk8/orders"),
		route("desk8/all", "to desk7/orders"),
	} {
		if _, err := admin.CreateRoute(t.Context(), &api.CreateRouteRequest{Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := desk7.ListRoutes(t.Context(), &api.ListRoutesRequest{}); err != nil || len(list.Routes) != 1 {
		t.Errorf("listed %v, %v", list, err)
	}
	watchAsDesk7(t, admin, desk7)
	for _, name := range []string{"desk7/all", "desk8/all"} {
		if _, err := desk7.AcquireRoute(t.Context(),
			&api.AcquireRouteRequest{Route: name}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// watchAsDesk7 watches as somebody who has a role on desk7/* alone: of a route that is not his he receives neither what
// it is nor that it has changed, whatever he asks for.
func watchAsDesk7(t *testing.T, admin, desk7 api.ControlServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	var watches []grpc.ServerStreamingClient[api.WatchRoutesResponse]
	receive := func(want string) {
		t.Helper()
		for i, watch := range watches {
			message, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, one := range message.Routes {
				names = append(names, one.Route.Spec.Name)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("watch %d is told of %q, expected %q", i, got, want)
			}
		}
	}
	for _, name := range []string{"", "desk7/*", "**"} {
		watch, err := desk7.WatchRoutes(ctx, &api.WatchRoutesRequest{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		watches = append(watches, watch)
	}
	receive("desk7/all")
	if _, err := admin.UpdateRoute(ctx, &api.UpdateRouteRequest{Spec: route("desk8/all",
		"to desk8/orders")}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateRoute(ctx, &api.CreateRouteRequest{Spec: route("desk7/more",
		"to desk7/orders")}); err != nil {
		t.Fatal(err)
	}
	receive("desk7/all desk7/more")
	other, err := desk7.WatchRoutes(ctx, &api.WatchRoutesRequest{Name: "desk8/*"})
	if err != nil {
		t.Fatal(err)
	}
	if message, err := other.Recv(); err != nil || len(message.Routes) != 0 {
		t.Errorf("of desk8: told %v, %v", message, err)
	}
}
