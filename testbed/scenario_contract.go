package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/farlog/farlog/testbed/vm"
)

// verbsContract proves that what cannot be given is refused when it is opened, with a text that says what to do.
func verbsContract(ctx context.Context, b *bed) (string, error) {
	target, err := b.boot(ctx, targetMachine)
	if err != nil {
		return "", err
	}
	t, err := b.startTarget(ctx, target)
	if err != nil {
		return "", err
	}
	for _, claim := range []func(context.Context, *vm.Guest, *farTarget) error{
		b.memoryIsNotPersistent,
		b.fsdaxIsRefused, b.attestationIsChecked, b.memlockIsNamed,
	} {
		if err := claim(ctx, target, t); err != nil {
			return "", err
		}
	}
	return "DRAM asked for persistent, a file on fsdax, an attestation that the kernel denies, RLIMIT_MEMLOCK too " +
		"low: each refused when it is opened, and told what to do", nil
}

// mustSay checks an error for all the words it must have.
func mustSay(what string, err error, words ...string) error {
	if err == nil {
		return fmt.Errorf("%s was not refused", what)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			return fmt.Errorf("%s: %w, want a text with %q", what, err, word)
		}
	}
	return nil
}

func (b *bed) memoryIsNotPersistent(ctx context.Context, g *vm.Guest, t *farTarget) error {
	by := b.newGrant(1)
	if _, err := g.Run(ctx, "farlog ring format mem:/dev/shm/orders --size 4MiB --stream desk/orders"); err != nil {
		return err
	}
	for _, command := range []string{
		"serve orders mem:/dev/shm/orders desk",
		"grant orders " + by.token + " writer 1",
	} {
		if _, err := t.say(ctx, "%s", command); err != nil {
			return err
		}
	}
	_, err := b.writeFar(ctx, g, by, "", "")
	if err := mustSay("DRAM asked for persistent", err, "visible", "persistent"); err != nil {
		return err
	}
	_, err = t.say(ctx, "forget orders")
	return err
}

func (b *bed) fsdaxIsRefused(ctx context.Context, g *vm.Guest, t *farTarget) error {
	if _, err := g.Run(ctx, "fsdax-mount /media/pmem && farlog ring format mem:/media/pmem/orders --size 4MiB "+
		"--stream desk/orders"); err != nil {
		return err
	}
	_, err := t.say(ctx, "serve orders mem:/media/pmem/orders desk")
	return mustSay("a file on fsdax", err, "cannot be pinned", "--mode=devdax", "Operation not supported")
}

// attestationIsChecked: the daemon does not start on an attestation that the kernel denies, of a file whose disk is
// persistent memory; on one that it does not deny it starts, and its log says whose word it is.
func (b *bed) attestationIsChecked(ctx context.Context, g *vm.Guest, _ *farTarget) error {
	const path = "/media/pmem/orders"
	command := fmt.Sprintf("exec farlogd target --data-dir /run/attested --control 127.0.0.1:1 --metrics-listen off "+
		"--listen verbs://%s:%d --region mem:%s --attestation %s",
		addresses[g.Name], farPort+2, path, attestationFile)
	if _, err := g.Run(ctx, fmt.Sprintf(attestation, path, "eadr")); err != nil {
		return err
	}
	_, err := g.Run(ctx, command)
	if err := mustSay("eADR of a memory controller's domain", err, attestationFile, `how "eadr"`,
		"memory_controller, says the kernel"); err != nil {
		return err
	}
	if _, err := g.Run(ctx, fmt.Sprintf(attestation, path, "ddio-off")); err != nil {
		return err
	}
	p, err := b.start(g, "attested", command)
	if err != nil {
		return err
	}
	if err := p.WaitText(ctx, "ddio-off by any READ by attestation of "+attestedBy+", 2026-11-21"); err != nil {
		return err
	}
	return p.Signal(syscall.SIGKILL)
}

// memlockIsNamed: without the right to lock memory without bound, a target is told which limit is too low, and how to
// raise it.
func (b *bed) memlockIsNamed(ctx context.Context, g *vm.Guest, _ *farTarget) error {
	if _, err := g.Run(ctx, "chmod 666 /dev/shm/orders /dev/infiniband/*"); err != nil {
		return err
	}
	p, err := b.start(g, "memlock",
		fmt.Sprintf("ulimit -l 64 && exec setpriv --reuid=65534 --regid=65534 --clear-groups far target verbs://%s:%d",
			addresses[g.Name], farPort+1))
	if err != nil {
		return err
	}
	if _, err := p.ReadLine(ctx); err != nil {
		return fmt.Errorf("a target without rights: %w: %s", err, p.Stderr())
	}
	_, err = (&farTarget{p}).say(ctx, "serve orders mem:/dev/shm/orders desk")
	return mustSay("RLIMIT_MEMLOCK of 64 KiB", err, "RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l")
}
