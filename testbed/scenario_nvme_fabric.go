package main

import (
	"context"
	"fmt"

	"github.com/farlog/farlog/testbed/vm"
)

// fabricOf declares the disk as a namespace of the target, and the guest's own root, which is mounted, as another one.
func fabricOf(address string) string {
	return fmt.Sprintf(`targets:
- host: target
  namespaces:
  - name: desk
    device: %s
    subsystem: %s
    hosts: [{nqn: %s, host: host}]
  - {name: root, device: /dev/vda, subsystem: nqn.2026-01.com.example:root}
  ports:
  - {transport: rdma, address: %s}
  - {transport: tcp, address: %s, service: %d}
`, nvmeDevice, nvmeSubsystem, nvmeHostNQN("host"), address, address, nvmeTCPPort)
}

// nvmetOfFabric proves that a target exports what the fabric declares, and refuses a device that is mounted; that it
// does nothing where nothing differs, also after it was killed; that it repairs drift; and that it removes what is
// declared no more and leaves what others have made.
func (b *bed) nvmetOfFabric(ctx context.Context, target *vm.Guest) error {
	const root = "/sys/kernel/config/nvmet"
	guests := map[string]*vm.Guest{"target": target}
	c := b.newCrew(guests, "target")
	c.duties = []duty{controlDuty("target"), {"target", "target", fmt.Sprintf("farlogd target %s --data-dir "+
		"/var/target --host-name target --metrics-listen %s", c.control, targetMetrics)}}
	if _, err := target.Run(ctx, "farlog target nvmet remove && mkdir "+root+"/subsystems/others"); err != nil {
		return err
	}
	for _, name := range []string{"control", "target"} {
		if err := c.start(ctx, name); err != nil {
			return err
		}
	}
	own := root + "/subsystems/" + nvmeSubsystem
	isWhole := fmt.Sprintf("wait-for sh -c '[ $(cat %s/namespaces/1/enable) = 1 ] && [ $(ls -d "+
		"%s/ports/*/subsystems/%s | wc -l) = 2 ] && [ -e %s/allowed_hosts/%s ]'", own, root, nvmeSubsystem, own,
		nvmeHostNQN("host"))
	up := fmt.Sprintf("wait-for sh -c \"%s\"", targetMetric(fmt.Sprintf(
		`farlog_target_namespace_up{namespace=\"desk\",subsystem=\"%s\"} 1`, nvmeSubsystem)))
	for _, step := range []struct{ what, command string }{
		{"declare", fmt.Sprintf("cat >/run/fabric.yaml <<'END'\n%sEND\nwait-for farlog apply -f /run/fabric.yaml %s",
			fabricOf(addresses["target"]), c.control)},
		{"exported", isWhole + " && " + up},
		{"shown", fmt.Sprintf("wait-for sh -c 'farlog target show target %s | grep -q \"namespace desk .*exported; "+
			"hosts are fenced by reservations\"'", c.control)},
		{"the mounted root refused", fmt.Sprintf("farlog apply -f /run/fabric.yaml --dry-run %s >/run/drift; "+
			"[ $? = 3 ] && grep '^! target target.*namespace root: device /dev/vda: it is in use' /run/drift",
			c.control)},
		{"nothing of others touched", "test -d " + root + "/subsystems/others && ! test -e " + root +
			"/subsystems/nqn.2026-01.com.example:root"},
		{"drift", fmt.Sprintf("rm %s/ports/*/subsystems/%s %s/allowed_hosts/%s && echo 0 >%s/namespaces/1/enable", root,
			nvmeSubsystem, own, nvmeHostNQN("host"), own)},
		{"drift repaired", isWhole},
	} {
		if said, err := target.Run(ctx, step.command); err != nil {
			return fmt.Errorf("%s: %w: %s: %s", step.what, err, said, c.part("target").Stderr())
		}
	}
	if _, err := c.kill(ctx, "target"); err != nil {
		return err
	}
	if err := c.start(ctx, "target"); err != nil {
		return err
	}
	for _, step := range []struct{ what, command string }{
		{"as it was after a kill", isWhole + " && " + up + " && " + targetMetric("farlog_target_nvmet_step_total 0")},
		{"declare none", "echo 'targets: [{host: target}]' >/run/none.yaml && " +
			"wait-for farlog apply -f /run/none.yaml " + c.control},
		{"removed", "wait-for sh -c '! test -e " + own + " && [ -z \"$(ls " + root + "/ports)\" ]' && test -d " + root +
			"/subsystems/others"},
	} {
		if said, err := target.Run(ctx, step.command); err != nil {
			return fmt.Errorf("%s: %w: %s: %s", step.what, err, said, c.part("target").Stderr())
		}
	}
	return nil
}
