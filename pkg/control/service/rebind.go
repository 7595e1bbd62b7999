package service

import (
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// RebindStream implements farlog.v1.ControlService.
func (s *Server) RebindStream(ctx context.Context, request *api.RebindStreamRequest) (*api.RebindStreamResponse,
	error,
) {
	now := s.view()
	if now.Streams[request.Stream] == nil {
		return nil, status.Errorf(codes.NotFound, "stream %q: there is none of that name", request.Stream)
	}
	drain := liveDrainNamed(now, request.Drain)
	if drain == "" {
		return nil, refusal.Precondition(refusal.ReasonNoDrain, "drain", refusal.Quote(request.Drain),
			"expected the id or the host of a drain that reports").
			Errorf("stream %q: no drain %q reports, by its id or its host: farlog drain list shows which do",
				request.Stream, request.Drain)
	}
	if by := writerOfStore(now, now.Assignments[request.Stream]); by != "" {
		return nil, refusal.Precondition(refusal.ReasonStoreLives, "stream", refusal.Quote(request.Stream),
			"expected a store that no drain writes: %s does", by).
			Errorf("stream %q is not bound to another store: drain %s reports and writes the one that it has; where "+
				"that is lost for good, end that drain first", request.Stream, by)
	}
	bound, whyNot := reconcile.Rebound(now.World(), request.Stream, drain)
	if whyNot != "" {
		return nil, refusal.Precondition(refusal.ReasonNoDrain, "drain", refusal.Quote(request.Drain),
			"expected a drain that may have it: %s", whyNot).
			Errorf("stream %q is not bound to another store: %s", request.Stream, whyNot)
	}
	lost := bound.LostStore
	lost.RebindTime, lost.By, lost.Reason = timestamppb.Now(), string(callerOf(ctx).ID), request.Reason
	response := &api.RebindStreamResponse{Assignment: bound}
	for _, ring := range now.Status(request.Stream).Rings {
		response.LagRecords, response.LagBytes = max(response.LagRecords, ring.LagRecords),
			max(response.LagBytes, ring.LagBytes)
	}
	if request.DryRun {
		return response, nil
	}
	revision, err := rebind(ctx, s.config.Client, now, bound)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("bound to another store", "stream", request.Stream, "drain", drain, "store", bound.StoreDir,
		"lost", auditlog.LostStoreText(bound), "reason", request.Reason, "by", bound.LostStore.By)
	return response, s.mirror.WaitRevision(ctx, revision)
}

// liveDrainNamed is a drain that reports, by its id or else by its host; "": there is none.
func liveDrainNamed(v *state.View, name string) string {
	if v.LiveDrains[name] != nil {
		return name
	}
	for _, id := range slices.Sorted(maps.Keys(v.LiveDrains)) {
		if v.LiveDrains[id].Host == name {
			return id
		}
	}
	return ""
}

// writerOfStore is a drain that reports and writes the store that a stream is bound to; "": there is none.
func writerOfStore(v *state.View, given *api.Assignment) string {
	for _, id := range slices.Sorted(maps.Keys(v.LiveDrains)) {
		if given != nil && reconcile.WritesStore(v.LiveDrains[id], given) {
			return id
		}
	}
	return ""
}

// rebind writes an assignment and lets its drain, and no former one, into the rings, unless the stream, its rings or
// its assignment changed since the view.
func rebind(ctx context.Context, client *clientv3.Client, v *state.View, bound *api.Assignment) (revision int64,
	err error,
) {
	name := bound.Stream
	guards := append(state.RingsUnchanged(v, name), state.UnchangedSince(v, etcd.KeyAssignments+name))
	value, err := etcd.Encode(bound)
	if err != nil {
		return 0, err
	}
	writes := []clientv3.Op{clientv3.OpPut(etcd.KeyAssignments+name, value)}
	for member, change := range grant.AdmissionsOf(reconcile.Action{Assign: bound}) {
		unchanged, write, err := grant.AdmissionWrite(ctx, client, reconcile.MemberKey(name, member), change)
		if err != nil {
			return 0, err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	return state.Commit(ctx, client, fmt.Sprintf("bind stream %q to another store", name),
		fmt.Sprintf("stream %q", name), guards, writes)
}
