package service

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// writerEndWait is for a writer that has just ended: its target tells of that at its next look, or when the connection
// is gone.
const writerEndWait = 2 * time.Second

// waitNoWriter waits until the grant that is asked for would fence nobody who lives, and says whom it would.
func (s *Server) waitNoWriter(
	ctx context.Context,
	request *api.AcquireWriterRequest,
	admitting *grant.WriterAdmission,
) error {
	waiting, cancel := context.WithTimeout(ctx, writerEndWait)
	defer cancel()
	now, err := s.mirror.Wait(waiting, func(v *state.View) bool {
		held, unseen := livingWriter(v, request, admitting)
		return held == nil && unseen == ""
	})
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	held, unseen := livingWriter(now, request, admitting)
	if held == nil && unseen != "" {
		return status.Errorf(codes.Unavailable, "stream %q: whether a living writer has it is not known: %s",
			request.Stream, unseen)
	}
	if held == nil {
		return nil
	}
	return refusal.Precondition(refusal.ReasonWriterLives, "stream", refusal.Quote(request.Stream),
		"expected a stream that no living writer has, or a request that takes it over").
		Errorf("stream %q is held by a living writer, %s, epoch %d: a takeover fences it", request.Stream,
			held.WriterId, held.WriterEpoch)
}

// livingWriter gives a ring that another process than the request's holder has for writing, unless so many of the
// stream's rings are free that their writer can have nothing acknowledged. nil: the grant fences nobody who lives, as
// far as is known; unseen says of which ring it is not known whether it has a writer.
func livingWriter(v *state.View, request *api.AcquireWriterRequest, admitting *grant.WriterAdmission,
) (held *api.RingState, unseen string) {
	last, holder, free, isFencing := v.Grants[request.Stream], request.Holder, 0, false
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[request.Stream])
	for i, spec := range specs {
		ring := reconcile.SeenRing(v.Targets, spec)
		hasFar := slices.ContainsFunc(v.Admissions[reconcile.MemberKey(request.Stream, i)].GetGrants(), grant.IsWriter)
		isFar := i < len(admitting.IsFar) && admitting.IsFar[i]
		if spec == nil || v.LiveTargets[spec.Target] == nil || len(ring.GetRingUuid()) == 0 || ring.GetError() != "" {
			hasListener := hasFar && spec != nil && v.LiveTargets[spec.Target] != nil
			if len(spec.GetRingUuid()) > 0 && (isFar || hasListener) {
				unseen = fmt.Sprintf(
					"target %s: %s",
					spec.Target,
					cmp.Or(ring.GetError(), "it does not report the ring"),
				)
			}
			continue
		}
		if !ring.WriterHeld || spec.Subsystem != "" && !grant.IsHeldElsewhere(spec, ring, holder.GetHost()) {
			free++
			continue
		}
		held = ring
		isFencing = isFencing || hasFar || isFar // else the ring's lock decides
	}
	former := last.GetHolder() // by whatever identity: a process may ask by itself and by its host's agent
	isOwn := former.GetHost() == holder.GetHost() && former.GetPid() == holder.GetPid() &&
		held.GetWriterEpoch() == last.GetEpoch()
	switch {
	case free > reconcile.MemberCount(v.Streams[request.Stream])-reconcile.Needed(v.Streams[request.Stream]):
		return nil, ""
	case held == nil:
		return nil, unseen
	case isOwn:
		return nil, ""
	case !isFencing:
		return nil, unseen
	}
	return held, ""
}
