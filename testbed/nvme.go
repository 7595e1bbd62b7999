package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// What the guests of the NVMe scenarios are called. The subsystem has one namespace, the target's disk, and is reached
// over rdma and over tcp.
const (
	nvmeSubsystem = "nqn.2026-01.com.example:desk"
	nvmeRing      = "nvme:" + nvmeSubsystem + "/1"
	nvmeDevice    = "/dev/vdc"
	nvmeRDMAPort  = 4420
	nvmeTCPPort   = 4421
	nvmeKey       = "/run/nvme.key" // of a host that farlog host connect connects
	nvmetFile     = "/var/lib/farlog/nvmet.yaml"
)

// The machines have a kernel whose NVMe target has reservations. A target's disk is the namespace; what it was told is
// kept in its NVDIMM, over its end.
var (
	nvmeTarget  = machine{name: "target", cpus: 2, hasNVDIMM: true, hasDisk: true, isOnWire: true, isNewer: true}
	nvmeHost    = machine{name: "host", cpus: 2, isOnWire: true, isNewer: true}
	nvmeCentral = machine{name: "central", cpus: 2, isOnWire: true, isNewer: true}
	nvmeSecond  = machine{name: "second", cpus: 2, isOnWire: true, isNewer: true}
)

// nvmeHostNQN is what a guest calls itself to a target; nvmeHostID goes with it.
func nvmeHostNQN(guest string) string { return "nqn.2026-01.com.example:host-" + guest }

func nvmeHostID(guest string) string {
	return fmt.Sprintf("f81d4fae-7dec-11d0-a765-%012x", strings.IndexByte("hcs", guest[0])+1)
}

// nvmetDeclaration is a target's file: one subsystem for these hosts, a port of each transport. extra is more lines of
// the subsystem, which end with further namespaces.
func nvmetDeclaration(extra string, hosts ...string) string {
	var names []string
	for _, host := range hosts {
		names = append(names, nvmeHostNQN(host))
	}
	return fmt.Sprintf(`subsystems:
- nqn: %s
  hosts: [%s]
  namespaces:
  - {nsid: 1, device: %s}
%sports:
- {id: 1, transport: rdma, address: %s, service: %d}
- {id: 2, transport: tcp, address: %s, service: %d}
`, nvmeSubsystem, strings.Join(names, ", "), nvmeDevice, extra,
		addresses["target"], nvmeRDMAPort, addresses["target"], nvmeTCPPort)
}

// serveNVMe sets up the target for these hosts, by what its operator would run. What it was told is in memory that
// outlives the guest.
func (b *bed) serveNVMe(ctx context.Context, target *vm.Guest, extra string, hosts ...string) error {
	if _, err := target.Run(ctx, "nvmet-up"); err != nil {
		return err
	}
	_, err := target.Run(ctx, fmt.Sprintf("cat >%s <<'END'\n%sEND\nfarlog target nvmet apply -f %s && sync", nvmetFile,
		nvmetDeclaration(extra, hosts...), nvmetFile))
	return err
}

// giveKey brings a host its key, as soon as the target has made it, into a file.
func (b *bed) giveKey(ctx context.Context, target, host *vm.Guest, path string) error {
	text, err := target.Run(ctx, fmt.Sprintf("wait-for farlog target nvmet key %s /run/host.key && cat /run/host.key "+
		"&& rm /run/host.key", nvmeHostNQN(host.Name)))
	if err != nil {
		return err
	}
	_, err = host.Run(ctx, fmt.Sprintf("umask 077; cat >%s <<'END'\n%sEND", path, text))
	return err
}

// connectNVMe connects a guest that has its key by farlog host connect, and returns the device. A connection that
// breaks takes its device along. On a machine that is busy enough the target gives a connection up while its host still
// shows the key, which the host takes for a key that is refused: once more then.
func (b *bed) connectNVMe(ctx context.Context, host *vm.Guest, transport string) (device string, err error) {
	text, err := host.Run(ctx, "wait-for "+nvmeConnectCommand(host.Name, transport,
		nvmeHostNQN(host.Name))+" && nvme-device "+nvmeSubsystem+" 1")
	return strings.TrimSpace(text), err
}

func nvmeConnectCommand(guest, transport, hostNQN string) string {
	port := map[string]int{"rdma": nvmeRDMAPort, "tcp": nvmeTCPPort}[transport]
	return fmt.Sprintf("nvme-up %s %s %d %s %s %s", transport, addresses["target"], port, nvmeSubsystem, hostNQN,
		nvmeHostID(guest))
}

// disconnectNVMe ends a guest's connections.
func (b *bed) disconnectNVMe(ctx context.Context, host *vm.Guest) error {
	_, err := host.Run(ctx, "farlog host disconnect "+nvmeSubsystem)
	return err
}

// nvmeBed boots a target and hosts, sets the target up for them, and gives each its key.
func (b *bed) nvmeBed(ctx context.Context, hosts ...machine) (map[string]*vm.Guest, error) {
	return b.nvmeBedOn(ctx, nvmeTarget, "", hosts...)
}

// nvmeBedOn is the same on a target of another kind, with more lines of its subsystem.
func (b *bed) nvmeBedOn(ctx context.Context, target machine, extra string, hosts ...machine) (map[string]*vm.Guest,
	error,
) {
	guests, err := b.bootAll(ctx, append([]machine{target}, hosts...)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, host := range hosts {
		names = append(names, host.name)
	}
	if err := b.serveNVMe(ctx, guests["target"], extra, names...); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := b.giveKey(ctx, guests["target"], guests[name], nvmeKey); err != nil {
			return nil, err
		}
	}
	return guests, nil
}

// prepareNVMe loads what a target and its hosts need, and gives each host its name and a directory of keys.
func (c *crew) prepareNVMe(ctx context.Context, hosts ...string) error {
	if _, err := c.guests["target"].Run(ctx, "nvmet-up"); err != nil {
		return err
	}
	for _, name := range hosts {
		if _, err := c.guests[name].Run(ctx, fmt.Sprintf("modprobe nvme_core multipath=N admin_timeout=10 && modprobe "+
			"-a nvme-rdma nvme-tcp && mkdir -p /etc/nvme /run/keys && echo %s >/etc/nvme/hostnqn && echo %s "+
			">/etc/nvme/hostid", nvmeHostNQN(name), nvmeHostID(name))); err != nil {
			return err
		}
	}
	return nil
}

// giveAgentsKeys brings hosts their keys, to where their agents look for them.
func (c *crew) giveAgentsKeys(ctx context.Context, hosts ...string) error {
	for _, name := range hosts {
		if err := c.bed.giveKey(ctx, c.guests["target"], c.guests[name], "/run/keys/target.key"); err != nil {
			return err
		}
	}
	return nil
}

// nvmePorts is the list of the target's ports, one of each transport, in fabric.yaml.
func nvmePorts(transports []string) string {
	var ports []string
	for _, transport := range transports {
		port := map[string]int{"rdma": nvmeRDMAPort, "tcp": nvmeTCPPort}[transport]
		ports = append(ports, fmt.Sprintf("{transport: %s, address: %s, service: %d}", transport, addresses["target"],
			port))
	}
	return "[" + strings.Join(ports, ", ") + "]"
}

// applyFabric declares what a file of fabric.yaml says.
func (c *crew) applyFabric(ctx context.Context, text string) error {
	_, err := c.guests["target"].Run(ctx, fmt.Sprintf("cat >/run/fabric.yaml <<'END'\n%sEND\nwait-for farlog apply -f "+
		"/run/fabric.yaml %s", text, c.control))
	return err
}

// awaitListed waits until the control plane has that a host is connected by a transport, a pattern of grep.
func (c *crew) awaitListed(ctx context.Context, host, transport string) error {
	_, err := c.guests["host"].Run(
		ctx,
		fmt.Sprintf("wait-for sh -c 'farlog host list %s | grep -q \"%s .*desk .*target "+
			".*/dev/nvme.* %s \"'", c.control, host, transport),
	)
	return err
}
