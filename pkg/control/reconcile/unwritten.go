package reconcile

import (
	api "github.com/farlog/farlog/pkg/api/v1"
)

// A ring of a stream of which no epoch was ever granted is blank: nobody was let in to write it. An epoch is granted in
// a transaction that holds only while the rings are as they were, and what is decided here is done in one that holds
// only while no epoch was granted.

// IsMovable tells a ring that was wanted and never made, of a target that is not there or cannot give the level:
// another one may make it.
func IsMovable(world World, ring *api.RingSpec) bool {
	spec := ring.GetStream().GetSpec()
	isUnmade := ring != nil && len(ring.RingUuid) == 0 && ring.Replacement == nil &&
		len(SeenRing(world.Targets, ring).GetRingUuid()) == 0
	// a drain was told of a ring: then one was made
	isAssigned := world.Assignments[spec.GetName()] != nil && len(ring.GetLostUuid()) == 0
	return isUnmade && !isAssigned && isBlank(world, spec.GetName()) &&
		(world.LiveTargets[ring.Target] == nil ||
			!IsNamespaced(spec) && !givesLevel(world.LiveTargets[ring.Target], spec.GetLevel()))
}

// IsRenewable tells a ring that was there and is missing, as its living target reports, and in which nothing can be.
func IsRenewable(world World, ring *api.RingSpec) bool {
	seen := SeenRing(world.Targets, ring)
	return isBlank(world, ring.GetStream().GetSpec().GetName()) && len(ring.GetRingUuid()) > 0 &&
		ring.Replacement == nil && world.LiveTargets[ring.Target] != nil &&
		seen.GetMissing() && seen.GetWriterEpoch() == 0 && seen.GetAppendedLsn() == 0
}

func isBlank(world World, name string) bool { return world.Epochs[name] == 0 }

func renewLost(world World, rings []*api.RingSpec) (actions []Action) {
	for _, ring := range rings {
		if ring != nil && IsRenewable(world, ring) {
			actions = append(actions, Action{Renew: &api.RingSpec{
				Target: ring.Target, Stream: ring.Stream,
				Member: ring.Member, LostUuid: ring.RingUuid, Subsystem: ring.Subsystem,
			}})
		}
	}
	return actions
}
