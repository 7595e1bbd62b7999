package reconcile

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// The ways to a ring: the schemes of its URIs.
const (
	TransportMem   = "mem"
	TransportVerbs = "verbs"
	TransportOFI   = "ofi"
)

// IsRemote tells a URI that leads to another host.
func IsRemote(uri string) bool {
	return strings.HasPrefix(uri, TransportVerbs+":") || strings.HasPrefix(uri, TransportOFI+":")
}

// RemoteURI chooses among the far URIs of a stream's ring by transport; "" takes the fastest: verbs before ofi. It is
// empty when there is none. Where a target listens at several addresses by it, each is a rail: streams are spread over
// them by their names, and the members of one stream go round. It is the same one each time, while the target listens
// where it did.
func RemoteURI(uris []string, transport, stream string, member int) string {
	for _, scheme := range []string{TransportVerbs, TransportOFI} {
		if transport != "" && transport != scheme {
			continue
		}
		var rails []string
		for _, uri := range uris {
			if strings.HasPrefix(uri, scheme+":") {
				rails = append(rails, uri)
			}
		}
		if len(rails) == 1 {
			return rails[0]
		}
		if len(rails) > 1 {
			return rails[railOf(stream, member)%uint64(len(rails))]
		}
	}
	return ""
}

// railOf numbers the rails of a stream's members. The hash is written down nowhere: it may become another one, and then
// grants and assignments to come go by other rails.
func railOf(stream string, member int) uint64 {
	hash := sha256.Sum256([]byte(stream)) // names that differ by one digit are spread by it
	return uint64(binary.BigEndian.Uint32(hash[:])) + uint64(member)
}

// reachableURI is the URI by which a drain reaches a ring: a mem: region only on the target's own host. It is empty
// when there is none.
func reachableURI(world World, ring *api.RingSpec, seen *api.RingState, drain *api.Agent) string {
	if drain.Host == world.Targets[ring.Target].GetAgent().GetHost() {
		return seen.Uri
	}
	return RemoteURI(seen.RemoteUris, drain.Transport, ring.GetStream().GetSpec().GetName(), int(ring.Member))
}
