package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// KindNVMeoF is the kind of a stream whose ring lies in a namespace that a target exports by NVMe over fabrics: its
// writer's host connects the namespace, and its drain opens the device on the target's host.
const KindNVMeoF = "nvmeof"

// IsNamespaced reports whether the ring of a stream lies in a namespace.
func IsNamespaced(spec *api.StreamSpec) bool { return spec.GetKind() == KindNVMeoF }

// NamespaceURI is how a host that has connected the namespace opens a ring in it; "" for any other ring.
func NamespaceURI(ring *api.RingSpec) string {
	if ring.GetSubsystem() == "" {
		return ""
	}
	return "nvme:" + ring.Subsystem + "/1?ring=" + ring.Stream.Spec.Name
}

// NamespaceOf is what is declared of the namespace that a ring lies in; nil: nothing is any more.
func NamespaceOf(world World, ring *api.RingSpec) *api.Namespace {
	for _, one := range world.TargetSpecs[hostOf(world, ring.GetTarget())].GetNamespaces() {
		if one.Subsystem == ring.GetSubsystem() {
			return one
		}
	}
	return nil
}

// AdmittedHost is by which name (NQN) a namespace lets a host connect; "": it does not.
func AdmittedHost(namespace *api.Namespace, host string) (nqn string) {
	for _, one := range namespace.GetHosts() {
		if host != "" && one.Host == host {
			return one.Nqn
		}
	}
	return ""
}

// WhyNotConnected says why a host has not connected a namespace, by the last report of its agent; "": it has.
func WhyNotConnected(world World, host, subsystem string, now time.Time) string {
	report := world.Hosts[host]
	if report == nil || now.Sub(report.ReportTime.AsTime()) > MeasuredMax {
		return fmt.Sprintf("no host agent on host %s reports: start farlogd host there", host)
	}
	for _, one := range report.Namespaces {
		if one.Subsystem == subsystem && one.Device != "" {
			return ""
		}
		if one.Subsystem == subsystem {
			return fmt.Sprintf("host %s has not connected it: %s", host, cmp.Or(one.Error, "its agent has only begun"))
		}
	}
	return fmt.Sprintf("host %s has not connected it: its agent has not reported it yet", host)
}

// WhyNoNamespace says why none of the namespaces that are declared could ever have a stream's ring, whoever is
// connected; "": one could. specs are what is declared of targets, by host.
func WhyNoNamespace(specs map[string]*api.TargetSpec, spec *api.StreamSpec) (why string) {
	why = "no target declares a namespace: declare one (farlog apply, targets, namespaces)"
	if host := spec.GetTargetHost(); host != "" {
		why = fmt.Sprintf("no namespace is declared of target host %s: declare one there, or name another target host",
			host)
	}
	for _, host := range sortedNames(specs) {
		if spec.GetTargetHost() != "" && spec.TargetHost != host {
			continue
		}
		for _, one := range specs[host].GetNamespaces() {
			if why = whyNeverIn(host, one, spec); why == "" {
				return ""
			}
		}
	}
	return why
}

// whyNeverIn says what of a namespace's declaration keeps a stream's writer or drain away from it.
func whyNeverIn(host string, namespace *api.Namespace, spec *api.StreamSpec) string {
	is := fmt.Sprintf("namespace %s of host %s", namespace.Name, host)
	switch writer := spec.GetWriterHost(); {
	case writer != "" && AdmittedHost(namespace, writer) == "":
		return fmt.Sprintf(
			"%s does not admit host %s of the writer: declare it under the namespace's hosts, with host "+
				"and nqn",
			is,
			writer,
		)
	case writer == "" && !hasNamedHost(namespace):
		return is + " admits no host whose name is declared: declare the writer's under its hosts, with host and nqn"
	case spec.GetDrainHost() != "" && spec.DrainHost != host:
		return fmt.Sprintf(
			"%s is drained on its own host, and the drain is to be on host %s: declare drain %s, or none",
			is,
			spec.DrainHost,
			host,
		)
	}
	return ""
}

func hasNamedHost(namespace *api.Namespace) bool {
	for _, one := range namespace.Hosts {
		if one.Host != "" {
			return true
		}
	}
	return false
}

// namespaceFor is the first namespace of a target that can have a stream's ring now; nil, and why: none can. space has,
// beside what hosts have left, the subsystems in which a ring was placed since the world was seen: a further one waits
// until its target reports the former, and what is left beside it.
func namespaceFor(world World, spec *api.StreamSpec, target string, space map[string]uint64, now time.Time,
) (found *api.Namespace, why string) {
	host := world.LiveTargets[target].GetHost()
	declared := world.TargetSpecs[host]
	why = fmt.Sprintf("no namespace is declared of host %s of target %s: declare one (farlog apply, targets, "+
		"namespaces)", host, target)
	for _, one := range declared.GetNamespaces() {
		if why = whyNeverIn(host, one, spec); why == "" {
			why = whyNotIn(world, spec, target, one, now)
		}
		if why == "" && space[one.Subsystem] > 0 {
			why = fmt.Sprintf("namespace %s of host %s is just getting another ring", one.Name, host)
		}
		if why == "" {
			return one, ""
		}
	}
	return nil, why
}

// whyNotIn says why a namespace cannot have a stream's ring as things are: nobody would write it, or drain it, or it
// has no space.
func whyNotIn(world World, spec *api.StreamSpec, target string, namespace *api.Namespace, now time.Time) string {
	host := world.LiveTargets[target].GetHost()
	is := fmt.Sprintf("namespace %s of host %s", namespace.Name, host)
	seen := exportOf(world.Targets[target], namespace)
	switch {
	case seen == nil:
		return is + ": its target has not reported it yet"
	case !seen.Exported:
		return fmt.Sprintf("%s is not exported: %s", is, seen.Error)
	case seen.Level == api.Level_LEVEL_UNSPECIFIED:
		return fmt.Sprintf("%s can have no ring: %s", is, cmp.Or(seen.RingError, "its target has not looked at it yet"))
	case seen.Level < spec.GetLevel():
		return fmt.Sprintf("%s gives level %s: level %s is wanted", is, levelName(seen.Level), levelName(spec.Level))
	}
	if why := whyOtherTenants(world, spec, namespace); why != "" {
		return is + why
	}
	if free := freeIn(world, seen); free < spec.GetRingSizeBytes() {
		return fmt.Sprintf("%s has space for a ring of %d bytes: %d are wanted", is, free, spec.RingSizeBytes)
	}
	if why := whyNobodyConnects(world, spec, namespace, now); why != "" {
		return is + ": " + why
	}
	if !hasDrainOn(world, host, spec.GetName()) {
		return fmt.Sprintf("%s is drained on its own host, and no drain for stream %s is registered there: start "+
			"farlogd drain on host %s", is, spec.GetName(), host)
	}
	return ""
}

func exportOf(state *api.TargetState, namespace *api.Namespace) *api.NamespaceState {
	for _, seen := range state.GetNamespaces() {
		if seen.Name == namespace.Name && seen.Subsystem == namespace.Subsystem && seen.Device == namespace.Device {
			return seen
		}
	}
	return nil
}

// whyOtherTenants keeps tenants apart: whoever connects a namespace reaches all of its rings.
func whyOtherTenants(world World, spec *api.StreamSpec, namespace *api.Namespace) string {
	for _, key := range sortedNames(world.Rings) {
		ring := world.Rings[key]
		other := ring.GetStream().GetSpec().GetName()
		if ring.GetSubsystem() == namespace.Subsystem && tenantOf(other) != tenantOf(spec.GetName()) {
			return fmt.Sprintf(
				" has ring %s: who connects it reaches all of its rings, and another tenant needs another "+
					"namespace",
				other,
			)
		}
	}
	return ""
}

func tenantOf(stream string) string {
	tenant, _, _ := strings.Cut(stream, "/")
	return tenant
}

// freeIn is the size of the largest ring that a namespace has space for, beside those that are placed there and not
// made yet.
func freeIn(world World, seen *api.NamespaceState) uint64 {
	free := seen.FreeBytes
	for _, ring := range world.Rings {
		if ring.GetSubsystem() == seen.Subsystem && len(ring.RingUuid) == 0 &&
			len(SeenRing(world.Targets, ring).GetRingUuid()) == 0 {
			free -= min(free, ring.GetStream().GetSpec().GetRingSizeBytes()+namespaceRingExtra)
		}
	}
	return free
}

// namespaceRingExtra is what a ring takes in a namespace beyond its size: its header is spread over blocks
// (docs/reference/format.md).
const namespaceRingExtra = 20480

// whyNobodyConnects says why the writer's host does not reach a namespace, or none of those that may write where it is
// not said which; "": it does.
func whyNobodyConnects(world World, spec *api.StreamSpec, namespace *api.Namespace, now time.Time) (why string) {
	for _, one := range namespace.Hosts {
		if one.Host == "" || spec.GetWriterHost() != "" && one.Host != spec.WriterHost {
			continue
		}
		if why = WhyNotConnected(world, one.Host, namespace.Subsystem, now); why == "" {
			return ""
		}
	}
	return why
}

func hasDrainOn(world World, host, stream string) bool {
	for _, drain := range world.LiveDrains {
		if drain.Host == host && MayDrain(drain, stream) {
			return true
		}
	}
	return false
}
