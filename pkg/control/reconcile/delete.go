package reconcile

import (
	api "github.com/farlog/farlog/pkg/api/v1"
)

// The end of a stream goes by stages that are kept, so that any instance goes on where another one died. No stage is
// left before what it was for has been seen: writers out and all stored, then nobody reading, then the ring away, and
// only then the name.

// IsBeingDeleted reports whether a stream has begun to end and has not ended.
func IsBeingDeleted(deletion *api.Deletion) bool {
	return deletion != nil && deletion.Stage != api.DeletionStage_DELETION_STAGE_ENDED
}

// end gives the next step of a stream's end; isLast says that nothing else is to be done for the stream.
func end(world World, rings []*api.RingSpec, name string) (action Action, ok, isLast bool) {
	deletion := world.Deletions[name]
	if !IsBeingDeleted(deletion) {
		return Action{}, false, false
	}
	isEmpty, isRemoved := true, true
	for _, ring := range rings {
		seen := SeenRing(world.Targets, ring)
		if ring == nil || deletion.RingLost && IsLost(world.LiveTargets, ring, seen) {
			continue
		}
		isEmpty, isRemoved = isEmpty && isEmptied(deletion, seen), isRemoved && seen.GetRemoved()
	}
	switch {
	case isRemoved: // also where none was ever wanted
		return Action{Forget: name}, true, true
	case deletion.Stage == api.DeletionStage_DELETION_STAGE_REMOVING:
		return Action{}, false, true
	case isEmpty:
		return Action{Retire: name}, true, true
	}
	return Action{}, false, false
}

// IsLost reports a ring of which its target shows nothing: it does not report, or says that the ring is not there. Of
// one that a living target has not reported yet it is not known.
func IsLost(liveTargets map[string]*api.Agent, ring *api.RingSpec, seen *api.RingState) bool {
	return liveTargets[ring.GetTarget()] == nil || seen != nil && len(seen.RingUuid) == 0 && !seen.Closed
}

// isEmptied reports whether a ring has no writer any more and nothing that is not stored. One that was never made says
// so without a uuid.
func isEmptied(deletion *api.Deletion, seen *api.RingState) bool {
	if !seen.GetClosed() {
		return false
	}
	return len(seen.RingUuid) == 0 || seen.EpochMin >= deletion.EpochMin && seen.LagBytes == 0 &&
		seen.HeadLsn == seen.AppendedLsn
}
