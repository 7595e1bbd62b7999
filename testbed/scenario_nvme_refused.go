package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// nvmeRefused proves who is kept out of a subsystem: a host that it does not allow, one without a key, one with a wrong key, and after a rotation one with the old
// key. Whoever has the key is let in before and after each, over both transports.
func nvmeRefused(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBed(ctx, nvmeHost)
	if err != nil {
		return "", err
	}
	target, host := guests["target"], guests["host"]
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
	cases := []struct{ name, prepare, hostNQN, hostSays, targetSays string }{
		{"not allowed", "true", nvmeHostNQN("stranger"), "Connect for subsystem " + nvmeSubsystem + " is not allowed, hostnqn: " + nvmeHostNQN("stranger"),
			"connect by host " + nvmeHostNQN("stranger") + " for subsystem " + nvmeSubsystem + " not allowed"},
		{"no key", away + back + "rm /run/nvme.key", nvmeHostNQN("host"), "authentication setup failed", ""},
		{"wrong key", away + back + `new=$(nvme gen-dhchap-key --hmac=1); sed -i "s|\"dhchap_key\": \"[^\"]*\"|\"dhchap_key\": \"$new\"|" /run/nvme.key`,
			nvmeHostNQN("host"), "authentication failed", "failure1"},
	}
	for _, transport := range []string{"rdma", "tcp"} {
		for _, one := range cases {
			if err := b.refusedNVMe(ctx, host, one.prepare, transport, one.hostNQN, one.hostSays); err != nil {
				return "", fmt.Errorf("%s, %s: %w", transport, one.name, err)
			}
			if _, err := target.Run(ctx, "dmesg -c | grep -F '"+one.targetSays+"'"); err != nil {
				return "", fmt.Errorf("%s, %s: the target does not say %q", transport, one.name, one.targetSays)
			}
		}
	}
	if _, err := target.Run(ctx, "farlog target nvmet rotate "+nvmeHostNQN("host")); err != nil {
		return "", err
	}
	if err := b.refusedNVMe(ctx, host, "true", "tcp", nvmeHostNQN("host"), "authentication failed"); err != nil {
		return "", fmt.Errorf("the key before the rotation: %w", err)
	}
	if err := b.giveKey(ctx, target, host); err != nil {
		return "", err
	}
	if err := letIn("tcp"); err != nil {
		return "", fmt.Errorf("the key after the rotation: %w", err)
	}
	return "over rdma and tcp: let in by the key; refused: a host that is not allowed, no key, a wrong key, and the old key after a rotation", nil
}

// refusedNVMe fails unless the connection is refused for the reason that the kernel is to give, and leaves no device.
func (b *bed) refusedNVMe(ctx context.Context, host *vm.Guest, prepare, transport, hostNQN, reason string) error {
	text, err := host.Run(ctx, "dmesg -C; set -e; "+prepare+"; "+nvmeConnectCommand(host.Name, transport, hostNQN))
	if err == nil {
		return fmt.Errorf("it was let in: %s", text)
	}
	log, logErr := host.Run(ctx, "! nvme-device "+nvmeSubsystem+" && dmesg")
	switch {
	case logErr != nil:
		return fmt.Errorf("a device is there: %w", logErr)
	case !strings.Contains(log, reason):
		return fmt.Errorf("its kernel does not say %q, but %q (%w)", reason, log, err)
	}
	return nil
}
