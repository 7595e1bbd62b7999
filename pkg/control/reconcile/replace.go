package reconcile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Counts reports whether a member's ring counts in the stream's quorums. One that was put in the place of another does
// so when a writer has brought it all that the others have: only then it is told an epoch, and a ring that was told one
// does not forget it.
func Counts(ring *api.RingSpec, seen *api.RingState) bool {
	return ring.GetReplacement() == nil || IsBoundRing(ring, seen) && seen.GetWriterEpoch() > 0
}

// KnowAcknowledged lists which of a stream's rings tell an opening what was acknowledged, as their targets last
// reported. Where one of them knows an epoch, those that know none tell nothing: neither a new one in the place of
// another, nor one that was away when the stream was first opened. Before that the first opening takes all that nobody
// replaced. Of a ring that was never reported it is not known; an original one is taken to tell.
func KnowAcknowledged(rings []*api.RingSpec, look func(*api.RingSpec) *api.RingState) []bool {
	knows := func(ring *api.RingSpec) bool { return IsBoundRing(ring, look(ring)) && look(ring).GetWriterEpoch() > 0 }
	isWritten := slices.ContainsFunc(rings, knows)
	tells := make([]bool, len(rings))
	for i, ring := range rings {
		tells[i] = knows(ring) || ring.GetReplacement() == nil && !(isWritten && IsBoundRing(ring, look(ring)))
	}
	return tells
}

// KnowingCount is how many of the rings tell it without one of them; -1: without none.
func KnowingCount(tells []bool, without int) (count int) {
	for i, isTelling := range tells {
		if isTelling && i != without {
			count++
		}
	}
	return count
}

// MemberOn finds the member of a stream whose ring is on a target; -1: none has.
func MemberOn(rings []*api.RingSpec, target string) int {
	return slices.IndexFunc(rings, func(ring *api.RingSpec) bool { return ring.GetTarget() == target })
}

// WhyNotReplace says why a member's ring cannot be replaced now; "": it can. One at a time: while another new one does
// not count, too few might be left who know what was acknowledged.
func WhyNotReplace(world World, name string, member int) string {
	stream := world.Streams[name]
	rings, isWhole := RingSpecs(world.Rings, stream)
	if !isWhole {
		return "its members are not placed yet"
	}
	if IsNamespaced(stream.GetSpec()) {
		return "it lies in a namespace, and is the only one: delete the stream, and create it again"
	}
	if world.Epochs[name] == 0 {
		return "no writer was ever admitted: delete it, and create it again"
	}
	for i, ring := range rings {
		if seen := SeenRing(world.Targets, ring); i != member && !Counts(ring, seen) {
			return fmt.Sprintf("the ring of target %s is new as well and does not count yet: one at a time; it "+
				"counts when the writer has taken it in, or one has opened the stream", ring.Target)
		}
	}
	seen := SeenRing(world.Targets, rings[member])
	isThere := isProvided(world, rings[member])
	tells := KnowAcknowledged(rings, func(ring *api.RingSpec) *api.RingState { return SeenRing(world.Targets, ring) })
	switch {
	case isThere && Needed(stream) == 1:
		return fmt.Sprintf("target %s has its ring, and with one member needed it may have what no other has",
			rings[member].Target)
	case isThere && seen.WriterHeld && Needed(stream) == MemberCount(stream):
		return fmt.Sprintf("a writer needs all members, that of target %s too: end it first", rings[member].Target)
	case isThere && tells[member] && KnowingCount(tells, member) < FenceCount(stream):
		return fmt.Sprintf("target %s has its ring, and without it too few members know what was acknowledged: the "+
			"ring of target %s never received an epoch; the writer, or the next one to open the stream, gives it "+
			"one. Where the ring of that target is lost, replace it "+
			"first", rings[member].Target, rings[slices.Index(tells, false)].Target)
	}
	return ""
}

// ReplacementTarget chooses who is to make the new ring: the target that is named, or the nearest and least loaded one
// with space in a failure domain where the stream has no other member. Where there is none, why tells it.
func ReplacementTarget(world World, name string, member int, named string, now time.Time) (target, why string) {
	stream := world.Streams[name]
	rings, _ := RingSpecs(world.Rings, stream)
	taken := map[string]bool{}
	for i, ring := range rings {
		if i != member {
			taken[domainOf(world, stream, ring.Target)] = true
		}
	}
	fitting, reason := fittingTargets(world, stream.GetSpec(), FreeSpace(world, world.TargetSpecs), now)
	free := slices.DeleteFunc(fitting, func(one string) bool {
		domain := domainOf(world, stream, one)
		return domain == "" || taken[domain] || named == "" && one == rings[member].Target || named != "" &&
			one != named
	})
	switch {
	case named == rings[member].Target && isProvided(world, rings[member]):
		return "", fmt.Sprintf("target %s has the ring that is to be replaced: name another one, or move the ring away",
			named)
	case named != "" && world.LiveTargets[named] == nil:
		return "", fmt.Sprintf("target %s does not report; those that do are %s", named,
			strings.Join(sortedNames(world.LiveTargets), ", "))
	case len(free) == 0 && named != "" && taken[domainOf(world, stream, named)]:
		return "", fmt.Sprintf("target %s shares a failure domain (%s) with another member", named,
			domainOf(world, stream, named))
	case len(free) == 0 && named != "":
		return "", fmt.Sprintf("target %s cannot take it: it is closed to new rings, or worn beyond its limit, or "+
			"does not give the stream's level, or has no free space for %d bytes, or its round-trip time is above "+
			"the latency limit or not measured, or its failure domain is not "+
			"declared", named, stream.GetSpec().GetRingSizeBytes())
	case len(free) == 0 && len(fitting) == 0:
		return "", reason
	case len(free) == 0:
		return "", "no other target in a failure domain of its own is there: start one, or name the same with --with " +
			"where its ring was lost"
	}
	target, _ = best(world, stream.GetSpec(), free, countPlaced(world), now)
	return target, ""
}

func isProvided(world World, ring *api.RingSpec) bool {
	seen := SeenRing(world.Targets, ring)
	return world.LiveTargets[ring.Target] != nil && seen.GetError() == "" && IsBoundRing(ring, seen)
}

// Replaced is the ring that is wanted in the place of another one.
func Replaced(ring *api.RingSpec, target string, by *api.Replacement) *api.RingSpec {
	by.FormerTarget = ring.Target
	by.FormerUuids = slices.Clone(ring.GetReplacement().GetFormerUuids())
	if len(ring.RingUuid) > 0 {
		by.FormerUuids = append(by.FormerUuids, ring.RingUuid)
	}
	return &api.RingSpec{Target: target, Stream: ring.Stream, Member: ring.Member, Replacement: by}
}

// isNewRing reports whether a ring that is reported may take the place of another one: it is blank, and none that the
// member ever had.
func isNewRing(ring *api.RingSpec, seen *api.RingState) bool {
	return seen.GetWriterEpoch() == 0 && !slices.ContainsFunc(ring.GetReplacement().GetFormerUuids(),
		func(former []byte) bool { return bytes.Equal(former, seen.GetRingUuid()) })
}
