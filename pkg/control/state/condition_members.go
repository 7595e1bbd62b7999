package state

import (
	"fmt"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// conditionOfMembers is the worst that can be said about a stream with several rings: that too few of them are whole to
// append, then what is wrong with the stream as with one of one ring, then that some are gone.
func conditionOfMembers(status *api.StreamStatus) (api.Condition, string) {
	count := reconcile.MemberCount(status.Stream)
	if len(status.RingSpecs) < count {
		return api.Condition_CONDITION_PENDING, fmt.Sprintf("%d of %d members are placed", len(status.RingSpecs), count)
	}
	var missing, fresh []string
	var fullest *api.StreamStatus
	worst := api.Condition_CONDITION_OK
	for _, spec := range status.RingSpecs {
		one := ofMember(status, spec)
		condition, reason := ConditionOf(one, 1)
		switch condition {
		case api.Condition_CONDITION_PENDING, api.Condition_CONDITION_TARGET_GONE, api.Condition_CONDITION_ERROR:
			missing, worst = append(missing, reason), max(worst, condition)
			continue
		}
		if isFresh(status, spec) {
			fresh = append(fresh, spec.Target)
			continue
		}
		if fullest == nil || one.Rings[0].LagBytes > fullest.Rings[0].LagBytes {
			fullest = one
		}
	}
	if len(fresh) > 0 && count-len(missing)-len(fresh) < reconcile.FenceCount(status.Stream) {
		return api.Condition_CONDITION_ERROR, tooFewText(status, missing, fresh)
	}
	if count-len(missing) < reconcile.Quorum(status.Stream) {
		return worst, fmt.Sprintf("%d of %d members: %s", count-len(missing), count, strings.Join(missing, "; "))
	}
	fullest.Drain = status.Drain
	condition, reason := ConditionOf(fullest, 1)
	switch {
	case condition != api.Condition_CONDITION_OK && condition != api.Condition_CONDITION_WRITER_GONE,
		len(missing)+len(fresh) == 0:
		return condition, reason
	case len(missing) == 0:
		return api.Condition_CONDITION_MEMBER_NEW, fmt.Sprintf("the ring of target %s is new: it counts when a "+
			"writer has brought it what is not stored", strings.Join(fresh, ", "))
	}
	return api.Condition_CONDITION_MEMBER_GONE, fmt.Sprintf("%d of %d members, %d are needed: %s", count-len(missing),
		count, status.Stream.K, strings.Join(missing, "; "))
}

// isFresh tells a ring that tells nothing of what was acknowledged: a new one in the place of another, or one that was
// away when the stream was first opened. While a writer has the stream that second kind is not told from one whose
// target is about to report the epoch.
func isFresh(status *api.StreamStatus, spec *api.RingSpec) bool {
	look := func(ring *api.RingSpec) *api.RingState {
		if rings := ofMember(status, ring).Rings; len(rings) > 0 {
			return rings[0]
		}
		return nil
	}
	hasWriter := slices.ContainsFunc(status.Rings, (*api.RingState).GetWriterHeld)
	isTelling := reconcile.KnowAcknowledged(status.RingSpecs, look)[slices.Index(status.RingSpecs, spec)]
	return !isTelling && (spec.Replacement != nil || !hasWriter)
}

// tooFewText says why nobody can open the stream: too few tell what was acknowledged.
func tooFewText(status *api.StreamStatus, missing, fresh []string) string {
	count := reconcile.MemberCount(status.Stream)
	text := fmt.Sprintf("%d of %d members know what was acknowledged, %d have to", count-len(missing)-len(fresh), count,
		reconcile.FenceCount(status.Stream))
	if len(missing) > 0 {
		text += ": " + strings.Join(missing, "; ")
	}
	if len(fresh) > 0 {
		text += fmt.Sprintf("; the ring of target %s is new: when what the former one had is lost for good, farlog "+
			"stream members accept-loss %s", strings.Join(fresh, ", "), status.Stream.Spec.Name)
	}
	return text
}

// ofMember is the status of one ring, as of a stream that has no other.
func ofMember(status *api.StreamStatus, spec *api.RingSpec) *api.StreamStatus {
	one := &api.StreamStatus{
		Stream: &api.Stream{
			Spec: &api.StreamSpec{Name: status.Stream.Spec.Name, Level: status.Stream.Spec.Level},
			K:    1,
		},
		EpochGranted: status.EpochGranted, LastGrant: status.LastGrant, RingSpecs: []*api.RingSpec{spec},
		Assignment: status.Assignment, DrainAlive: status.DrainAlive,
		DrainRefused: status.DrainRefused, TargetAlive: slices.Contains(status.TargetsAlive, spec.Target),
	}
	for _, ring := range status.Rings {
		if ring.Target == spec.Target {
			one.Rings = []*api.RingState{ring}
		}
	}
	return one
}
