package check

import (
	"fmt"
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// checkNamespaces looks at the namespaces of all targets together, as they will be.
func (f *finder) checkNamespaces() {
	declared := f.world.targetsWith(f.fabric.Targets)
	for i, spec := range f.fabric.Targets {
		if declared[spec.Host] == spec { // of two for one host the first counts
			have, prefix := f.world.TargetSpecs[spec.Host], fmt.Sprintf("fabric.targets[%d].", i)
			f.Problems = append(f.Problems, Namespaces(have, spec, declared, prefix)...)
			f.Problems = append(f.Problems, NamespacesInUse(f.world.Rings, have, spec, prefix)...)
		}
	}
}

// Namespaces finds what is wrong with the namespaces and ports that are asked for of a host, which now has others.
// declared is what is declared of all hosts, by host; fields begin with prefix.
func Namespaces(have, asked *api.TargetSpec, declared map[string]*api.TargetSpec, prefix string) []*api.Problem {
	n := &namespaceCheck{asked: asked, prefix: prefix}
	n.checkPorts()
	n.checkDoubles()
	n.checkOtherHosts(declared)
	n.checkDevices(have)
	return n.problems
}

// NamespacesInUse finds namespaces that are declared no more and have rings of streams: nobody could write them any
// more, or drain what they hold.
func NamespacesInUse(rings map[string]*api.RingSpec, have, asked *api.TargetSpec, prefix string) []*api.Problem {
	n := &namespaceCheck{asked: asked, prefix: prefix}
	for _, before := range have.GetNamespaces() {
		isStaying := slices.ContainsFunc(asked.GetNamespaces(),
			func(one *api.Namespace) bool { return one.Subsystem == before.Subsystem })
		for _, key := range slices.Sorted(maps.Keys(rings)) {
			if stream := rings[key].GetStream().GetSpec().GetName(); !isStaying &&
				rings[key].Subsystem == before.Subsystem {
				n.fail(
					"namespaces",
					"",
					"expected subsystem %s among them: the ring of stream %s lies in it; delete the "+
						"stream first",
					before.Subsystem,
					stream,
				)
				break
			}
		}
	}
	return n.problems
}

type namespaceCheck struct {
	asked    *api.TargetSpec
	prefix   string
	problems []*api.Problem
}

func (n *namespaceCheck) fail(field, value, rule string, args ...any) {
	n.problems = append(n.problems, &api.Problem{
		Field: n.prefix + field, Value: value, Rule: fmt.Sprintf(rule, args...),
	})
}

func (n *namespaceCheck) checkPorts() {
	if len(n.asked.Namespaces) > 0 && len(n.asked.Ports) == 0 {
		n.fail("ports", "", "expected at least one: hosts connect there to the namespaces")
	}
	seen := map[string]int{}
	for i, port := range n.asked.Ports {
		key := fmt.Sprintf("%s %s %d", port.Transport, port.Address, ServiceOf(port))
		if first, isThere := seen[key]; isThere {
			n.fail(fmt.Sprintf("ports[%d].address", i), fmt.Sprintf("%q", port.Address),
				"expected each port once: ports[%d] is the same", first)
			continue
		}
		seen[key] = i
	}
}

// ServiceOf is the port number of a port.
func ServiceOf(port *api.NamespacePort) uint32 {
	if port.Service == 0 {
		return serviceDefault
	}
	return port.Service
}

const serviceDefault = 4420 // of NVMe over fabrics

// checkDoubles finds what is declared twice on the host, and a host that is to authenticate itself in two ways.
func (n *namespaceCheck) checkDoubles() {
	names, devices, subsystems := map[string]int{}, map[string]int{}, map[string]int{}
	auths := map[string]*api.NamespaceHost{}
	for i, one := range n.asked.Namespaces {
		for _, field := range []struct {
			name, value string
			seen        map[string]int
		}{{"name", one.Name, names}, {"device", one.Device, devices}, {"subsystem", one.Subsystem, subsystems}} {
			if first, isThere := field.seen[field.value]; isThere {
				n.fail(fmt.Sprintf("namespaces[%d].%s", i, field.name), fmt.Sprintf("%q", field.value),
					"expected each %s once: namespaces[%d] has it", field.name, first)
				continue
			}
			field.seen[field.value] = i
		}
		hosts, named := map[string]bool{}, map[string]bool{}
		for j, host := range one.Hosts {
			field := fmt.Sprintf("namespaces[%d].hosts[%d]", i, j)
			if hosts[host.Nqn] {
				n.fail(field+".nqn", fmt.Sprintf("%q", host.Nqn), "expected each host once")
			}
			if host.Host != "" && named[host.Host] {
				n.fail(field+".host", fmt.Sprintf("%q", host.Host), "expected each host once: it connects by one NQN")
			}
			named[host.Host] = true
			if other := auths[host.Nqn]; other != nil && AuthOf(other) != AuthOf(host) {
				n.fail(field+".auth", valueText(host.ProtoReflect().Descriptor().Fields().ByName("auth"),
					host.ProtoReflect().Get(host.ProtoReflect().Descriptor().Fields().ByName("auth"))),
					"expected it as in the other namespaces of the target: it has one key of each host")
			}
			hosts[host.Nqn], auths[host.Nqn] = true, host
		}
	}
}

// AuthOf is how a host authenticates itself.
func AuthOf(host *api.NamespaceHost) api.Authentication {
	if host.Auth == api.Authentication_AUTHENTICATION_UNSPECIFIED {
		return api.Authentication_AUTHENTICATION_BOTH
	}
	return host.Auth
}

// checkOtherHosts finds subsystems that another host has: a host that connects takes two of one name for two paths to
// the same device.
func (n *namespaceCheck) checkOtherHosts(declared map[string]*api.TargetSpec) {
	for i, one := range n.asked.Namespaces {
		for _, host := range slices.Sorted(maps.Keys(declared)) {
			isThere := slices.ContainsFunc(declared[host].Namespaces,
				func(other *api.Namespace) bool { return other.Subsystem == one.Subsystem })
			if host != n.asked.Host && isThere {
				n.fail(fmt.Sprintf("namespaces[%d].subsystem", i), fmt.Sprintf("%q", one.Subsystem),
					"expected a subsystem that no other target has: that of host %s does", host)
				break
			}
		}
	}
}

// checkDevices refuses another device behind a subsystem: connected hosts would go on writing to it as if it were the
// device of before.
func (n *namespaceCheck) checkDevices(have *api.TargetSpec) {
	for i, one := range n.asked.Namespaces {
		for _, before := range have.GetNamespaces() {
			if before.Subsystem == one.Subsystem && before.Device != one.Device {
				n.fail(fmt.Sprintf("namespaces[%d].device", i), fmt.Sprintf("%q", one.Device),
					"expected %q as it is: hosts are connected to it; declare another subsystem for another device",
					before.Device)
			}
		}
	}
}
