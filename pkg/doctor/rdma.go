package doctor

import (
	"fmt"
	"net"
	"path"
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
		return []Finding{{"rdma", Warn, "no RDMA device: verbs:// does not work here, mem: and ofi: do",
			"install the card's driver, or for a trial without a card: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev DEV"}}
	}
	findings := h.libraries()
	for _, device := range devices {
		for _, port := range h.glob(device + "/ports/*") {
			findings = append(findings, h.port(path.Base(device), port)...)
		}
		findings = append(findings, h.nodeOf(path.Base(device), device+"/device/numa_node"))
	}
	return findings
}

func (h Host) libraries() (findings []Finding) {
	for _, one := range []struct{ library, pkg string }{{"libibverbs.so.1", "libibverbs1 ibverbs-providers"}, {"librdmacm.so.1", "librdmacm1"}} {
		if len(h.glob("/usr/lib/*/"+one.library))+len(h.glob("/usr/lib64/"+one.library))+len(h.glob("/usr/lib/"+one.library)) == 0 {
			findings = append(findings, Finding{"rdma library", Fail, one.library + " is not installed: verbs:// needs it", "apt-get install " + one.pkg})
		}
	}
	return findings
}

func (h Host) port(device, port string) []Finding {
	name := fmt.Sprintf("rdma %s/%s", device, path.Base(port))
	if state := h.read(port + "/state"); state != portActive {
		return []Finding{{name, Fail, "port is " + strings.ToLower(strings.TrimLeft(state, "0123456789: ")), "plug the cable in, or: ip link set DEV up"}}
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
	return Finding{name + " gid", Fail, "no GID of RoCE v2: version 1 is not routed, and refused where the port has version 2",
		"mkdir /sys/kernel/config/rdma_cm/DEV; echo RoCE v2 > /sys/kernel/config/rdma_cm/DEV/ports/1/default_roce_mode"}
}

func (h Host) mtu(name, ndev string) Finding {
	mtu, ok := h.number("/sys/class/net/" + ndev + "/mtu")
	if !ok {
		return Finding{name + " mtu", Warn, "the MTU of interface " + ndev + " cannot be read", ""}
	}
	active := int64(4096)
	for active > 256 && active+roceHeaders > mtu {
		active /= 2
	}
	if active < 4096 {
		return Finding{name + " mtu", Warn, fmt.Sprintf("interface %s has MTU %d, so that RoCE has %d: longer records take several packets", ndev, mtu, active),
			fmt.Sprintf("ip link set %s mtu 4200, on hosts and switches", ndev)}
	}
	return Finding{name + " mtu", OK, fmt.Sprintf("interface %s has MTU %d, RoCE 4096", ndev, mtu), ""}
}

// nodeOf says on which socket a card is, where there are several.
func (h Host) nodeOf(device, path string) Finding {
	name := "rdma " + device + " numa"
	nodes := len(h.glob("/sys/devices/system/node/node[0-9]*"))
	node, ok := h.number(path)
	switch {
	case nodes < 2:
		return Finding{name, OK, "one NUMA node", ""}
	case !ok || node < 0:
		return Finding{name, Warn, fmt.Sprintf("%d NUMA nodes, and the device does not say at which it is", nodes), ""}
	}
	return Finding{name, Warn, fmt.Sprintf("at node %d of %d: threads and memory on another one pay the link between them", node, nodes),
		fmt.Sprintf("numactl --cpunodebind=%d --membind=%d PROGRAM; then this is as it should be", node, node)}
}
