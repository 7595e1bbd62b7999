package service

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// ReaderGrantDefault is how long a reader may take from its grant to its coming.
const ReaderGrantDefault = grant.UnusedMax

// AcquireReader implements farlog.v1.ControlService. As for writers: it is persisted, then the target confirms, then it
// is told.
func (s *Server) AcquireReader(ctx context.Context, request *api.AcquireReaderRequest) (*api.AcquireReaderResponse,
	error,
) {
	asked := &api.AcquireWriterRequest{Stream: request.Stream, Holder: request.Holder, Transport: request.Transport}
	if err := checkHolder(request.Holder); err != nil {
		return nil, err
	}
	asked.Holder = copyOf(request.Holder)
	asked.Holder.Identity = string(callerOf(ctx).ID)
	now, rings, err := s.waitRings(ctx, request.Stream)
	if err != nil {
		return nil, err
	}
	stream := now.Streams[request.Stream]
	coming, err := grant.NewReader(now, rings, asked)
	if err != nil {
		return nil, err
	}
	coming.Life, coming.Renewed = s.config.ReaderGrant, request.Renewed
	if err := coming.LetIn(ctx, s.config.Client, s.mirror, now, request.Stream); err != nil {
		return nil, err
	}
	var members []*api.Member
	for i, ring := range rings {
		member := &api.Member{Uri: ring.Uri, RingUuid: grant.RingUUID(now.Rings[reconcile.MemberKey(request.Stream,
			i)]), Target: ring.Target, Token: coming.Tokens[i]}
		switch {
		case coming.URIs[i] != "":
			member.Uri = coming.URIs[i]
		case member.Token != nil:
			member.Uri = reconcile.RemoteURI(ring.RemoteUris, request.Transport, request.Stream, i)
		}
		members = append(members, member)
	}
	s.config.Logger.Info("granted to a reader", "stream", request.Stream, "host", asked.Holder.GetHost(), "pid",
		asked.Holder.GetPid(), "remote", coming.IsRemote(), "renewed", len(request.Renewed) > 0, "by", callerOf(ctx).ID)
	grant := &api.Grant{
		Stream: request.Stream, StreamId: stream.StreamId, Members: members, K: stream.K,
		RecordLenMax: stream.Spec.RecordLenMax, Holder: asked.Holder, GrantTime: timestamppb.Now(),
	}
	if coming.IsRemote() {
		grant.ValidFor = durationpb.New(time.Until(coming.Expires))
	}
	return &api.AcquireReaderResponse{Grant: grant}, nil
}
