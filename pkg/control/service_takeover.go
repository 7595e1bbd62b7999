package control

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// TakeOverStream implements farlog.v1.ControlService. The fence is persisted before it is waited for: targets that come back later find it.
func (s *Server) TakeOverStream(ctx context.Context, request *api.TakeOverStreamRequest) (*api.TakeOverStreamResponse, error) {
	now, rings, err := s.waitRings(ctx, request.Stream)
	if err != nil {
		return nil, err
	}
	former := now.grants[request.Stream].GetHolder()
	nobody := &api.Grant{Stream: request.Stream}
	granted, revision, err := nextEpoch(ctx, s.config.Client, now, nobody, knownEpoch(rings), len(rings), func(_ int, admission *api.Admission, epoch uint32) error {
		endWriters(admission, epoch)
		return nil
	}, &succession{by: string(callerOf(ctx).ID), reason: request.Reason})
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("taking over", "stream", request.Stream, "epoch", granted.Epoch, "reason", request.Reason, "by", callerOf(ctx).ID)
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return nil, err
	}
	wanted := &confirmation{
		stream: request.Stream, epoch: granted.Epoch, isLocal: true, fences: reconcile.FenceCount(now.streams[request.Stream]),
		isAsked: make([]bool, len(rings)), isLetIn: make([]bool, len(rings)),
	}
	for i := range wanted.isAsked {
		wanted.isAsked[i] = true
	}
	if now, err = wanted.wait(ctx, s.mirror); err != nil {
		return nil, err
	}
	response := &api.TakeOverStreamResponse{Epoch: granted.Epoch, Confirmed: timestamppb.Now(), Former: former}
	response.Fenced, response.Unreached = wanted.fencedTargets(now)
	return response, nil
}
