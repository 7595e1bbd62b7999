package grant

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// Confirmation is what is waited for at the targets of a stream: that nobody below an epoch can write any more and,
// where the holder comes from another host, that it is let in.
type Confirmation struct {
	Stream   string
	Epoch    uint32
	IsAsked  []bool // of each ring: its target has to say so; otherwise the ring's lock is enough
	IsLetIn  []bool // of each ring: the holder is to be let in
	IsLocal  bool   // the fence word of a ring that nobody reaches from other hosts counts as well
	required int    // so many rings
	// and so many of them that count: the writer before may still write where a new ring stands for one it knows
	Fences int
}

// isConfirmed tells it of one ring. A fence above the epoch is one as well: the grant is somebody else's already, as
// its holder will find.
func (c *Confirmation) isConfirmed(v *state.View, i int) bool {
	if !c.IsAsked[i] {
		return true
	}
	spec := v.Rings[reconcile.MemberKey(c.Stream, i)]
	ring := reconcile.SeenRing(v.Targets, spec)
	fenced := ring.GetEpochFenced()
	// In a namespace a writer of another host reads the fence word at its leisure: that it is out, the target says.
	if c.IsLocal && len(ring.GetRemoteUris()) == 0 && spec.GetSubsystem() == "" {
		fenced = max(fenced, ring.GetEpochMin())
	}
	return fenced > c.Epoch || fenced == c.Epoch && (!c.IsLetIn[i] || ring.GetEpochAdmitted() >= c.Epoch)
}

// count gives how many rings have confirmed it, how many of these count, and whether all have whose targets live.
func (c *Confirmation) count(v *state.View) (count, fences int, isAll bool) {
	isAll = true
	for i := range c.IsAsked {
		spec := v.Rings[reconcile.MemberKey(c.Stream, i)]
		if c.isConfirmed(v, i) {
			count++
			if reconcile.Counts(spec, reconcile.SeenRing(v.Targets, spec)) {
				fences++
			}
		} else if v.LiveTargets[spec.GetTarget()] != nil {
			isAll = false
		}
	}
	return count, fences, isAll
}

// Wait waits until enough have, and then a moment for the others: those that have not when the holder opens them join
// it later.
func (c *Confirmation) Wait(ctx context.Context, m *state.Mirror) (*state.View, error) {
	limit := confirmWaitMax
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(deadline)-answerReserve))
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now, err := m.Wait(waiting, func(v *state.View) bool {
		count, fences, _ := c.count(v)
		return count >= c.required && fences >= c.Fences
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, c.refusal(now, limit)
	}
	if max(c.required, c.Fences) == len(c.IsAsked) {
		return now, nil
	}
	rest, stop := context.WithTimeout(waiting, confirmGrace)
	defer stop()
	now, _ = m.Wait(rest, func(v *state.View) bool { // those that have not by then are left out
		_, _, isAll := c.count(v)
		return isAll
	})
	return now, ctx.Err()
}

// refusal names those that have not confirmed, and why.
func (c *Confirmation) refusal(now *state.View, limit time.Duration) error {
	var why []string
	for i := range c.IsAsked {
		spec := now.Rings[reconcile.MemberKey(c.Stream, i)]
		seen := reconcile.SeenRing(now.Targets, spec)
		reason := cmp.Or(seen.GetError(), seen.GetFenceError())
		if c.isConfirmed(now, i) && reconcile.Counts(spec, reconcile.SeenRing(now.Targets, spec)) {
			continue
		}
		if now.LiveTargets[spec.GetTarget()] == nil {
			reason = "it does not report"
		}
		if c.isConfirmed(now, i) {
			reason = "its ring is new and does not count yet"
		}
		reason = cmp.Or(reason, "it is still at it")
		why = append(why, fmt.Sprintf("target %s: %s", spec.GetTarget(), reason))
	}
	if len(c.IsAsked) == 1 {
		target, reason, _ := strings.Cut(strings.TrimPrefix(why[0], "target "), ": ")
		return status.Errorf(codes.Unavailable,
			"stream %q: target %s has not confirmed within %s that writers below epoch %d are fenced: %s",
			c.Stream, target, limit.Round(time.Millisecond), c.Epoch, reason)
	}
	return status.Errorf(codes.Unavailable, "stream %q: %d of its %d members have confirmed within %s that writers "+
		"below epoch %d are fenced, expected %d; %s",
		c.Stream, len(c.IsAsked)-len(why), len(c.IsAsked), limit.Round(time.Millisecond), c.Epoch,
		max(c.required, c.Fences), strings.Join(why, "; "))
}

// FencedTargets tells who has confirmed and who has not.
func (c *Confirmation) FencedTargets(v *state.View) (fenced, unreached []string) {
	for i := range c.IsAsked {
		target := v.Rings[reconcile.MemberKey(c.Stream, i)].GetTarget()
		if c.isConfirmed(v, i) {
			fenced = append(fenced, target)
		} else {
			unreached = append(unreached, target)
		}
	}
	return fenced, unreached
}

// KnownEpoch is the highest that any of a stream's rings has seen.
func KnownEpoch(rings []*api.RingState) (known uint32) {
	for _, ring := range rings {
		known = max(known, ring.GetWriterEpoch(), ring.GetEpochMin())
	}
	return known
}
