package reconcile

import (
	"bytes"
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Rebound is a stream's assignment to a drain of another store, where the one that it is bound to is lost; or why it
// may not be given to that. What the rings have released is taken for lost with the store, so each of them has to be
// seen, with nobody draining it.
func Rebound(world World, name, drain string) (assignment *api.Assignment, whyNot string) {
	current, to := world.Assignments[name], world.LiveDrains[drain]
	rings, isWhole := RingSpecs(world.Rings, world.Streams[name])
	if current == nil || !isWhole {
		return nil, "it is bound to no store yet, and is given to any drain that reaches it"
	}
	if bytes.Equal(to.GetStoreUuid(), current.StoreUuid) {
		return nil, fmt.Sprintf("drain %s writes the store that it is bound to (%s, %x)", drain, to.GetStoreDir(),
			to.GetStoreUuid())
	}
	lost := &api.LostStore{StoreUuid: current.StoreUuid, StoreDir: current.StoreDir}
	for _, ring := range rings {
		seen := SeenRing(world.Targets, ring)
		if world.LiveTargets[ring.Target] == nil || !IsBoundRing(ring, seen) {
			return nil, fmt.Sprintf("its ring is not reported by target %s, so nobody sees what was released from it",
				ring.Target)
		}
		// That nobody drains a ring is reported with the head as it is then; while somebody does, a report is older
		// than the head.
		if seen.DrainHeld {
			return nil, fmt.Sprintf("a drain has its ring on target %s: end it, and try again when the target has "+
				"seen that, a second later", ring.Target)
		}
		if seen.HeadLsn >= lost.Lsn {
			lost.Lsn, lost.Seq = seen.HeadLsn, max(lost.Seq, seen.HeadSeq)
		}
	}
	wanted, isReached := assignmentOf(world, rings, name, drain, current)
	switch host := world.Streams[name].GetSpec().GetDrainHost(); {
	case !MayDrain(to, name):
		return nil, fmt.Sprintf("drain %s has not the role drain on it", drain)
	case !isOnHost(to, host):
		return nil, fmt.Sprintf("it is declared to be drained on host %s: change that first (drain: %s, farlog apply)",
			host, to.GetHost())
	case !mayDrain(world, to, CountAssigned(world)):
		return nil, fmt.Sprintf("drain %s takes no further stream: its host's drains are declared closed, full, or "+
			"for another store", drain)
	case !isReached:
		return nil, fmt.Sprintf("drain %s does not reach its rings: it is on host %s, and a target lets other hosts "+
			"in with --listen", drain, to.GetHost())
	}
	wanted.StoreUuid, wanted.StoreDir, wanted.LostStore = to.StoreUuid, to.StoreDir, lost
	return wanted, ""
}
