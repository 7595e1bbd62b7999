package control

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
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// RebindStream implements farlog.v1.ControlService.
func (s *Server) RebindStream(ctx context.Context, request *api.RebindStreamRequest) (*api.RebindStreamResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	if now.streams[request.Stream] == nil {
		return nil, status.Errorf(codes.NotFound, "stream %q: there is none of that name", request.Stream)
	}
	drain := now.liveDrainNamed(request.Drain)
	if drain == "" {
		return nil, unmet(reasonNoDrain, "drain", quoted(request.Drain), "expected the id or the host of a drain that reports").
			errorf("stream %q: no drain %q reports, by its id or its host: farlog drain list tells which do", request.Stream, request.Drain)
	}
	if by := now.writerOfStore(now.assignments[request.Stream]); by != "" {
		return nil, unmet(reasonStoreLives, "stream", quoted(request.Stream), "expected a store that no drain writes: %s does", by).
			errorf("stream %q is not bound to another store: drain %s reports and writes the one that it has; where that is lost for good, end that drain first", request.Stream, by)
	}
	bound, whyNot := reconcile.Rebound(now.world(), request.Stream, drain)
	if whyNot != "" {
		return nil, unmet(reasonNoDrain, "drain", quoted(request.Drain), "expected a drain that may have it: %s", whyNot).
			errorf("stream %q is not bound to another store: %s", request.Stream, whyNot)
	}
	bound.LostStore.When, bound.LostStore.By, bound.LostStore.Reason = timestamppb.Now(), string(callerOf(ctx).ID), request.Reason
	response := &api.RebindStreamResponse{Assignment: bound}
	for _, ring := range now.status(request.Stream).Rings {
		response.LagRecords, response.LagBytes = max(response.LagRecords, ring.LagRecords), max(response.LagBytes, ring.LagBytes)
	}
	if request.IsDryRun {
		return response, nil
	}
	revision, err := rebind(ctx, s.config.Client, now, bound)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("bound to another store", "stream", request.Stream, "drain", drain, "store", bound.StoreDir, "lost", lostStoreText(bound), "reason", request.Reason, "by", bound.LostStore.By)
	return response, s.mirror.waitRevision(ctx, revision)
}

// liveDrainNamed is a drain that reports, by its id or else by its host; "": there is none.
func (v *view) liveDrainNamed(name string) string {
	if v.liveDrains[name] != nil {
		return name
	}
	for _, id := range slices.Sorted(maps.Keys(v.liveDrains)) {
		if v.liveDrains[id].Host == name {
			return id
		}
	}
	return ""
}

// writerOfStore is a drain that reports and writes the store that a stream is bound to; "": there is none.
func (v *view) writerOfStore(given *api.Assignment) string {
	for _, id := range slices.Sorted(maps.Keys(v.liveDrains)) {
		if given != nil && reconcile.WritesStore(v.liveDrains[id], given) {
			return id
		}
	}
	return ""
}

// rebind writes an assignment and lets its drain, and no former one, into the rings, unless the stream, its rings or its assignment changed since the view.
func rebind(ctx context.Context, client *clientv3.Client, v *view, bound *api.Assignment) (revision int64, err error) {
	name := bound.Stream
	guards := append(ringsUnchanged(v, name), unchangedSince(v, keyAssignments+name))
	value, err := encode(bound)
	if err != nil {
		return 0, err
	}
	writes := []clientv3.Op{clientv3.OpPut(keyAssignments+name, value)}
	for member, change := range admissionsOf(reconcile.Action{Assign: bound}) {
		unchanged, write, err := admissionWrite(ctx, client, reconcile.MemberKey(name, member), change)
		if err != nil {
			return 0, err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("bind stream %q to another store: %w", name, err)
	}
	if !put.Succeeded {
		return 0, changedMeanwhile(fmt.Sprintf("stream %q", name))
	}
	return put.Header.Revision, nil
}

// lostStoreText says what a stream's store does not have.
func lostStoreText(given *api.Assignment) string {
	lost := given.GetLostStore()
	if lost == nil {
		return ""
	}
	return fmt.Sprintf("given up store %s (%x): records below lsn %d, seq %d, were released to it and are not in store %s (%x)", lost.StoreDir, lost.StoreUuid, lost.Lsn, lost.Seq,
		given.StoreDir, given.StoreUuid)
}
