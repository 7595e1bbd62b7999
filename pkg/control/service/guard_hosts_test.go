package service

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// twoDesks gives one identity two desks, each on a host of its own.
const twoDesks = `
rules:
- {identities: [spiffe://farlog/farlog/host/bank], roles: [append, drain], streams: [desk7/*], hosts: [h1]}
- {identities: [spiffe://farlog/farlog/host/bank], roles: [append, drain], streams: [desk8/*], hosts: [h2]}
`

// A rule gives its streams on its hosts: those of another rule's streams it does not give there.
func TestGuard_StreamsOfARuleOnItsHostsOnly(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, twoDesks)
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	for _, name := range []string{"desk7/orders", "desk8/orders"} {
		if _, err := admin.CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	route := &api.RouteSpec{
		Name:  "desk7/all",
		Rules: []*api.RouteRule{{Legs: []*api.RouteLeg{{Stream: "desk7/orders"}}}},
	}
	if _, err := admin.CreateRoute(t.Context(), &api.CreateRouteRequest{Spec: route}); err != nil {
		t.Fatal(err)
	}
	bank := api.NewControlServiceClient(g.dial(g.keeper(identity.KindHost, "bank", time.Hour)))
	for name, ask := range map[string]func(context.Context, string) error{
		"AcquireWriter": func(ctx context.Context, host string) error {
			_, err := bank.AcquireWriter(ctx, &api.AcquireWriterRequest{
				Stream: "desk7/orders",
				Holder: &api.Holder{Host: host},
			})
			return err
		},
		"ExtendWriter": func(ctx context.Context, host string) error {
			_, err := bank.ExtendWriter(ctx, &api.ExtendWriterRequest{
				Stream: "desk7/orders", Epoch: 1,
				Holder: &api.Holder{Host: host},
			})
			return err
		},
		"AcquireRoute": func(ctx context.Context, host string) error {
			_, err := bank.AcquireRoute(ctx, &api.AcquireRouteRequest{
				Route:  "desk7/all",
				Holder: &api.Holder{Host: host},
			})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		if err := ask(ctx, "h2"); status.Code(err) != codes.PermissionDenied ||
			!strings.Contains(err.Error(), `"desk7/`) || !strings.Contains(err.Error(), "expected host h1") {
			t.Errorf("%s for h2: %v, expected to be refused desk7's from there", name, err)
		}
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond) // there is no ring to be granted
		if err := ask(ctx, "h1"); status.Code(err) == codes.PermissionDenied {
			t.Errorf("%s for h1: %v", name, err)
		}
		cancel()
	}
}

// A drain on one of a rule's hosts is given the streams of that rule alone.
func TestGuard_DrainOnItsHostsStreamsOnly(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, twoDesks)
	admin := api.NewControlServiceClient(g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour)))
	drain := api.NewDrainServiceClient(g.dial(g.keeper(identity.KindHost, "bank", time.Hour)))
	agent := &api.Agent{Id: "h2-00000000", Host: "h2"}
	if _, err := drain.ReportDrain(t.Context(),
		&api.ReportDrainRequest{State: &api.DrainState{Agent: agent}}); err != nil {
		t.Fatal(err)
	}
	list, err := admin.ListAgents(t.Context(), &api.ListAgentsRequest{})
	if err != nil || len(list.Drains) != 1 {
		t.Fatalf("listed %v, %v", list, err)
	}
	if streams := list.Drains[0].Agent.Streams; !slices.Equal(streams, []string{"desk8/*"}) {
		t.Errorf("a drain on h2 may be given %v, expected desk8/* alone", streams)
	}
}
