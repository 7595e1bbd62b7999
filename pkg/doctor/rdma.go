package doctor

import (
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
)

const (
	// roceHeaders is what RoCE v2 adds to a packet; an MTU of 4096 needs an interface that carries both.
	roceHeaders = 104
	portActive  = "4: ACTIVE"
)

// rdma looks at the devices that carry verbs://.
func (h Host) rdma() []Finding {
	devices := h.glob("/sys/class/infiniband/*")
	if len(devices) == 0 {
		return []Finding{{
			"rdma", Warn, "no RDMA device: verbs:// does not work here, mem: and ofi: do",
			"install the card's driver, or for a trial without a card: modprobe rdma_rxe && rdma link add rxe0 type " +
				"rxe netdev DEV",
		}}
	}
	findings := h.libraries()
	for _, device := range devices {
		if below := h.read(device + "/parent"); below != "" {
			findings = append(findings, Finding{
				"rdma " + path.Base(device), Warn,
				"no card: the kernel's processor does its work on " + below + ", for trials",
				"install a card, and its driver",
			})
		}
		for _, port := range h.glob(device + "/ports/*") {
			findings = append(findings, h.port(path.Base(device), port)...)
		}
		findings = append(findings, h.numa("rdma "+path.Base(device)+" numa", device+"/device/numa_node")...)
	}
	return findings
}

func (h Host) libraries() (findings []Finding) {
	for _, one := range []struct{ library, pkg string }{
		{"libibverbs.so.1", "libibverbs1 ibverbs-providers"},
		{"librdmacm.so.1", "librdmacm1"},
	} {
		if !h.hasLibrary(one.library) {
			findings = append(findings, Finding{
				"rdma library", Fail,
				one.library + " is not installed: verbs:// needs it", "apt-get install " + one.pkg,
			})
		}
	}
	return findings
}

func (h Host) hasLibrary(name string) bool {
	return len(h.glob("/usr/lib/*/"+name))+len(h.glob("/usr/lib64/"+name))+len(h.glob("/usr/lib/"+name)) > 0
}

// hasCard: a device of its own, and not the kernel over an interface, such as SoftRoCE.
func (h Host) hasCard() bool {
	return slices.ContainsFunc(h.glob("/sys/class/infiniband/*"),
		func(device string) bool { return h.read(device+"/parent") == "" })
}

func (h Host) port(device, port string) []Finding {
	name := fmt.Sprintf("rdma %s/%s", device, path.Base(port))
	if state := h.read(port + "/state"); state != portActive {
		ndev := "DEV"
		for _, below := range []string{path.Dir(path.Dir(port)) + "/parent", port + "/gid_attrs/ndevs/0"} {
			if h.read(below) != "" {
				ndev = h.read(below)
			}
		}
		return []Finding{{
			name, Fail, "port is " + strings.ToLower(strings.TrimLeft(state, "0123456789: ")),
			"plug the cable in, or: ip link set " + ndev + " up",
		}}
	}
	if h.read(port+"/link_layer") == "InfiniBand" {
		return []Finding{{name, OK, "active, InfiniBand, " + h.read(port+"/rate"), ""}}
	}
	findings := []Finding{{name, OK, "active, " + h.read(port+"/rate"), ""}, h.gids(name, port)}
	interfaces := map[string]bool{}
	for _, path := range h.glob(port + "/gid_attrs/ndevs/*") {
		if ndev := h.read(path); ndev != "" && !interfaces[ndev] {
			interfaces[ndev] = true
			findings = append(findings, h.mtu(name, ndev))
		}
	}
	return findings
}

// gids looks for an address of RoCE v2 with IPv4, which the connection manager takes by the address that is dialled.
func (h Host) gids(name, port string) Finding {
	hasVersion2 := false
	for _, attribute := range h.glob(port + "/gid_attrs/types/*") {
		if h.read(attribute) != "RoCE v2" {
			continue
		}
		hasVersion2 = true
		gid := net.ParseIP(h.read(port + "/gids/" + path.Base(attribute)))
		if gid != nil && gid.To4() != nil {
			return Finding{name + " gid", OK, fmt.Sprintf("RoCE v2, %s, index %s", gid, path.Base(attribute)), ""}
		}
	}
	if hasVersion2 {
		return Finding{name + " gid", Warn, "RoCE v2, but with no IPv4 address", "ip address add ADDRESS/24 dev DEV"}
	}
	return Finding{
		name + " gid", Fail,
		"no GID of RoCE v2: version 1 is not routed, and refused where the port has version 2",
		"mkdir /sys/kernel/config/rdma_cm/DEV; echo RoCE v2 > /sys/kernel/config/rdma_cm/DEV/ports/1/default_roce_mode",
	}
}

func (h Host) mtu(name, ndev string) Finding {
	mtu, ok := h.number("/sys/class/net/" + ndev + "/mtu")
	if !ok {
		return Finding{name + " mtu", Warn, "the MTU of interface " + ndev + " cannot be read", "ip link show " + ndev}
	}
	active := int64(4096)
	for active > 256 && active+roceHeaders > mtu {
		active /= 2
	}
	if active < 4096 {
		return Finding{
			name + " mtu", Warn, fmt.Sprintf("interface %s has MTU %d, so that RoCE has %d: longer "+
				"records take several packets", ndev, mtu, active),
			fmt.Sprintf("ip link set %s mtu 4200, on hosts and switches", ndev),
		}
	}
	return Finding{name + " mtu", OK, fmt.Sprintf("interface %s has MTU %d, RoCE 4096", ndev, mtu), ""}
}
