//go:build cgo

package main

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// returning is a control plane that is not there for so many questions.
type returning struct {
	api.ControlServiceClient
	away int
}

func (r *returning) GetRoute(context.Context, *api.GetRouteRequest, ...grpc.CallOption) (*api.GetRouteResponse, error) {
	if r.away--; r.away >= 0 {
		return nil, status.Error(codes.Unavailable, "connection refused")
	}
	return &api.GetRouteResponse{Resolved: []*api.RouteRule{{Legs: []*api.RouteLeg{{Stream: "desk7/orders"}}}}}, nil
}

// A program that opens a route while the control plane starts again waits for it, as one that opens a stream does.
func TestHostRole_RouteWaitsForTheControlPlane(t *testing.T) {
	role := &hostRole{client: &returning{away: 2}}
	legs, err := role.route(t.Context(), "all")
	if err != nil || len(legs) != 1 || legs[0].Stream != "desk7/orders" {
		t.Errorf("%v, %v", legs, err)
	}
}
