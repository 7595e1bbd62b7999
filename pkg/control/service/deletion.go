package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/deletion"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// DeleteStream implements farlog.v1.ControlService. What is decided here is only that the end begins; the reconciler
// goes on from there (reconcile/delete.go).
func (s *Server) DeleteStream(ctx context.Context, request *api.DeleteStreamRequest) (*api.DeleteStreamResponse,
	error,
) {
	now := s.view()
	have := now.Streams[request.Name]
	if have == nil {
		return nil, unknownStream(now, callerOf(ctx), request.Name)
	}
	if request.Revision != 0 && request.Revision != have.Revision {
		return nil, refusal.StaleRevision(fmt.Sprintf("stream %q", request.Name), have.Revision, request.Revision)
	}
	if deletion := now.Deletions[request.Name]; reconcile.IsBeingDeleted(deletion) &&
		deletion.RingLost == request.RingLost {
		return &api.DeleteStreamResponse{Deletion: deletion}, nil
	}
	if by := now.RouteSpecs().WhoSelects(request.Name, ""); by != "" {
		return nil, refusal.Precondition(refusal.ReasonSelected, "name", refusal.Quote(request.Name),
			"expected a stream that no route selects: route %q does", by).
			Errorf("stream %q is not deleted: route %q selects it: change or delete that first", request.Name, by)
	}
	if reason := deletion.WhyNot(now, request.Name, request.RingLost); reason != "" {
		return nil, refusal.Precondition(refusal.ReasonNotDeletable, "name", refusal.Quote(request.Name),
			"expected a stream that nobody writes and whose records are all stored: %s", reason).
			Errorf("stream %q is not deleted: %s", request.Name, reason)
	}
	ending := deletion.New(now, request.Name, request.RingLost, string(callerOf(ctx).ID))
	if request.DryRun {
		return &api.DeleteStreamResponse{Deletion: ending}, nil
	}
	var err error
	if ending.Revision, err = deletion.Begin(ctx, s.config.Client, now, now.Revision, ending); err != nil {
		return nil, err
	}
	s.config.Logger.Info("deleting", "stream", request.Name, "stream_id", ending.StreamId, "ring_lost",
		request.RingLost, "by", callerOf(ctx).ID)
	return &api.DeleteStreamResponse{Deletion: ending}, s.mirror.WaitRevision(ctx, ending.Revision)
}

// deletedSince lists the ends of streams after a revision, the oldest first.
func deletedSince(v *state.View, caller access.Caller, named string, revision int64) (list []*api.Deletion) {
	named = cmp.Or(named, pattern.All)
	for name, deletion := range v.Deletions {
		isGone := deletion.Stage == api.DeletionStage_DELETION_STAGE_ENDED && deletion.Revision > revision
		if isGone && pattern.Covers([]string{named}, name) &&
			caller.May(api.ControlService_WatchStreams_FullMethodName, name) == nil {
			list = append(list, deletion)
		}
	}
	slices.SortFunc(list, func(a, b *api.Deletion) int { return int(a.Revision - b.Revision) })
	return list
}
