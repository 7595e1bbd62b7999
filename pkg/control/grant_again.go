package control

import (
	"bytes"
	"context"
	"fmt"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// grantedBefore answers a request that was granted already, and whose answer was lost: with the same epoch and the same
// tokens, while that grant is the stream's newest and may be used. nil: it is a new one.
func (s *Server) grantedBefore(ctx context.Context, request *api.AcquireWriterRequest) (*api.AcquireWriterResponse, error) {
	if request.RequestId == "" {
		return nil, nil
	}
	got, err := s.config.Client.Get(ctx, keyGrants+request.Stream) // another instance may have granted it a moment ago
	if err != nil {
		return nil, fmt.Errorf("read the grant of stream %q: %w", request.Stream, err)
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	granted := new(api.Grant)
	if err := decode(keyGrants+request.Stream, got.Kvs[0].Value, granted); err != nil {
		return nil, err
	}
	if granted.RequestId != request.RequestId || !isSameHolder(granted.Holder, request.Holder) {
		return nil, nil
	}
	if err := s.mirror.waitRevision(ctx, got.Kvs[0].ModRevision); err != nil {
		return nil, err
	}
	now, _ := s.mirror.load()
	admitting := now.admittedBefore(granted, time.Now())
	if admitting == nil || now.isStaying(request.Stream) != nil {
		return nil, nil
	}
	s.config.Logger.Info("granted again", "stream", granted.Stream, "epoch", granted.Epoch, "host", granted.Holder.GetHost(),
		"pid", granted.Holder.GetPid(), "by", callerOf(ctx).ID)
	return s.confirmed(ctx, request, now, granted, admitting)
}

// admittedBefore is what a grant has changed at the doors of its rings; nil: it is not the stream's newest any more, its
// rings are others, or the time to come with its tokens is over.
func (v *view) admittedBefore(granted *api.Grant, now time.Time) *admitting {
	specs, isWhole := reconcile.RingSpecs(v.rings, v.streams[granted.Stream])
	if v.epochs[granted.Stream] != granted.Epoch || !isWhole || len(specs) != len(granted.Members) || granted.Closed != nil {
		return nil
	}
	a := new(admitting)
	for i, spec := range specs {
		if !bytes.Equal(spec.RingUuid, granted.Members[i].RingUuid) {
			return nil
		}
		var token []byte
		admission := v.admissions[reconcile.MemberKey(granted.Stream, i)]
		for _, one := range admission.GetGrants() {
			if !isWriter(one) || one.Epoch != granted.Epoch {
				continue
			}
			if one.Expires != nil && one.Expires.AsTime().Before(now) {
				return nil
			}
			token = one.Token
		}
		a.tokens, a.isFar = append(a.tokens, token), append(a.isFar, token != nil)
		a.hadFar = append(a.hadFar, token == nil && admission.GetEpochMin() == granted.Epoch)
	}
	return a
}

func isSameHolder(a, b *api.Holder) bool {
	return a.GetIdentity() == b.GetIdentity() && a.GetHost() == b.GetHost() && a.GetPid() == b.GetPid()
}
