package grant

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// A ring in a namespace has no listener: its writer's host connects the namespace, and what fences that host is its
// eviction by the target. So a writer's grant names its host, and is answered when the target has confirmed that no
// writer of a lower epoch is left that could write from another host.

// hostNQN is by which name a ring's namespace admits the holder's host, which has it connected; "": the ring lies in
// none. On the target's own host a ring is opened by its device, where nothing fences writers of other hosts: a writer
// there is refused as any other host is that does not connect the namespace.
func hostNQN(v *state.View, spec *api.RingSpec, request *api.AcquireWriterRequest) (string, error) {
	if spec.GetSubsystem() == "" {
		return "", nil
	}
	if request.Transport != "" {
		return "", refusal.Precondition(refusal.ReasonNoTransport, "transport", refusal.Quote(request.Transport),
			"expected none: the stream's ring lies in a namespace").
			Errorf("stream %q: its ring lies in a namespace, which is reached by its connection: name no transport",
				request.Stream)
	}
	world, host := v.World(), request.Holder.GetHost()
	namespace := reconcile.NamespaceOf(world, spec)
	nqn := reconcile.AdmittedHost(namespace, host)
	if nqn == "" {
		return "", refusal.Precondition(refusal.ReasonNoReach, "holder.host", refusal.Quote(host),
			"expected a host that subsystem %s admits", spec.Subsystem).
			Errorf("stream %q: its ring lies in a namespace that does not admit host %q: declare it under the hosts "+
				"of the namespace of subsystem %s, with host and nqn", request.Stream, host, spec.Subsystem)
	}
	if why := reconcile.WhyNotConnected(worldWithReport(v, world, host), host, spec.Subsystem, time.Now()); why != "" {
		return "", status.Errorf(codes.Unavailable, "stream %q: its ring lies in namespace %s: %s", request.Stream,
			namespace.Name, why)
	}
	return nqn, nil
}

// worldWithReport has the newest report of a host, which this instance may have got without etcd.
func worldWithReport(v *state.View, world reconcile.World, host string) reconcile.World {
	world.Hosts = map[string]*api.HostState{}
	if report := v.HostReport(host); report != nil {
		world.Hosts[host] = report
	}
	return world
}

// IsHeldElsewhere reports whether a writer of another host than the holder's may still write a ring in a namespace. On
// one host the ring's lock decides, as for any other ring.
func IsHeldElsewhere(spec *api.RingSpec, ring *api.RingState, host string) bool {
	return spec.GetSubsystem() != "" && ring.GetWriterHeld() && ring.GetWriterHost() != host
}

// readerURI is how a reader opens a ring in a namespace; "": the ring lies in none.
func readerURI(v *state.View, spec *api.RingSpec, ring *api.RingState, request *api.AcquireWriterRequest) (string,
	error,
) {
	host := request.Holder.GetHost()
	switch {
	case spec.GetSubsystem() == "":
		return "", nil
	case host == "" || host == v.Targets[ring.GetTarget()].GetAgent().GetHost():
		return ring.GetUri(), nil
	}
	if _, err := hostNQN(v, spec, request); err != nil {
		return "", fmt.Errorf("a reader on host %s: %w", host, err)
	}
	return reconcile.NamespaceURI(spec), nil
}
