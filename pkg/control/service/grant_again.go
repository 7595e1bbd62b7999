package service

import (
	"context"
	"fmt"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
)

// grantedBefore answers a request that was granted already, and whose answer was lost: with the same epoch and the same
// tokens, while that grant is the stream's newest and may be used. nil: it is a new one.
func (s *Server) grantedBefore(ctx context.Context, request *api.AcquireWriterRequest) (*api.AcquireWriterResponse,
	error,
) {
	if request.RequestId == "" {
		return nil, nil
	}
	// another instance may have granted it a moment ago
	got, err := s.config.Client.Get(ctx, etcd.KeyGrants+request.Stream)
	if err != nil {
		return nil, fmt.Errorf("read the grant of stream %q: %w", request.Stream, err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	granted := new(api.Grant)
	if err := etcd.Decode(etcd.KeyGrants+request.Stream, got.Kvs[0].Value, granted); err != nil {
		return nil, err
	}
	if granted.RequestId != request.RequestId || !isSameHolder(granted.Holder, request.Holder) {
		return nil, nil
	}
	if err := s.mirror.WaitRevision(ctx, got.Kvs[0].ModRevision); err != nil {
		return nil, err
	}
	now, _ := s.mirror.Load()
	admitting := grant.AdmittedBefore(now, granted, time.Now())
	if admitting == nil || now.CheckNotDeleted(request.Stream) != nil {
		return nil, nil
	}
	s.config.Logger.Info("granted again", "stream", granted.Stream, "epoch", granted.Epoch, "host",
		granted.Holder.GetHost(), "pid", granted.Holder.GetPid(), "by", callerOf(ctx).ID)
	return s.confirmed(ctx, request, now, granted, admitting)
}

func isSameHolder(a, b *api.Holder) bool {
	return a.GetIdentity() == b.GetIdentity() && a.GetHost() == b.GetHost() && a.GetPid() == b.GetPid()
}
