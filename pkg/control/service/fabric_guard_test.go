package service

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// asked makes a trial of a call with one answer.
func asked[Q, A any](call func(api.FabricServiceClient, context.Context, Q, ...grpc.CallOption) (A, error),
	request Q,
) trial {
	return func(ctx context.Context, conn *grpc.ClientConn) error {
		_, err := call(api.NewFabricServiceClient(conn), ctx, request)
		return err
	}
}

// watched makes a trial of a call with many, and takes the first.
func watched[Q, A any](call func(api.FabricServiceClient, context.Context, Q,
	...grpc.CallOption) (grpc.ServerStreamingClient[A], error), request Q,
) trial {
	return func(ctx context.Context, conn *grpc.ClientConn) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch, err := call(api.NewFabricServiceClient(conn), ctx, request)
		if err == nil {
			_, err = watch.Recv()
		}
		return err
	}
}

// fabricTrials are the calls of FabricService.
func fabricTrials() map[string]trial {
	target, drain := &api.TargetSpec{Host: "alpha"}, &api.DrainSpec{Host: "alpha"}
	return map[string]trial{
		"ListTargets":  asked(api.FabricServiceClient.ListTargets, &api.ListTargetsRequest{}),
		"GetTarget":    asked(api.FabricServiceClient.GetTarget, &api.GetTargetRequest{Host: "alpha"}),
		"CreateTarget": asked(api.FabricServiceClient.CreateTarget, &api.CreateTargetRequest{Spec: target}),
		"UpdateTarget": asked(api.FabricServiceClient.UpdateTarget, &api.UpdateTargetRequest{Spec: target}),
		"DeleteTarget": asked(api.FabricServiceClient.DeleteTarget, &api.DeleteTargetRequest{Host: "alpha"}),
		"WatchTargets": watched(api.FabricServiceClient.WatchTargets, &api.WatchTargetsRequest{}),
		"ListDrains":   asked(api.FabricServiceClient.ListDrains, &api.ListDrainsRequest{}),
		"GetDrain":     asked(api.FabricServiceClient.GetDrain, &api.GetDrainRequest{Host: "alpha"}),
		"CreateDrain":  asked(api.FabricServiceClient.CreateDrain, &api.CreateDrainRequest{Spec: drain}),
		"UpdateDrain":  asked(api.FabricServiceClient.UpdateDrain, &api.UpdateDrainRequest{Spec: drain}),
		"DeleteDrain":  asked(api.FabricServiceClient.DeleteDrain, &api.DeleteDrainRequest{Host: "alpha"}),
		"WatchDrains":  watched(api.FabricServiceClient.WatchDrains, &api.WatchDrainsRequest{}),
		"ListRegions":  asked(api.FabricServiceClient.ListRegions, &api.ListRegionsRequest{}),
		"WatchRegions": watched(api.FabricServiceClient.WatchRegions, &api.WatchRegionsRequest{}),
		"WatchGrants":  watched(api.FabricServiceClient.WatchGrants, &api.WatchGrantsRequest{}),
		"WatchEpochs":  watched(api.FabricServiceClient.WatchEpochs, &api.WatchEpochsRequest{}),
		"ListGrants":   asked(api.FabricServiceClient.ListGrants, &api.ListGrantsRequest{}),
		"ListHosts":    asked(api.FabricServiceClient.ListHosts, &api.ListHostsRequest{}),
		"ListEpochs":   asked(api.FabricServiceClient.ListEpochs, &api.ListEpochsRequest{}),
	}
}

// A host is every stream's: an administrator of some streams changes nothing of it. What belongs to streams is told of
// his only.
func TestGuard_HostsNeedTheRoleOnAllStreams(t *testing.T) {
	t.Parallel()
	g := startGuarded(t,
		"rules: [{identities: [spiffe://farlog/farlog/host/desk7], roles: [admin], streams: ['desk7/**']}]\n")
	ada := g.dial(g.keeper(identity.KindAdmin, "ada", time.Hour))
	for _, name := range []string{"desk7/orders", "desk8/orders"} {
		if _, err := api.NewControlServiceClient(ada).CreateStream(t.Context(),
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	conn := g.dial(g.keeper(identity.KindHost, "desk7", time.Hour))
	for name, try := range fabricTrials() {
		isChange := len(name) > 6 && (name[:6] == "Create" || name[:6] == "Update" || name[:6] == "Delete")
		if err := try(t.Context(), conn); isChange != (status.Code(err) == codes.PermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	epochs, err := api.NewFabricServiceClient(conn).ListEpochs(t.Context(), &api.ListEpochsRequest{})
	if err != nil || len(epochs.Epochs) != 1 || epochs.Epochs[0].Stream != "desk7/orders" {
		t.Errorf("got %v, %v, want what belongs to desk7/orders", epochs, err)
	}
}
