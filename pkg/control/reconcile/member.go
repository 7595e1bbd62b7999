package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// MemberKey is the name of one of a stream's rings. The first one's is the stream's, as is that of a stream with one;
// no stream's name has a #.
func MemberKey(stream string, member int) string {
	if member == 0 {
		return stream
	}
	return fmt.Sprintf("%s#%d", stream, member)
}

// MemberCount is how many rings a stream is to have.
func MemberCount(stream *api.Stream) int { return max(1, int(stream.GetSpec().GetMembers())) }

// Needed is how many of them an acknowledgement waits for.
func Needed(stream *api.Stream) int { return max(1, int(stream.GetK())) }

// Quorum is how many members have to be fenced and to have let in a writer before it may begin: any so many have one of
// all that an acknowledgement waited for, and too few are left for the writer before to have another one.
func Quorum(stream *api.Stream) int {
	return max(Needed(stream), FenceCount(stream))
}

// FenceCount is how many members have to be fenced so that no writer below the fence can have a record acknowledged.
func FenceCount(stream *api.Stream) int { return MemberCount(stream) - Needed(stream) + 1 }

// RingSpecs lists a stream's rings in order; nil where none is placed yet.
func RingSpecs(rings map[string]*api.RingSpec, stream *api.Stream) (specs []*api.RingSpec, isWhole bool) {
	isWhole = true
	for i := range MemberCount(stream) {
		spec := rings[MemberKey(stream.GetSpec().GetName(), i)]
		specs, isWhole = append(specs, spec), isWhole && spec != nil
	}
	return specs, isWhole
}

// MembersURI names all of them, as the C library takes it; of one ring it is that one's URI.
func MembersURI(needed int, members []*api.Member) string {
	if len(members) == 1 {
		return members[0].Uri
	}
	uris := make([]string, len(members))
	for i, member := range members {
		uris[i] = member.Uri
	}
	return fmt.Sprintf("members:%d %s", needed, strings.Join(uris, " "))
}

// placeMissing puts the rings that a stream still lacks on targets in different failure domains, each on the one with
// space that is nearest to the writer's host, if one is named, and among those on the one that has the fewest rings for
// what is left of its endurance. All of them, or none: a part of the members is no stream.
func placeMissing(world World, name string, placed map[string]int, space map[string]uint64, now time.Time) []Action {
	stream := world.Streams[name]
	fitting, _ := fittingTargets(world, stream.GetSpec(), space, now)
	taken := usedDomains(world, stream)
	var actions []Action
	for i := range MemberCount(stream) {
		if ring := world.Rings[MemberKey(name, i)]; ring != nil && !IsMovable(world, ring) {
			continue
		}
		var free []string
		for _, target := range fitting {
			if domain := domainOf(world, stream, target); domain != "" && !taken[domain] {
				free = append(free, target)
			}
		}
		target, ok := best(world, stream.GetSpec(), free, placed, now)
		if !ok {
			return nil
		}
		taken[domainOf(world, stream, target)] = true
		ring := &api.RingSpec{
			Target: target, Stream: stream, Member: uint32(i),
			LostUuid: world.Rings[MemberKey(name, i)].GetLostUuid(),
		}
		if IsNamespaced(stream.GetSpec()) {
			namespace, _ := namespaceFor(world, stream.GetSpec(), target, space, now)
			ring.Subsystem = namespace.GetSubsystem()
		}
		actions = append(actions, Action{Place: ring})
	}
	for _, action := range actions {
		placed[action.Place.Target]++
		reserveSpace(space, world.LiveTargets[action.Place.Target].Host, stream.GetSpec().GetRingSizeBytes())
		if subsystem := action.Place.Subsystem; subsystem != "" {
			space[subsystem]++
		}
	}
	return actions
}

func usedDomains(world World, stream *api.Stream) map[string]bool {
	taken := map[string]bool{}
	specs, _ := RingSpecs(world.Rings, stream)
	for _, spec := range specs {
		if spec != nil && !IsMovable(world, spec) {
			taken[domainOf(world, stream, spec.Target)] = true
		}
	}
	return taken
}

// The failure domains of StreamSpec.
const (
	DomainHost = "host"
	DomainRack = "rack"
	DomainSite = "site"
)

// domainOf is what fails together with a target; "" where nobody has said so. Of a stream with one ring it does not
// matter.
func domainOf(world World, stream *api.Stream, target string) string {
	host := hostOf(world, target)
	spec := world.TargetSpecs[host]
	switch {
	case MemberCount(stream) == 1:
		return target
	case stream.GetSpec().GetFailureDomain() == DomainRack && spec.GetRack() != "":
		return spec.GetSite() + "/" + spec.GetRack()
	case stream.GetSpec().GetFailureDomain() == DomainRack:
		return ""
	case stream.GetSpec().GetFailureDomain() == DomainSite:
		return spec.GetSite()
	}
	return host
}

// tooFewDomains says which failure domains there are, where they are fewer than the members; "" where they are enough.
func tooFewDomains(world World, stream *api.Stream, fitting []string) string {
	domains, unknown := map[string]bool{}, map[string]bool{}
	for _, target := range fitting {
		if domain := domainOf(world, stream, target); domain != "" {
			domains[domain] = true
		} else {
			unknown[hostOf(world, target)] = true
		}
	}
	specs, _ := RingSpecs(world.Rings, stream)
	for _, spec := range specs {
		if spec != nil && !IsMovable(world, spec) {
			domains[domainOf(world, stream, spec.Target)] = true
		}
	}
	kind := stream.GetSpec().GetFailureDomain()
	kind = cmp.Or(kind, DomainHost)
	if len(domains) >= MemberCount(stream) {
		return ""
	}
	text := fmt.Sprintf("%d members need targets in as many %ss, and there are %d", MemberCount(stream), kind,
		len(domains))
	if len(domains) > 0 {
		text += " (" + strings.Join(sortedNames(domains), ", ") + ")"
	}
	if len(unknown) > 0 {
		text += fmt.Sprintf("; of hosts %s no %s is declared: farlog apply", strings.Join(sortedNames(unknown), ", "),
			kind)
	}
	return text
}
