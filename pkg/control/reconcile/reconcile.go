// Package reconcile decides what has to change so that what is wanted comes true: a pure function from the world and
// the time to a list of actions. It does no I/O, reads no clock and keeps nothing, so that every decision can be tested
// as a table and repeated by another control instance.
//
// One thing depends on the time: a measurement of latency counts for MeasuredMax. Nothing else does. Who lives is in
// the world, as the leases of etcd have it; nobody is given up because of a time, a member that is gone least of all. A
// writer that has come in keeps its grant, whether that has expired meanwhile or not; that who has not come in in time
// stays out is the business of the target, which looks at its own clock when he comes. The deadlines of takeovers and
// of those who wait for a ring are of the call that waits.
package reconcile

import (
	"bytes"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// World is what is wanted and what is seen, keyed by stream name, MemberKey or agent id.
type World struct {
	Streams     map[string]*api.Stream
	Epochs      map[string]uint32           // the last one granted of each stream
	Rings       map[string]*api.RingSpec    // where each stream's rings are wanted, by MemberKey
	Assignments map[string]*api.Assignment  // who is to drain it
	Admissions  map[string]*api.Admission   // who is let in from other hosts, by MemberKey
	LiveTargets map[string]*api.Agent       // under a lease
	LiveDrains  map[string]*api.Agent       // under a lease
	Targets     map[string]*api.TargetState // as last reported, living or not
	TargetSpecs map[string]*api.TargetSpec  // by host: what the operator says of it
	DrainSpecs  map[string]*api.DrainSpec   // by host
	Hosts       map[string]*api.HostState   // by name: what agents of trading hosts have measured
	Deletions   map[string]*api.Deletion    // of streams that end or have ended
}

// Action is one change of the wanted state: exactly one field is set.
type Action struct {
	Place  *api.RingSpec   // want this ring, in the place of one that was never made where there is such
	Renew  *api.RingSpec   // want this ring again: it was lost before anybody was let in to write it
	Bind   *api.RingSpec   // this ring it is, and no other from now on
	Assign *api.Assignment // give the stream to this drain
	Keep   *Writer         // this writer is in: its grant no longer expires
	// of the stream with this name all is stored: nobody drains it any more, and its rings are to go
	Retire string
	Forget string // nothing is left of the stream with this name
}

// Writer is one generation of a stream's writers, at one of its rings.
type Writer struct {
	Stream string
	Member int
	Epoch  uint32
}

// Plan returns the actions that bring the wanted state in line, in stream order. Applied to the world, they leave
// nothing to plan. What works is never moved: a ring that was made stays where it was placed for good, a stream stays
// with its drain as long as that lives, and with a dead one as long as no other can reach the ring. A stream is bound
// to the ring that was made for it, and from its first writer on to the store that its first drain wrote.
func Plan(world World, now time.Time) []Action {
	return PlanOf(world, sortedNames(world.Streams), map[string]bool{}, now)
}

// PlanOf is Plan for some of the streams, which are named in order. Of these it puts into unsettled, or takes out of
// it, those that wait for a target, a drain or space: what the world has of these is not of one stream.
func PlanOf(world World, names []string, unsettled map[string]bool, now time.Time) []Action {
	var actions []Action
	tally := &tally{world: world}
	for _, name := range names {
		rings, isWhole := RingSpecs(world.Rings, world.Streams[name])
		if action, isNext, isLast := end(world, rings, name); isLast {
			if isNext {
				actions = append(actions, action)
			}
			continue
		}
		if isOpen := !isWhole || slices.ContainsFunc(rings,
			func(ring *api.RingSpec) bool { return IsMovable(world, ring) }); isOpen &&
			!IsBeingDeleted(world.Deletions[name]) {
			actions = append(actions, placeMissing(world, name, tally.placed(), tally.freeSpace(), now)...)
		}
		for i, ring := range rings {
			if action, ok := bind(world, ring, name); ok {
				actions = append(actions, action)
				rings[i] = action.Bind
			}
		}
		if !IsBeingDeleted(world.Deletions[name]) {
			actions = append(actions, renewLost(world, rings)...)
		}
		isSettled := isWhole && isWellGiven(world, name)
		if action, ok := assign(world, rings, name, tally); isWhole && ok {
			actions, isSettled = append(actions, action), true
		}
		if slices.ContainsFunc(rings, func(ring *api.RingSpec) bool { return len(ring.GetRingUuid()) == 0 }) {
			isSettled = false
		}
		if unsettled[name] = true; isSettled {
			delete(unsettled, name)
		}
		for i, ring := range rings {
			if action, ok := keepWriter(world, ring, name, i); ok {
				actions = append(actions, action)
			}
		}
	}
	return actions
}

// tally counts what is given to whom when that is asked for first: most plans need none of it.
type tally struct {
	world    World
	rings    map[string]int
	free     map[string]uint64
	assigned map[string]int
}

func (t *tally) placed() map[string]int {
	if t.rings == nil {
		t.rings = countPlaced(t.world)
	}
	return t.rings
}

func (t *tally) freeSpace() map[string]uint64 {
	if t.free == nil {
		t.free = FreeSpace(t.world, t.world.TargetSpecs)
	}
	return t.free
}

func (t *tally) loads() map[string]int {
	if t.assigned == nil {
		t.assigned = CountAssigned(t.world)
	}
	return t.assigned
}

// SeenRing is the state of a stream's ring as its target last reported it; nil when it has not.
func SeenRing(targets map[string]*api.TargetState, ring *api.RingSpec) *api.RingState {
	for _, state := range targets[ring.GetTarget()].GetRings() {
		// An earlier stream of that name may have been reported last.
		if id := state.StreamId; state.Stream == ring.GetStream().GetSpec().GetName() &&
			(id == 0 || id == ring.GetStream().GetStreamId()) {
			return state
		}
	}
	return nil
}

// bind takes the first ring that is reported of a stream's member for good.
func bind(world World, ring *api.RingSpec, name string) (Action, bool) {
	if ring == nil || len(ring.RingUuid) > 0 {
		return Action{}, false
	}
	seen := SeenRing(world.Targets, ring)
	uuid := assignedMember(world.Assignments[name], int(ring.Member)).GetRingUuid()
	if len(uuid) == 0 || ring.Replacement != nil || len(ring.LostUuid) > 0 { // what was assigned is the former ring
		uuid = seen.GetRingUuid()
	}
	if len(uuid) == 0 || ring.Replacement != nil && !isNewRing(ring, seen) {
		return Action{}, false
	}
	return Action{Bind: &api.RingSpec{
		Target: ring.Target, Stream: ring.Stream, RingUuid: uuid, Member: ring.Member,
		Replacement: ring.Replacement, LostUuid: ring.LostUuid, Subsystem: ring.Subsystem,
	}}, true
}

// assignedMember is what an assignment says of one of the rings; nil when it says nothing of it.
func assignedMember(assignment *api.Assignment, member int) *api.Member {
	switch {
	case member < len(assignment.GetMembers()):
		return assignment.Members[member]
	case assignment == nil || member > 0:
		return nil
	}
	return &api.Member{Uri: assignment.Uri, RingUuid: assignment.RingUuid, Target: assignment.Target}
}

// IsBoundRing reports whether what a target reports is the ring that the stream is bound to.
func IsBoundRing(ring *api.RingSpec, seen *api.RingState) bool {
	return len(seen.GetRingUuid()) > 0 && bytes.Equal(seen.GetRingUuid(), ring.GetRingUuid())
}

// WritesStore reports whether a drain lives and writes the store that a stream was given to. Nobody knew the store of
// an assignment without one: any drain will do.
func WritesStore(drain *api.Agent, assignment *api.Assignment) bool {
	return drain != nil && (len(assignment.GetStoreUuid()) == 0 || bytes.Equal(drain.StoreUuid, assignment.StoreUuid))
}

// MayDrain reports whether a drain has the right to a stream. What was written before there were rights names none:
// then it has.
func MayDrain(drain *api.Agent, stream string) bool {
	return drain != nil && (len(drain.Streams) == 0 || pattern.Covers(drain.Streams, stream))
}

// IsStoreBound reports whether a stream must stay in the store that it was given to: from its first writer on, a drain
// may have stored something that is no longer in the ring.
func IsStoreBound(epochGranted uint32, seen *api.RingState) bool {
	return epochGranted > 0 || seen.GetWriterEpoch() > 0 || seen.GetHeadLsn() > 0
}

// assign gives a stream with ready rings to a living drain that reaches them. A ring that is missing, or is another
// than the stream's, changes nothing: the drain keeps the one that it has open. Of a stream with members it is the same
// of each.
func assign(world World, rings []*api.RingSpec, name string, tally *tally) (Action, bool) {
	current := world.Assignments[name]
	isBound := false
	for i, ring := range rings {
		seen := SeenRing(world.Targets, ring)
		// it goes on with what it has until the new ring is there
		isUnbound := ring.GetReplacement() != nil && len(ring.RingUuid) == 0
		if isUnbound || !IsBoundRing(ring, seen) && (len(rings) == 1 || assignedMember(current, i) == nil) {
			return Action{}, false
		}
		isBound = isBound || current != nil && IsStoreBound(world.Epochs[name], seen)
	}
	if current != nil {
		if isWellGiven(world, name) {
			wanted, ok := assignmentOf(world, rings, name, current.Drain, current)
			wanted.StoreUuid, wanted.StoreDir = current.StoreUuid, current.StoreDir
			return Action{Assign: wanted}, ok && !isSameRing(current, wanted)
		}
	}
	loads := tally.loads()
	drain, ok := leastLoaded(candidates(world, rings, name, current, isBound, loads), loads)
	if !ok {
		return Action{}, false
	}
	if current != nil {
		loads[current.Drain]--
	}
	loads[drain]++
	wanted, _ := assignmentOf(world, rings, name, drain, current)
	wanted.StoreUuid, wanted.StoreDir = world.LiveDrains[drain].StoreUuid, world.LiveDrains[drain].StoreDir
	return Action{Assign: wanted}, true
}

// isWellGiven reports whether the drain that has a stream may keep it.
func isWellGiven(world World, name string) bool {
	current := world.Assignments[name]
	drain := world.LiveDrains[current.GetDrain()]
	return current != nil && WritesStore(drain, current) && MayDrain(drain, name) &&
		isOnHost(drain, world.Streams[name].GetSpec().GetDrainHost())
}

// assignmentOf is what a drain would be told of the rings. False: it does not reach one of them.
func assignmentOf(world World, rings []*api.RingSpec, name, drain string, current *api.Assignment) (*api.Assignment,
	bool,
) {
	wanted := &api.Assignment{Stream: name, Drain: drain, Generation: 1}
	if current != nil {
		wanted.Generation, wanted.LostStore = current.Generation+1, current.LostStore
	}
	isReached := true
	for i, ring := range rings {
		seen := SeenRing(world.Targets, ring)
		member := &api.Member{Target: ring.Target, RingUuid: ring.RingUuid}
		if IsBoundRing(ring, seen) {
			member.Uri = reachableURI(world, ring, seen, world.LiveDrains[drain])
		}
		if before := assignedMember(current, i); member.Uri == "" && len(rings) > 1 && current.GetDrain() == drain &&
			bytes.Equal(before.GetRingUuid(), ring.RingUuid) {
			member.Uri = before.GetUri() // of one that is gone for a while: where it was
		}
		isReached = isReached && member.Uri != ""
		wanted.Members = append(wanted.Members, member)
	}
	wanted.Target, wanted.RingUuid = wanted.Members[0].Target, wanted.Members[0].RingUuid
	wanted.Uri = MembersURI(Needed(world.Streams[name]), wanted.Members)
	if len(rings) == 1 {
		wanted.Members = nil
	}
	return wanted, isReached
}

// keepWriter finds the writer that came in with a grant which ends for who has not come in.
func keepWriter(world World, ring *api.RingSpec, name string, member int) (Action, bool) {
	if ring == nil {
		return Action{}, false
	}
	seen := SeenRing(world.Targets, ring)
	for _, grant := range world.Admissions[MemberKey(name, member)].GetGrants() {
		if grant.Role == api.GrantRole_GRANT_ROLE_WRITER && grant.ExpireTime != nil &&
			seen.GetWriterEpoch() == grant.Epoch {
			return Action{Keep: &Writer{Stream: name, Member: member, Epoch: grant.Epoch}}, true
		}
	}
	return Action{}, false
}

// candidates lists the living drains that may take a stream over: those beside a ring of it if there are any, else
// those that reach them from other hosts.
func candidates(world World, rings []*api.RingSpec, name string, current *api.Assignment, isBound bool,
	loads map[string]int,
) []string {
	var near, far []string
	for _, id := range sortedNames(world.LiveDrains) {
		drain := world.LiveDrains[id]
		if isBound && !WritesStore(drain, current) || !MayDrain(drain, name) ||
			!isOnHost(drain, world.Streams[name].GetSpec().GetDrainHost()) || !mayDrain(world, drain, loads) {
			continue
		}
		wanted, isReached := assignmentOf(world, rings, name, id, current)
		switch {
		case !isReached:
		case isNear(wanted):
			near = append(near, id)
		default:
			far = append(far, id)
		}
	}
	if len(near) > 0 {
		return near
	}
	return far
}

// isNear reports whether one of the rings is on the drain's own host.
func isNear(assignment *api.Assignment) bool {
	for _, member := range assignment.Members {
		if !IsRemote(member.Uri) {
			return true
		}
	}
	return len(assignment.Members) == 0 && !IsRemote(assignment.Uri)
}

func isSameRing(a, b *api.Assignment) bool {
	isSameMember := func(one, other *api.Member) bool {
		return one.Target == other.Target && bytes.Equal(one.RingUuid, other.RingUuid)
	}
	return a.Uri == b.Uri && a.Target == b.Target && bytes.Equal(a.RingUuid, b.RingUuid) &&
		slices.EqualFunc(a.Members, b.Members, isSameMember)
}

// CountAssigned is how many streams each drain has.
func CountAssigned(world World) map[string]int {
	counts := map[string]int{}
	for _, assignment := range world.Assignments {
		counts[assignment.Drain]++
	}
	return counts
}

func sortedNames[V any](things map[string]V) []string {
	names := make([]string, 0, len(things))
	for name := range things {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
