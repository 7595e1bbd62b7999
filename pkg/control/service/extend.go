package service

import (
	"bytes"
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// ExtendWriter implements farlog.v1.ControlService. Writers ask it again and again, so that it is an audit event only
// when there is something to tell.
func (s *Server) ExtendWriter(ctx context.Context, request *api.ExtendWriterRequest) (*api.ExtendWriterResponse,
	error,
) {
	if err := checkHolder(request.Holder); err != nil {
		return nil, err
	}
	if err := mayHold(ctx, request.Stream, request.Holder.GetHost()); err != nil {
		return nil, err
	}
	now := s.view()
	if now.Streams[request.Stream] == nil {
		return nil, unknownStream(now, callerOf(ctx), request.Stream)
	}
	if err := now.CheckNotDeleted(request.Stream); err != nil {
		return nil, err
	}
	if err := isGrantOf(now, request, string(callerOf(ctx).ID)); err != nil {
		return nil, err
	}
	if err := s.noteWriter(ctx, now, request); err != nil {
		return nil, err
	}
	changed := ringsChangedFor(now, request)
	if len(changed) == 0 || request.Closed {
		return &api.ExtendWriterResponse{Declared: settingsOf(now.Streams[request.Stream].Spec)}, nil
	}
	response, err := s.recorder.Do(ctx, callerOf(ctx), api.ControlService_ExtendWriter_FullMethodName, request,
		func() (any, error) { return s.extend(ctx, now, request, changed) })
	extended, _ := response.(*api.ExtendWriterResponse)
	return extended, err
}

// isGrantOf checks that the stream's newest epoch is the caller's. A later one may have been granted for the rings of
// before, and then nobody may count the new one by an epoch below it.
func isGrantOf(v *state.View, request *api.ExtendWriterRequest, identity string) error {
	grant := v.Grants[request.Stream]
	if v.Epochs[request.Stream] != request.Epoch || grant.GetEpoch() != request.Epoch {
		return refusal.Precondition(refusal.ReasonLaterEpoch, "epoch", fmt.Sprint(request.Epoch),
			"expected the newest epoch of the stream, %d", v.Epochs[request.Stream]).
			Errorf("stream %q: epoch %d has been granted after epoch %d: its writer is not the stream's any more",
				request.Stream, v.Epochs[request.Stream], request.Epoch)
	}
	holder := grant.GetHolder()
	if holder.GetIdentity() != identity || holder.GetHost() != request.Holder.GetHost() ||
		holder.GetPid() != request.Holder.GetPid() {
		return refusal.Precondition(refusal.ReasonOtherHolder, "holder", refusal.Quote(identity),
			"expected the holder of epoch %d, %s", request.Epoch, holder.GetIdentity()).
			Errorf("stream %q: epoch %d was granted to %s, process %d on host %q: only this process may extend it",
				request.Stream, request.Epoch, holder.GetIdentity(),
				holder.GetPid(), holder.GetHost())
	}
	return nil
}

// ringsChangedFor lists the members whose ring is another one than the writer has, and is there.
func ringsChangedFor(v *state.View, request *api.ExtendWriterRequest) []int {
	return changedRings(replacedRings(v, request.Stream), request.RingUuids)
}

// changedRings are those of the rings that have come in the place of others that somebody does not have.
func changedRings(replaced, has [][]byte) (changed []int) {
	for i, uuid := range replaced {
		if len(uuid) > 0 && (i >= len(has) || !bytes.Equal(has[i], uuid)) {
			changed = append(changed, i)
		}
	}
	return changed
}

// extend lets the writer in at rings that it does not know, by tokens of its own epoch, in one step which holds only
// when no epoch was granted and no ring was changed since the view: whoever is granted the stream later is told of the
// new rings, and nobody below can open it any more.
func (s *Server) extend(ctx context.Context, now *state.View, request *api.ExtendWriterRequest, changed []int,
) (*api.ExtendWriterResponse, error) {
	name, asked := request.Stream, &api.AcquireWriterRequest{
		Stream: request.Stream, Holder: request.Holder,
		Transport: request.Transport,
	}
	guards := append(state.RingsUnchanged(now, name), state.UnchangedSince(now, etcd.KeyDeletions+name),
		state.UnchangedSince(now, etcd.KeyEpochs+name), state.UnchangedSince(now, etcd.KeyStreams+name))
	var writes []clientv3.Op
	response, granted := &api.ExtendWriterResponse{Declared: settingsOf(now.Streams[name].Spec)},
		proto.Clone(now.Grants[name]).(*api.Grant)
	for _, i := range changed {
		key := reconcile.MemberKey(name, i)
		seen := reconcile.SeenRing(now.Targets, now.Rings[key])
		isFar, err := grant.IsRemote(now, seen, asked)
		if err != nil {
			return nil, err
		}
		ring := &api.Member{Uri: seen.Uri, RingUuid: now.Rings[key].RingUuid, Target: seen.Target}
		if isFar {
			ring.Uri = reconcile.RemoteURI(seen.RemoteUris, request.Transport, name, i)
		}
		if i < len(granted.Members) {
			granted.Members[i] = proto.Clone(ring).(*api.Member) // what is kept has no token
		}
		if isFar {
			if ring.Token, err = grant.NewToken(); err != nil {
				return nil, err
			}
			unchanged, write, err := grant.AdmissionWrite(ctx, s.config.Client, key,
				func(admission *api.Admission) error {
					grant.AdmitWriter(admission, request.Epoch, ring.Token,
						grant.Origins(now, request.Holder.GetAddresses(), request.Holder.GetHost(), seen), "",
						time.Now().Add(grant.UnusedMax))
					return nil
				})
			if err != nil {
				return nil, err
			}
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
		response.Members = append(response.Members, &api.ExtendedMember{Member: uint32(i), Ring: ring})
	}
	value, err := etcd.Encode(granted)
	if err != nil {
		return nil, err
	}
	put, err := s.config.Client.Txn(ctx).If(guards...).Then(append(writes,
		clientv3.OpPut(etcd.KeyGrants+name, value))...).Commit()
	if err != nil {
		return nil, fmt.Errorf("let the writer of stream %q in at another ring: %w", name, err)
	}
	if !put.Succeeded {
		return nil, grant.ErrRingsChanged
	}
	s.config.Logger.Info("extended", "stream", name, "epoch", request.Epoch, "members", changed, "host",
		request.Holder.GetHost(), "pid", request.Holder.GetPid(), "by", callerOf(ctx).ID)
	return response, s.mirror.WaitRevision(ctx, put.Header.Revision)
}
