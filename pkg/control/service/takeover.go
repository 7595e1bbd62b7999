package service

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// TakeOverStream implements farlog.v1.ControlService. The fence is persisted before it is waited for: targets that come
// back later find it.
func (s *Server) TakeOverStream(ctx context.Context, request *api.TakeOverStreamRequest) (*api.TakeOverStreamResponse,
	error,
) {
	now, rings, err := s.waitRings(ctx, request.Stream)
	if err != nil {
		return nil, err
	}
	former := now.Grants[request.Stream].GetHolder()
	nobody := &api.Grant{Stream: request.Stream}
	granted, revision, err := grant.NextEpoch(ctx, s.config.Client, now, nobody, grant.KnownEpoch(rings), len(rings),
		func(_ int, admission *api.Admission, epoch uint32) error {
			grant.EndWriters(admission, epoch)
			return nil
		}, &grant.Takeover{By: string(callerOf(ctx).ID), Reason: request.Reason})
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("taking over", "stream", request.Stream, "epoch", granted.Epoch, "reason", request.Reason,
		"by", callerOf(ctx).ID)
	if err := s.mirror.WaitRevision(ctx, revision); err != nil {
		return nil, err
	}
	wanted := &grant.Confirmation{
		Stream: request.Stream, Epoch: granted.Epoch, IsLocal: true,
		Fences:  reconcile.FenceCount(now.Streams[request.Stream]),
		IsAsked: make([]bool, len(rings)), IsLetIn: make([]bool, len(rings)),
	}
	for i := range wanted.IsAsked {
		wanted.IsAsked[i] = true
	}
	if now, err = wanted.Wait(ctx, s.mirror); err != nil {
		return nil, err
	}
	response := &api.TakeOverStreamResponse{Epoch: granted.Epoch, ConfirmTime: timestamppb.Now(), Former: former}
	response.Fenced, response.Unreached = wanted.FencedTargets(now)
	return response, nil
}
