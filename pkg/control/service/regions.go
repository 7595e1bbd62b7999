package service

import (
	"cmp"
	"context"
	"fmt"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// ListRegions implements farlog.v1.FabricService.
func (s *Server) ListRegions(ctx context.Context, request *api.ListRegionsRequest) (*api.ListRegionsResponse, error) {
	now := s.view()
	streams, err := streamsNamed(now, callerOf(ctx), api.FabricService_ListRegions_FullMethodName, "stream",
		request.Stream)
	if err != nil {
		return nil, err
	}
	response := &api.ListRegionsResponse{Revision: now.Revision}
	response.Regions, response.NextPageToken, err = onePageOfStreams(request, streams,
		func(stream string) (found []keyed[*api.RegionInfo]) {
			for _, one := range regionsOf(now, stream, request) {
				found = append(found, keyed[*api.RegionInfo]{fmt.Sprintf("%03d", one.Member), one})
			}
			return found
		})
	return response, err
}

// WatchRegions implements farlog.v1.FabricService.
func (s *Server) WatchRegions(request *api.WatchRegionsRequest,
	stream grpc.ServerStreamingServer[api.WatchRegionsResponse],
) error {
	return watchStreams(s, stream.Context(), streamsWatch[*api.RegionInfo]{
		method: api.FabricService_WatchRegions_FullMethodName, named: request.Stream, revision: request.Revision,
		of: func(now *state.View, stream string) []*api.RegionInfo { return regionsOf(now, stream, request) },
		send: func(told streamsPart[*api.RegionInfo]) error {
			return stream.Send(&api.WatchRegionsResponse{
				Revision: told.revision, Regions: told.items,
				Streams: told.streams, Snapshot: told.isAll,
			})
		},
	})
}

// regionsOf lists the rings of a stream that are asked for.
func regionsOf(v *state.View, stream string, asked regionsAsked) (found []*api.RegionInfo) {
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[stream])
	for i, spec := range specs {
		if spec == nil {
			continue
		}
		if one := regionInfo(v, stream, i, spec); isRegionListed(one, asked) {
			found = append(found, one)
		}
	}
	return found
}

// regionInfo is one ring, wanted and seen.
func regionInfo(v *state.View, stream string, member int, spec *api.RingSpec) *api.RegionInfo {
	live := v.LiveTargets[spec.Target]
	return &api.RegionInfo{
		Stream: stream, Member: uint32(member), Target: spec.Target, RingUuid: spec.RingUuid,
		TargetAlive: live != nil,
		Host:        cmp.Or(live.GetHost(), v.Targets[spec.Target].GetAgent().GetHost()),
		State:       reconcile.SeenRing(v.Targets, spec),
	}
}

// regionsAsked is a request for rings.
type regionsAsked interface {
	GetTarget() string
	GetHost() string
	GetKind() string
	GetInError() bool
}

func isRegionListed(one *api.RegionInfo, asked regionsAsked) bool {
	return (asked.GetTarget() == "" || one.Target == asked.GetTarget()) &&
		(asked.GetHost() == "" || one.Host == asked.GetHost()) &&
		(asked.GetKind() == "" || one.State.GetContract().GetKind() == asked.GetKind()) &&
		(!asked.GetInError() || one.State.GetError() != "")
}
