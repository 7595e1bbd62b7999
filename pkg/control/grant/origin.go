package grant

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/identity"
)

// Origins are the addresses from which the holder of a grant may come to a ring. Those of its loopback mean its own
// host, and at a target on another one whoever is there: they count where both are one host, or where the target is
// reached by its loopback, so that they must be.
func Origins(v *state.View, addresses []string, host string, ring *api.RingState) []string {
	if host != "" && host == v.Targets[ring.GetTarget()].GetAgent().GetHost() ||
		slices.ContainsFunc(ring.GetRemoteUris(), isLoopbackURI) {
		return addresses
	}
	var far []string
	for _, text := range addresses {
		if network, err := identity.Network(text); err == nil && !network.Addr().IsLoopback() {
			far = append(far, text)
		}
	}
	if far == nil {
		return addresses // not one of them leads here: none would mean all
	}
	return far
}

// isLoopbackURI: verbs://host:port/ring and ofi:tcp://host:port/ring.
func isLoopbackURI(uri string) bool {
	_, rest, _ := strings.Cut(uri, "//")
	parsed, err := url.Parse("far://" + rest)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(parsed.Hostname())
	return parsed.Hostname() == "localhost" || err == nil && address.IsLoopback()
}

// admissionForTarget is what a target is told of a ring's listener. Where a drain's host is now it says itself, and
// that may change while it has the stream.
func admissionForTarget(v *state.View, name string) *api.Admission {
	admission := v.Admissions[name]
	if !slices.ContainsFunc(admission.GetGrants(), IsDrain) {
		return admission
	}
	spec := v.Rings[name]
	agent := v.DrainAgent(v.Assignments[spec.GetStream().GetSpec().GetName()].GetDrain())
	if len(agent.GetAddresses()) == 0 {
		return admission
	}
	told := proto.Clone(admission).(*api.Admission)
	for _, grant := range told.Grants {
		if IsDrain(grant) {
			grant.Addresses = Origins(v, agent.Addresses, agent.Host, reconcile.SeenRing(v.Targets, spec))
		}
	}
	return told
}
