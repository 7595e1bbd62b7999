package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// fabricLines are the records of each of the two turns.
const fabricLines = 200

// nvmeFabric proves that a namespace needs nothing but its declaration and the host's key: the target exports it, the
// trading host's agent connects it, over rdma first, connects it again when the connection is lost, and over tcp when
// the fabric declares nothing else; a program appends to it meanwhile, and all of its records are there. An agent that
// is killed takes no connection along.
func nvmeFabric(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, nvmeTarget, nvmeHost)
	if err != nil {
		return "", err
	}
	c := b.newCrew(guests, "target")
	c.duties = []duty{
		controlDuty("target"),
		{"target", "target", fmt.Sprintf("farlogd target %s --data-dir /var/target --host-name target "+
			"--metrics-listen %s", c.control, targetMetrics)},
		{"agent", "host", fmt.Sprintf("farlogd host %s --data-dir /var/host --host-name host --metrics-listen off "+
			"--host-nvme-keys /run/keys", c.control)},
	}
	if err := c.beginFabric(ctx); err != nil {
		return "", err
	}
	device, err := c.connected(ctx, "rdma")
	if err != nil {
		return "", err
	}
	if _, err := guests["host"].Run(ctx, "farlog ring format "+nvmeRing+" --stream desk/orders"); err != nil {
		return "", err
	}
	if err := c.appendLines(ctx, "first"); err != nil {
		return "", err
	}
	if err := c.lose(ctx); err != nil {
		return "", err
	}
	if _, err := c.kill(ctx, "agent"); err != nil {
		return "", err
	}
	if _, err := guests["host"].Run(ctx, "nvme-device "+nvmeSubsystem+" 1"); err != nil {
		return "", fmt.Errorf("the agent's kill took the connection along: %w", err)
	}
	if err := c.start(ctx, "agent"); err != nil {
		return "", err
	}
	if err := c.declare(ctx, "tcp"); err != nil {
		return "", err
	}
	if _, err := c.connected(ctx, "tcp"); err != nil {
		return "", err
	}
	if err := c.appendLines(ctx, "second"); err != nil {
		return "", err
	}
	text, err := guests["host"].Run(ctx, "farlog tail --ring "+nvmeRing+" --format raw | sort | uniq | wc -l")
	if err != nil {
		return "", err
	}
	if found := strings.TrimSpace(text); found != fmt.Sprint(2*fabricLines) {
		return "", fmt.Errorf("%s records are in the ring, want %d", found, 2*fabricLines)
	}
	return fmt.Sprintf("%s by rdma, lost and back, then by tcp; %d records of a program in its ring", device,
		2*fabricLines), nil
}

// beginFabric starts the daemons and declares the namespace; the host's agent says that its key is missing, until its
// operator brings it.
func (c *crew) beginFabric(ctx context.Context) error {
	if err := c.prepareNVMe(ctx, "host"); err != nil {
		return err
	}
	for _, name := range []string{"control", "target", "agent"} {
		if err := c.start(ctx, name); err != nil {
			return err
		}
	}
	if err := c.declare(ctx, "rdma", "tcp"); err != nil {
		return err
	}
	if err := c.part("agent").WaitText(ctx, "key file: stat /run/keys/target.key: no such file"); err != nil {
		return fmt.Errorf("the missing key is not reported: %w: %s", err, c.part("agent").Stderr())
	}
	return c.giveAgentsKeys(ctx, "host")
}

// declare applies a fabric with the namespace at these ports.
func (c *crew) declare(ctx context.Context, transports ...string) error {
	return c.applyFabric(ctx, fmt.Sprintf(`targets:
- host: target
  namespaces:
  - {name: desk, device: %s, subsystem: %s, hosts: [{nqn: %s, host: host}]}
  ports: %s
`, nvmeDevice, nvmeSubsystem, nvmeHostNQN("host"), nvmePorts(transports)))
}

// connected waits until the agent has connected the namespace by a transport, and gives the device.
func (c *crew) connected(ctx context.Context, transport string) (string, error) {
	text, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-for sh -c 'd=$(nvme-device %s 1) && [ \"$(cat "+
		"/sys/block/${d#/dev/}/device/transport)\" = %s ]' && nvme-device %s 1", nvmeSubsystem, transport,
		nvmeSubsystem))
	if err != nil {
		return "", fmt.Errorf("not connected by %s: %w: %s", transport, err, c.part("agent").Stderr())
	}
	return strings.TrimSpace(text), c.awaitListed(ctx, "host", transport)
}

// lose takes the subsystem off its ports by hand: the target repairs that, and the agent connects again.
func (c *crew) lose(ctx context.Context) error {
	links := "/sys/kernel/config/nvmet/ports/*/subsystems/" + nvmeSubsystem
	if _, err := c.guests["target"].Run(ctx, "rm "+links); err != nil {
		return err
	}
	for strings.Count(c.part("agent").Stderr(), "connected a namespace") < 2 {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it does not connect again: %w: %s", context.Cause(ctx), c.part("agent").Stderr())
		}
	}
	return nil
}

// appendLines appends records by a program that knows the namespace's name alone, each acknowledged as persistent.
func (c *crew) appendLines(ctx context.Context, turn string) error {
	text, err := c.guests["host"].Run(
		ctx,
		fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i + 1)); echo \"%s $i\"; done | "+
			"farlog append --ring %s --ack text | grep -c persistent", fabricLines, turn, nvmeRing),
	)
	if err != nil {
		return fmt.Errorf("%s turn: %w", turn, err)
	}
	if found := strings.TrimSpace(text); found != fmt.Sprint(fabricLines) {
		return fmt.Errorf("%s turn: %s records were acknowledged, want %d", turn, found, fabricLines)
	}
	return nil
}
