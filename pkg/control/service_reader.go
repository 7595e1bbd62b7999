package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// readersMax bounds how many readers of one ring are let in within grantUnusedMax.
const readersMax = 64

// AcquireReader implements farlog.v1.ControlService. As for writers: it is persisted, then the target confirms, then it is told.
func (s *Server) AcquireReader(ctx context.Context, request *api.AcquireReaderRequest) (*api.AcquireReaderResponse, error) {
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
	ring, stream := rings[0], now.streams[request.Stream]
	if len(rings) > 1 {
		return nil, status.Errorf(codes.FailedPrecondition, "stream %q has %d rings: readers of several are not let in by a grant: read it on the host of one of them, or from its store", request.Stream, len(rings))
	}
	isFar, err := now.isFar(ring, asked)
	if err != nil {
		return nil, err
	}
	member := &api.Member{Uri: ring.Uri, RingUuid: ring.RingUuid, Target: ring.Target}
	if isFar {
		if member.Token, err = s.admitReader(ctx, request.Stream, now.origins(asked.Holder.Addresses, asked.Holder.Host, ring)); err != nil {
			return nil, err
		}
		member.Uri = reconcile.FarURI(ring.FarUris, request.Transport)
	}
	s.config.Logger.Info("granted to a reader", "stream", request.Stream, "host", asked.Holder.GetHost(), "pid", asked.Holder.GetPid(), "is_far", isFar, "by", callerOf(ctx).ID)
	return &api.AcquireReaderResponse{Grant: &api.Grant{
		Stream: request.Stream, StreamId: stream.StreamId, Members: []*api.Member{member}, K: stream.K, RecordLenMax: stream.Spec.RecordLenMax, Holder: asked.Holder, Granted: timestamppb.Now(),
	}}, nil
}

// admitReader draws a token and answers when the ring's target lets in who has it.
func (s *Server) admitReader(ctx context.Context, stream string, from []string) ([]byte, error) {
	token, err := newToken()
	if err != nil {
		return nil, err
	}
	generation, revision, err := s.specs.addReader(ctx, stream, token, from, time.Now())
	if err != nil {
		return nil, err
	}
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return nil, err
	}
	limit := confirmWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)-answerReserve)
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now, err := s.mirror.wait(waiting, func(v *view) bool {
		return reconcile.SeenRing(v.targets, v.rings[stream]).GetReaderGeneration() >= generation
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "stream %q: target %s has not let a reader in within %s: farlog status %s says how it is",
			stream, now.rings[stream].GetTarget(), limit.Round(time.Millisecond), stream)
	}
	return token, nil
}

// addReader lets a reader in at the ring of a stream that is there and is to stay.
func (s specStore) addReader(ctx context.Context, stream string, token []byte, from []string, now time.Time) (generation uint64, revision int64, err error) {
	for {
		got, err := s.client.Txn(ctx).Then(clientv3.OpGet(keyDeletions+stream), clientv3.OpGet(keyStreams+stream, clientv3.WithCountOnly())).Commit()
		if err != nil {
			return 0, 0, fmt.Errorf("read stream %q: %w", stream, err)
		}
		isStaying, err := stays(stream, got.Responses[0].GetResponseRange(), got.Responses[1].GetResponseRange())
		if err != nil {
			return 0, 0, err
		}
		unchanged, write, err := s.admission(ctx, stream, func(admission *api.Admission) (err error) {
			generation, err = admitReader(admission, token, from, now)
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		put, err := s.client.Txn(ctx).If(unchanged, isStaying).Then(*write).Commit()
		if err != nil {
			return 0, 0, fmt.Errorf("let a reader of stream %q in: %w", stream, err)
		}
		if put.Succeeded {
			return generation, put.Header.Revision, nil
		}
	}
}

// admitReader lets in one more reader, and forgets those whose time to come is over.
func admitReader(admission *api.Admission, token []byte, from []string, now time.Time) (generation uint64, err error) {
	count := 0
	for _, grant := range admission.Grants {
		if isReader(grant) {
			generation = max(generation, grant.Generation)
		}
	}
	admission.Grants = slices.DeleteFunc(admission.Grants, func(grant *api.FarGrant) bool {
		isOver := isReader(grant) && grant.Expires.AsTime().Before(now) && grant.Generation != generation // the last one keeps the count
		if isReader(grant) && !isOver {
			count++
		}
		return isOver
	})
	if count > readersMax {
		return 0, status.Errorf(codes.ResourceExhausted, "%d readers were let in within %s: expected fewer, try again later", count, grantUnusedMax)
	}
	generation++
	admission.Grants = append(admission.Grants, &api.FarGrant{
		Token: token, Role: api.GrantRole_GRANT_ROLE_READER, Generation: generation, Expires: timestamppb.New(now.Add(grantUnusedMax)), Addresses: from,
	})
	return generation, nil
}

func isReader(grant *api.FarGrant) bool { return grant.Role == api.GrantRole_GRANT_ROLE_READER }
