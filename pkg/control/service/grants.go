package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// ListGrants implements farlog.v1.FabricService.
func (s *Server) ListGrants(ctx context.Context, request *api.ListGrantsRequest) (*api.ListGrantsResponse, error) {
	now := s.view()
	streams, err := streamsNamed(now, callerOf(ctx), api.FabricService_ListGrants_FullMethodName, "stream",
		request.Stream)
	if err != nil {
		return nil, err
	}
	response := &api.ListGrantsResponse{Revision: now.Revision}
	response.Grants, response.NextPageToken, err = onePageOfStreams(request, streams,
		func(stream string) (found []keyed[*api.GrantInfo]) {
			for _, one := range grantsAsked(now, stream, request) {
				found = append(found, keyed[*api.GrantInfo]{fmt.Sprintf("%d %020d", one.Role,
					max(uint64(one.Epoch), one.Generation)), one})
			}
			return found
		})
	return response, err
}

// WatchGrants implements farlog.v1.FabricService.
func (s *Server) WatchGrants(request *api.WatchGrantsRequest,
	stream grpc.ServerStreamingServer[api.WatchGrantsResponse],
) error {
	return watchStreams(s, stream.Context(), streamsWatch[*api.GrantInfo]{
		method: api.FabricService_WatchGrants_FullMethodName, named: request.Stream, revision: request.Revision,
		of: func(now *state.View, stream string) []*api.GrantInfo { return grantsAsked(now, stream, request) },
		send: func(told streamsPart[*api.GrantInfo]) error {
			return stream.Send(&api.WatchGrantsResponse{
				Revision: told.revision, Grants: told.items,
				Streams: told.streams, Snapshot: told.isAll,
			})
		},
	})
}

// grantsAsked lists the grants of a stream that a request is for.
func grantsAsked(v *state.View, stream string, asked interface {
	GetRole() api.GrantRole
	GetHost() string
},
) []*api.GrantInfo {
	return slices.DeleteFunc(grantsOf(v, stream), func(one *api.GrantInfo) bool {
		return asked.GetRole() != 0 && one.Role != asked.GetRole() || asked.GetHost() != "" &&
			hostOf(v, one) != asked.GetHost()
	})
}

// hostOf is where a grant's holder is; "": not known.
func hostOf(v *state.View, grant *api.GrantInfo) string {
	return cmp.Or(grant.Holder.GetHost(), v.LiveDrains[grant.Drain].GetHost(),
		v.Drains[grant.Drain].GetAgent().GetHost())
}

// grantsOf lists who may do what with a stream, by role and epoch or generation: the last writer, the drain that it is
// assigned to, and whom its rings' targets are told to let in.
func grantsOf(v *state.View, stream string) (found []*api.GrantInfo) {
	of := func(role api.GrantRole, number uint64) *api.GrantInfo {
		for _, one := range found {
			if one.Role == role && max(uint64(one.Epoch), one.Generation) == number {
				return one
			}
		}
		one := &api.GrantInfo{Stream: stream, Role: role, Generation: number}
		if role == api.GrantRole_GRANT_ROLE_WRITER {
			one.Epoch, one.Generation = uint32(number), 0
		}
		found = append(found, one)
		return one
	}
	if last := v.Grants[stream]; last != nil {
		one := of(api.GrantRole_GRANT_ROLE_WRITER, uint64(last.Epoch))
		one.Holder, one.GrantTime, one.Addresses = last.Holder, last.GrantTime, last.GetHolder().GetAddresses()
		for _, member := range last.Members {
			one.Targets = append(one.Targets, member.Target)
		}
	}
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[stream])
	if given := v.Assignments[stream]; given != nil {
		one := of(api.GrantRole_GRANT_ROLE_DRAIN, given.Generation)
		one.Drain, one.Addresses = given.Drain, v.LiveDrains[given.Drain].GetAddresses()
		for _, spec := range specs {
			one.Targets = append(one.Targets, spec.GetTarget())
		}
	}
	for i, spec := range specs {
		for _, far := range v.Admissions[reconcile.MemberKey(stream, i)].GetGrants() {
			one := of(far.Role, max(uint64(far.Epoch), far.Generation))
			one.Remote, one.ExpireTime, one.Addresses = true, far.ExpireTime, far.Addresses
			if !slices.Contains(one.Targets, spec.GetTarget()) {
				one.Targets = append(one.Targets, spec.GetTarget())
			}
		}
	}
	for _, one := range found {
		judgeWriter(v, specs, one)
	}
	slices.SortFunc(found, func(a, b *api.GrantInfo) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Epoch, b.Epoch),
			cmp.Compare(a.Generation, b.Generation))
	})
	return found
}

// judgeWriter says of a writer's grant whether it still holds, and whether its holder has come.
func judgeWriter(v *state.View, specs []*api.RingSpec, one *api.GrantInfo) {
	if one.Role != api.GrantRole_GRANT_ROLE_WRITER {
		return
	}
	one.Fenced = one.Epoch < v.Epochs[one.Stream] || one.Epoch < fenceOf(v, one.Stream)
	for _, spec := range specs {
		if seen := reconcile.SeenRing(v.Targets, spec); spec != nil && seen.GetWriterHeld() &&
			seen.GetWriterEpoch() == one.Epoch {
			one.Active = true
		}
	}
}

// fenceOf is the epoch below which writers are to be kept out of a stream's rings.
func fenceOf(v *state.View, stream string) (epoch uint32) {
	for i := range reconcile.MemberCount(v.Streams[stream]) {
		epoch = max(epoch, v.Admissions[reconcile.MemberKey(stream, i)].GetEpochMin())
	}
	return epoch
}

// ListEpochs implements farlog.v1.FabricService.
func (s *Server) ListEpochs(ctx context.Context, request *api.ListEpochsRequest) (*api.ListEpochsResponse, error) {
	now := s.view()
	streams, err := streamsNamed(now, callerOf(ctx), api.FabricService_ListEpochs_FullMethodName, "stream",
		request.Stream)
	if err != nil {
		return nil, err
	}
	response := &api.ListEpochsResponse{Revision: now.Revision}
	if request.IncludePast && (request.PageSize == 0 || request.PageSize > pastPageMost) {
		request.PageSize = pastPageMost
	}
	response.Epochs, response.NextPageToken, err = onePage(request, streams,
		func(stream string) (*api.EpochInfo, bool) { return epochsOf(now, stream), true })
	if err == nil && request.IncludePast {
		err = s.addPast(ctx, response.Epochs)
	}
	return response, err
}

// WatchEpochs implements farlog.v1.FabricService.
func (s *Server) WatchEpochs(request *api.WatchEpochsRequest,
	stream grpc.ServerStreamingServer[api.WatchEpochsResponse],
) error {
	return watchStreams(s, stream.Context(), streamsWatch[*api.EpochInfo]{
		method: api.FabricService_WatchEpochs_FullMethodName, named: request.Stream, revision: request.Revision,
		of: func(now *state.View, stream string) []*api.EpochInfo { return []*api.EpochInfo{epochsOf(now, stream)} },
		send: func(told streamsPart[*api.EpochInfo]) error {
			return stream.Send(&api.WatchEpochsResponse{
				Revision: told.revision, Epochs: told.items,
				Streams: told.streams, Snapshot: told.isAll,
			})
		},
	})
}

// epochsOf is what is known of a stream's epochs.
func epochsOf(v *state.View, stream string) *api.EpochInfo {
	last := v.Grants[stream]
	info := &api.EpochInfo{
		Stream: stream, Granted: v.Epochs[stream], Fenced: fenceOf(v, stream), Holder: last.GetHolder(),
		HolderEpoch: last.GetEpoch(), HolderGrantTime: last.GetGrantTime(),
	}
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[stream])
	for i, spec := range specs {
		if spec == nil {
			continue
		}
		seen := reconcile.SeenRing(v.Targets, spec)
		info.Members = append(info.Members, &api.MemberEpoch{
			Member: uint32(i), Target: spec.Target, WriterEpoch: seen.GetWriterEpoch(), LastEpoch: seen.GetLastEpoch(),
			OpenTime:   seen.GetEpochOpenTime(),
			WriterHeld: seen.GetWriterHeld(), EpochFenced: seen.GetEpochFenced(),
			EpochAdmitted: seen.GetEpochAdmitted(),
		})
	}
	return info
}
