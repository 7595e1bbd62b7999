package control

import (
	"context"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// spareWait is for a writer that has just ended: its target tells of that at its next look, or when the connection is gone.
const spareWait = 2 * time.Second

// spare waits until the grant that is asked for would fence nobody who lives, and says whom it would.
func (s *Server) spare(ctx context.Context, request *api.AcquireWriterRequest, admitting *admitting) error {
	waiting, cancel := context.WithTimeout(ctx, spareWait)
	defer cancel()
	now, err := s.mirror.wait(waiting, func(v *view) bool { return v.livingWriter(request, admitting) == nil })
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	held := now.livingWriter(request, admitting)
	if held == nil {
		return nil
	}
	return unmet(reasonWriterLives, "stream", quoted(request.Stream), "expected a stream that no living writer has, or a request that takes it over").
		errorf("stream %q is held by a living writer, %s, epoch %d: a takeover fences it", request.Stream, held.WriterId, held.WriterEpoch)
}

// livingWriter gives a ring that another process than the request's holder has for writing, unless so many of the stream's
// rings are free that their writer can have nothing acknowledged; nil: the grant fences nobody who lives.
func (v *view) livingWriter(request *api.AcquireWriterRequest, admitting *admitting) (held *api.RingState) {
	last, holder, free, isFencing := v.grants[request.Stream], request.Holder, 0, false
	specs, _ := reconcile.RingSpecs(v.rings, v.streams[request.Stream])
	for i, spec := range specs {
		ring := reconcile.SeenRing(v.targets, spec)
		if spec == nil || v.liveTargets[spec.Target] == nil || len(ring.GetRingUuid()) == 0 || ring.GetError() != "" {
			continue
		}
		if !ring.IsWriterHeld {
			free++
			continue
		}
		held = ring
		hasFar := slices.ContainsFunc(v.admissions[reconcile.MemberKey(request.Stream, i)].GetGrants(), isWriter)
		isFencing = isFencing || hasFar || i < len(admitting.isFar) && admitting.isFar[i] // else the ring's lock decides
	}
	former := last.GetHolder() // by whatever identity: a process may ask by itself and by its host's agent
	isOwn := former.GetHost() == holder.GetHost() && former.GetPid() == holder.GetPid() && held.GetWriterEpoch() == last.GetEpoch()
	if isOwn || !isFencing || free > reconcile.MemberCount(v.streams[request.Stream])-max(1, int(v.streams[request.Stream].GetK())) {
		return nil
	}
	return held
}
