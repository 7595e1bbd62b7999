package reconcile

import (
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// The ways to a ring: the schemes of its URIs.
const (
	TransportMem   = "mem"
	TransportVerbs = "verbs"
	TransportOFI   = "ofi"
)

// IsFar tells a URI that leads to another host.
func IsFar(uri string) bool {
	return strings.HasPrefix(uri, TransportVerbs+":") || strings.HasPrefix(uri, TransportOFI+":")
}

// FarURI chooses among a ring's far URIs by transport; "" takes the fastest: verbs before ofi. It is empty when there is none.
func FarURI(uris []string, transport string) string {
	for _, scheme := range []string{TransportVerbs, TransportOFI} {
		for _, uri := range uris {
			if strings.HasPrefix(uri, scheme+":") && (transport == "" || transport == scheme) {
				return uri
			}
		}
	}
	return ""
}

// way is the URI by which a drain reaches a ring: a mem: region only on the target's own host. It is empty when there is none.
func way(world World, target string, seen *api.RingState, drain *api.Agent) string {
	if drain.Host == world.Targets[target].GetAgent().GetHost() {
		return seen.Uri
	}
	return FarURI(seen.FarUris, drain.Transport)
}
