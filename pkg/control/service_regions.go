package control

import (
	"cmp"
	"context"
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// ListRegions implements farlog.v1.FabricService.
func (s *Server) ListRegions(ctx context.Context, request *api.ListRegionsRequest) (*api.ListRegionsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	streams, err := now.streamsNamed(callerOf(ctx), api.FabricService_ListRegions_FullMethodName, "stream", request.Stream)
	if err != nil {
		return nil, err
	}
	response := &api.ListRegionsResponse{Revision: now.revision}
	response.Regions, response.NextPageToken, err = onePageOfStreams(request, streams, func(stream string) (found []keyed[*api.RegionInfo]) {
		specs, _ := reconcile.RingSpecs(now.rings, now.streams[stream])
		for i, spec := range specs {
			if spec == nil {
				continue
			}
			if one := now.region(stream, i, spec); isRegionListed(one, request) {
				found = append(found, keyed[*api.RegionInfo]{fmt.Sprintf("%03d", i), one})
			}
		}
		return found
	})
	return response, err
}

// region is one ring, wanted and seen.
func (v *view) region(stream string, member int, spec *api.RingSpec) *api.RegionInfo {
	live := v.liveTargets[spec.Target]
	return &api.RegionInfo{
		Stream: stream, Member: uint32(member), Target: spec.Target, RingUuid: spec.RingUuid, IsTargetAlive: live != nil,
		Host: cmp.Or(live.GetHost(), v.targets[spec.Target].GetAgent().GetHost()), State: reconcile.SeenRing(v.targets, spec),
	}
}

func isRegionListed(one *api.RegionInfo, request *api.ListRegionsRequest) bool {
	return (request.Target == "" || one.Target == request.Target) && (request.Host == "" || one.Host == request.Host) &&
		(request.Kind == "" || one.State.GetContract().GetKind() == request.Kind) && (!request.IsInError || one.State.GetError() != "")
}
