//go:build cgo

package main

import (
	"context"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/hostagent"
)

// route asks the control plane for the legs of a route, with those of the routes that it selects.
func (r *hostRole) route(ctx context.Context, name string) (legs []hostagent.RouteLeg, err error) {
	asked := &api.GetRouteRequest{Name: name}
	response, err := api.Retry(ctx, func() (*api.GetRouteResponse, error) { return r.client.GetRoute(ctx, asked) })
	if err != nil {
		return nil, refusalOf(err)
	}
	for _, rule := range response.Resolved {
		var classes [][2]uint32
		for _, one := range rule.Classes {
			classes = append(classes, [2]uint32{one.First, one.Last})
		}
		for _, leg := range rule.Legs {
			legs = append(legs, hostagent.RouteLeg{
				Stream: leg.Stream, IsOptional: leg.Optional,
				Policy:   strings.ToLower(strings.TrimPrefix(leg.Policy.String(), "LEG_POLICY_")),
				Level:    uint32(leg.Level),
				Deadline: leg.Deadline.AsDuration(), BufferBytes: leg.BufferSizeBytes,
				CriticalityMin: rule.CriticalityMin, Classes: classes,
			})
		}
	}
	return legs, nil
}
