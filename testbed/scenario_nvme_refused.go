package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// nvmeRefused proves who is kept out of a subsystem: a host that it does not allow, one without a key, one with a wrong
// key, and after a rotation one with the old key. Whoever has the key is let in before and after each, over both
// transports.
func nvmeRefused(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBed(ctx, nvmeHost)
	if err != nil {
		return "", err
	}
	return b.keptOutNVMe(ctx, guests["target"], guests["host"])
}

// keptOutNVMe goes over them, from a host that may come in and is not connected. In the end it may not.
func (b *bed) keptOutNVMe(ctx context.Context, target, host *vm.Guest) (string, error) {
	letIn := func(transport string) error {
		if _, err := b.connectNVMe(ctx, host, transport); err != nil {
			return err
		}
		return b.disconnectNVMe(ctx, host)
	}
	for _, transport := range []string{"rdma", "tcp"} {
		if err := letIn(transport); err != nil {
			return "", fmt.Errorf("%s, the right key: %w", transport, err)
		}
	}
	const away, back = "cp /run/nvme.key /run/nvme.kept; ", "trap 'mv /run/nvme.kept /run/nvme.key' EXIT; "
	notAllowed, wrongKey := "host NQN "+nvmeHostNQN("stranger")+" is not allowed at ",
		" does not accept the key of host NQN "+nvmeHostNQN("host")
	cases := []struct{ name, prepare, hostNQN, said, targetSays string }{
		{
			"not allowed", away + back + "rm /run/nvme.key", nvmeHostNQN("stranger"), notAllowed,
			"connect by host " + nvmeHostNQN("stranger") + " for subsystem " + nvmeSubsystem + " not allowed",
		},
		{
			"no key", away + back + "rm /run/nvme.key", nvmeHostNQN("host"),
			" wants a key (DH-HMAC-CHAP), and none was given", "",
		},
		{
			"wrong key", away + back +
				"new=$(nvme gen-dhchap-key --hmac=1)\n" +
				`sed -i "s|\"dhchap_key\": \"[^\"]*\"|\"dhchap_key\": \"$new\"|" /run/nvme.key`,
			nvmeHostNQN("host"), wrongKey, "failure1",
		},
	}
	for _, transport := range []string{"rdma", "tcp"} {
		for _, one := range cases {
			if err := b.refusedNVMe(ctx, host, one.prepare, transport, one.hostNQN, one.said); err != nil {
				return "", fmt.Errorf("%s, %s: %w", transport, one.name, err)
			}
			if _, err := target.Run(ctx, "dmesg -c | grep -F '"+one.targetSays+"'"); err != nil {
				return "", fmt.Errorf("%s, %s: the target does not say %q", transport, one.name, one.targetSays)
			}
		}
	}
	if err := b.rotateNVMe(ctx, target, host, wrongKey); err != nil {
		return "", fmt.Errorf("a rotation: %w", err)
	}
	if err := b.evictNVMe(ctx, target, host); err != nil {
		return "", fmt.Errorf("a host that is not allowed any more: %w", err)
	}
	return "over rdma and tcp: let in by the key; refused: a host that is not allowed, no key, a wrong key, the old " +
		"key after a rotation; a host that is evicted loses its device", nil
}

// rotateNVMe proves that a rotation leaves a connection alone, that the old key opens none any more, and that the new
// one does, also of the connection that is there.
func (b *bed) rotateNVMe(ctx context.Context, target, host *vm.Guest, wrongKey string) error {
	device, err := b.connectNVMe(ctx, host, "tcp")
	if err != nil {
		return err
	}
	if _, err := target.Run(ctx, "farlog target nvmet rotate "+nvmeHostNQN("host")); err != nil {
		return err
	}
	const reads = "dd if=%s of=/dev/null bs=4096 count=1 iflag=direct 2>&1"
	if _, err := host.Run(ctx, fmt.Sprintf(reads, device)); err != nil {
		return fmt.Errorf("the connection that was there: %w", err)
	}
	if err := b.disconnectNVMe(ctx, host); err != nil {
		return err
	}
	if err := b.refusedNVMe(ctx, host, "true", "tcp", nvmeHostNQN("host"), wrongKey); err != nil {
		return fmt.Errorf("the key before it: %w", err)
	}
	if err := b.giveKey(ctx, target, host, nvmeKey); err != nil {
		return err
	}
	if device, err = b.connectNVMe(ctx, host, "tcp"); err != nil {
		return fmt.Errorf("the key after it: %w", err)
	}
	// Without a break: one key after the other.
	for _, one := range []struct{ part, key, attribute string }{
		{"host", "dhchap_key", "dhchap_secret"},
		{"target", "dhchap_ctrl_key", "dhchap_ctrl_secret"},
	} {
		if _, err := target.Run(ctx, fmt.Sprintf("farlog target nvmet rotate %s --part %s", nvmeHostNQN("host"),
			one.part)); err != nil {
			return err
		}
		if err := b.giveKey(ctx, target, host, nvmeKey); err != nil {
			return err
		}
		proves := fmt.Sprintf("dmesg -C; nvme-rekey %s %s %s && wait-for sh -c 'dmesg | grep -E \"controller "+
			"authenticated|authentication failed\"' && dmesg && ", nvmeSubsystem, one.key, one.attribute)
		text, err := host.Run(ctx, proves+fmt.Sprintf(reads, device))
		if err != nil || strings.Contains(text, "failed") {
			return fmt.Errorf("a new key of the %s, for a connection that is there: %w: %s", one.part, err, text)
		}
	}
	return nil
}

// evictNVMe proves that a host that is connected and taken out of the file loses its device at once, and is not let in
// again.
func (b *bed) evictNVMe(ctx context.Context, target, host *vm.Guest) error {
	if err := b.serveNVMe(ctx, target, "", "central"); err != nil {
		return err
	}
	if _, err := host.Run(ctx, "wait-for sh -c '! nvme-device "+nvmeSubsystem+" 1'"); err != nil {
		return err
	}
	return b.refusedNVMe(ctx, host, "true", "tcp", nvmeHostNQN("host"),
		"host NQN "+nvmeHostNQN("host")+" is not allowed at ")
}

// refusedNVMe fails unless the connection is refused with a text that names the subsystem and this reason, and leaves
// no device.
func (b *bed) refusedNVMe(ctx context.Context, host *vm.Guest, prepare, transport, hostNQN, reason string) error {
	text, err := host.Run(ctx, "set -e; "+prepare+"; "+nvmeConnectCommand(host.Name, transport, hostNQN))
	if err == nil {
		return fmt.Errorf("it was let in: %s", text)
	}
	if said := err.Error(); !strings.Contains(said, "connect subsystem "+nvmeSubsystem+": ") ||
		!strings.Contains(said, reason) {
		return fmt.Errorf("error %w, want one that names the subsystem and has %q", err, reason)
	}
	_, err = host.Run(ctx, "! nvme-device "+nvmeSubsystem+" 1")
	return err
}
