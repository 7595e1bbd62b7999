package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/farlog/farlog/testbed/vm"
)

const nvmetChecks = 12 // random pairs of states

// nvmetConfig proves on the kernel itself what pkg/nvmet's tests prove on a model of it, and what a target's operator
// does: what is missing is named, the same again changes nothing, a machine that was killed has after its boot what was
// declared, byte by byte as nvmetcli would save it, and what somebody removed by hand comes back.
func nvmetConfig(ctx context.Context, b *bed) (string, error) {
	target, err := b.boot(ctx, nvmeTarget)
	if err != nil {
		return "", err
	}
	if err := nvmetMissing(ctx, target); err != nil {
		return "", err
	}
	if _, err := target.Run(ctx, "nvmet-up && modprobe brd rd_nr=2 rd_size=4096 && modprobe nvme-loop"); err != nil {
		return "", err
	}
	tests, err := b.start(target, "nvmet.test", fmt.Sprintf("FARLOG_TEST_NVMET=/dev/ram0:/dev/ram1 exec nvmet.test "+
		"-test.run Kernel -test.v -rapid.checks=%d -rapid.seed=%d", nvmetChecks, 1+b.draw(1<<30)))
	if err != nil {
		return "", err
	}
	if err := tests.Wait(ctx); err != nil {
		return "", fmt.Errorf("%w: %s", err, tests.Stdout())
	}
	if passed := strings.Count(tests.Stdout(), "--- PASS: TestKernel_"); passed != 6 {
		return "", fmt.Errorf("%d tests on the kernel passed, want 6: %s", passed, tests.Stdout())
	}
	if err := b.serveNVMe(ctx, target, "", "host", "central"); err != nil {
		return "", err
	}
	saved, err := target.Run(ctx, "farlog target nvmet save -")
	if err != nil {
		return "", err
	}
	if err := nvmetAgain(ctx, target); err != nil {
		return "", err
	}
	cli, err := nvmetCLI(ctx, target, saved)
	if err != nil {
		return "", fmt.Errorf("nvmetcli: %w", err)
	}
	target.Kill()
	if target, err = b.boot(ctx, nvmeTarget); err != nil {
		return "", err
	}
	if err := b.nvmetKept(ctx, target, saved); err != nil {
		return "", err
	}
	if err := b.nvmetOfFabric(ctx, target); err != nil {
		return "", fmt.Errorf("by the fabric: %w", err)
	}
	return fmt.Sprintf("%d random pairs of states on Linux's own target; after a kill and a boot all %d bytes of its "+
		"save are the same; drift is repaired; a namespace of fabric.yaml is exported, repaired and removed, a "+
		"mounted device refused; %s", nvmetChecks, len(saved), cli), target.PowerOff(ctx)
}

// nvmetMissing proves that a missing mount and a missing module are named with the command that cures each.
func nvmetMissing(ctx context.Context, target *vm.Guest) error {
	for _, one := range []struct{ prepare, want string }{
		{"umount /sys/kernel/config 2>/dev/null", "mount -t configfs configfs /sys/kernel/config"},
		{"mount -t configfs configfs /sys/kernel/config", "modprobe nvmet"},
	} {
		_, err := target.Run(ctx, one.prepare+"; farlog target nvmet show")
		if err == nil || !strings.Contains(err.Error(), one.want) {
			return fmt.Errorf("after %s: error %w, want one with %q", one.prepare, err, one.want)
		}
	}
	return nil
}

// nvmetCLI proves that nvmetcli itself takes over from farlog and farlog from it: what one has saved the other
// restores, and the target is what it was.
func nvmetCLI(ctx context.Context, target *vm.Guest, saved string) (string, error) {
	version, err := target.Run(ctx, "dpkg-query -W -f '${Version}' nvmetcli || true")
	if err != nil || version == "" {
		return "nvmetcli could not be had for this root: not run", err
	}
	const root = "/sys/kernel/config/nvmet"
	for _, one := range []struct{ what, command string }{
		{
			"restores what farlog saved",
			"farlog target nvmet save /run/farlog.json && nvmetcli restore /run/farlog.json",
		},
		{"saves what farlog restores", "rm -f /run/cli.json; nvmetcli save /run/cli.json && rm " + root +
			"/ports/1/subsystems/* && echo 0 >" + root + "/subsystems/" + nvmeSubsystem +
			"/namespaces/1/enable && farlog target nvmet restore /run/cli.json"},
	} {
		said, err := target.Run(ctx, "("+one.command+") 2>&1")
		if err != nil {
			return "", fmt.Errorf("%s: %w: %s", one.what, err, said)
		}
		again, err := target.Run(ctx, "farlog target nvmet save -")
		if err != nil {
			return "", err
		}
		if again != saved {
			return "", fmt.Errorf("%s: the target is %s\nit was %s\n%s", one.what, again, saved, said)
		}
	}
	return "nvmetcli " + version + " restores what farlog saved, and farlog what it saved", nil
}

// nvmetAgain proves that the same again does nothing and says so, and that only who may read them sees the keys.
func nvmetAgain(ctx context.Context, target *vm.Guest) error {
	text, err := target.Run(ctx, "farlog target nvmet apply -f "+nvmetFile+" 2>&1; farlog target nvmet apply "+
		"--dry-run -f "+nvmetFile+" 2>&1 && farlog target nvmet show && farlog target nvmet show --output json")
	if err != nil {
		return err
	}
	if strings.Count(text, "it is so already") != 2 {
		return fmt.Errorf("the same again is not nothing: %s", text)
	}
	if strings.Contains(text, "DHHC") {
		return errors.New("a key is shown")
	}
	return nil
}

// nvmetKept proves that the daemon sets the target up at its start, and sets right what is changed by hand.
func (b *bed) nvmetKept(ctx context.Context, target *vm.Guest, saved string) error {
	if _, err := target.Run(ctx, "nvmet-up"); err != nil {
		return err
	}
	daemon, err := b.start(target, "farlogd", "exec farlogd target --data-dir /var/target --host-name target "+
		"--metrics-listen "+targetMetrics+" --nvmet-file "+nvmetFile+" --ready-file /run/target.ready")
	if err != nil {
		return err
	}
	if _, err := target.Run(ctx, "wait-for test -s /run/target.ready"); err != nil {
		return fmt.Errorf("%w: %s", err, daemon.Stderr())
	}
	again, err := target.Run(ctx, "farlog target nvmet save -")
	if err != nil {
		return err
	}
	if again != saved {
		return fmt.Errorf("after a boot the target is %s\nit was %s\n%s", again, saved, daemon.Stderr())
	}
	const root = "/sys/kernel/config/nvmet"
	drift := fmt.Sprintf("rm %s/ports/1/subsystems/%s %s/subsystems/%s/allowed_hosts/%s && echo 0 "+
		">%s/subsystems/%s/namespaces/1/enable", root, nvmeSubsystem, root, nvmeSubsystem, nvmeHostNQN("host"), root,
		nvmeSubsystem)
	if _, err := target.Run(ctx, drift+" && wait-for farlog target nvmet apply --dry-run -f "+nvmetFile); err != nil {
		return fmt.Errorf("what was removed by hand is not repaired: %w: %s", err, daemon.Stderr())
	}
	if strings.Contains(daemon.Stderr(), "DHHC") {
		return errors.New("a key is in the daemon's log")
	}
	if _, err := target.Run(ctx, targetMetric("farlog_target_nvmet_up 1")); err != nil {
		return err
	}
	if err := daemon.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return daemon.Wait(ctx)
}

// targetMetric succeeds where the target's daemon has a line.
func targetMetric(line string) string {
	return "busybox wget -q -O - http://" + targetMetrics + "/metrics | grep -qxF '" + line + "'"
}
