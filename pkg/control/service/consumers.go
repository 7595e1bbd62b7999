package service

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/refusal"
)

const (
	slowInterval = 10 * time.Second // between two reports of one who is still slow
	slowKept     = 3 * slowInterval // and how long one counts
	slowMax      = 16               // of one stream at a time: that many say as much as more would
)

// ReportConsumer implements farlog.v1.ControlService. What is told lies in etcd under a lease, so that each control
// plane shows it, and nobody has to take it back.
func (s *Server) ReportConsumer(ctx context.Context, request *api.ReportConsumerRequest) (*api.ReportConsumerResponse,
	error,
) {
	told := &api.SlowConsumer{
		Stream: request.GetConsumer().GetStream(), Route: request.GetConsumer().GetRoute(),
		Holder:   copyOf(request.GetConsumer().GetHolder()),
		LagBytes: request.GetConsumer().GetLagBytes(), LostRecords: request.GetConsumer().GetLostRecords(),
		LostBytes: request.GetConsumer().GetLostBytes(),
		Reason:    request.GetConsumer().GetReason(), ReportTime: timestamppb.Now(),
	}
	if err := checkHolder(told.Holder); err != nil {
		return nil, err
	}
	if err := mayConsume(ctx, told); err != nil {
		return nil, err
	}
	now := s.view()
	if now.Streams[told.Stream] == nil {
		return nil, unknownStream(now, callerOf(ctx), told.Stream)
	}
	told.Holder.Identity, told.Holder.Addresses = string(callerOf(ctx).ID), nil
	key := slowKey(told)
	if others := now.SlowConsumers(told.Stream); now.Slow[key] == nil && len(others) >= slowMax {
		return nil, refusal.Exhausted(refusal.ReasonConsumers, "consumer.stream", "",
			"expected at most %d slow consumers at a time", slowMax).
			Errorf("stream %q: %d slow consumers are known: expected fewer, try again later", told.Stream, len(others))
	}
	if err := s.keepSlow(ctx, etcd.KeySlow+key, told); err != nil {
		return nil, err
	}
	return &api.ReportConsumerResponse{Interval: durationpb.New(slowInterval)}, nil
}

// mayConsume checks that the caller may read the stream or, of a route, write it from the host that it names.
func mayConsume(ctx context.Context, told *api.SlowConsumer) error {
	if told.Route != "" {
		return mayHold(ctx, told.Stream, told.Holder.GetHost())
	}
	if err := callerOf(ctx).May(api.ControlService_AcquireReader_FullMethodName, told.Stream); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

func (s *Server) keepSlow(ctx context.Context, key string, told *api.SlowConsumer) error {
	value, err := etcd.Encode(told)
	if err != nil {
		return refusal.InvalidArgument("", []*api.Problem{{
			Field: "consumer",
			Rule:  "expected texts in UTF-8: " + err.Error(),
		}})
	}
	lease, err := s.config.Client.Grant(ctx, int64(slowKept/time.Second))
	if err != nil {
		return fmt.Errorf("grant lease for %s: %w", key, err)
	}
	put, err := s.config.Client.Put(ctx, key, value, clientv3.WithLease(lease.ID))
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return s.mirror.WaitRevision(ctx, put.Header.Revision)
}

// slowKey is the same for each report of one consumer. As a ring's, it begins with the stream.
func slowKey(told *api.SlowConsumer) string {
	who := fmt.Sprintf("%q %q %d %q", told.Holder.Identity, told.Holder.Host, told.Holder.Pid, told.Route)
	return fmt.Sprintf("%s#%x", told.Stream, sha256.Sum256([]byte(who)))[:len(told.Stream)+1+16]
}
