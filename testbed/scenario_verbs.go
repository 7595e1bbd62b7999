package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// targetMachine has the NVDIMM, hostMachine appends to it.
var (
	targetMachine = machine{name: "target", cpus: 2, hasNVDIMM: true, isOnWire: true}
	hostMachine   = machine{name: "host", cpus: 2, isOnWire: true}
)

// verbsConformance proves that each flush method of verbs: puts records into persistent memory on another machine, and what the test of
// the verbs region claims beyond that, on a device that is not a simulation of ours.
func verbsConformance(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine)
	if err != nil {
		return "", err
	}
	var seen []string
	records, err := newRecords("V", 6000)
	if err != nil {
		return "", err
	}
	l := newLedger(records)
	target, err := b.serveDevdax(ctx, guests["target"], true)
	if err != nil {
		return "", err
	}
	for i, method := range []string{"rdma-flush", "target-cpu", "rdma-flush&wait=block", "target-cpu&wait=block"} {
		by, err := b.takeover(ctx, target, i+1)
		if err != nil {
			return "", err
		}
		proved, err := b.writeAndProve(ctx, guests["host"], by, method, l)
		if err != nil {
			return "", fmt.Errorf("%s: %w", method, err)
		}
		seen = append(seen, fmt.Sprintf("%s: %s", method, proved))
	}
	if err := b.readFlushIsRefused(ctx, guests["host"], target); err != nil {
		return "", err
	}
	alone, err := b.start(guests["host"], "verbs", "verbs "+addresses["host"])
	if err != nil {
		return "", err
	}
	if err := alone.Wait(ctx); err != nil {
		return "", fmt.Errorf("%w: %s", err, alone.Stdout())
	}
	lines := strings.Split(strings.TrimSpace(alone.Stdout()), "\n")
	return strings.Join(append(seen, "its own test: "+lines[len(lines)-1]), "; "), nil
}

// takeover makes the older writers unable to write, and grants the next epoch.
func (b *bed) takeover(ctx context.Context, target *farTarget, epoch int) (grant, error) {
	by := b.newGrant(epoch)
	if _, err := target.say(ctx, "fence orders %d", epoch); err != nil {
		return by, err
	}
	_, err := target.say(ctx, "grant orders %s writer %d", by.token, epoch)
	return by, err
}

func (b *bed) writeAndProve(ctx context.Context, host *vm.Guest, by grant, method string, l *ledger) (proof, error) {
	writer, err := b.writeFar(ctx, host, by, "?flush="+method, "-deadline 10s")
	if err != nil {
		return proof{}, err
	}
	flush, _, _ := strings.Cut(method, "&")
	if !strings.Contains(writer.Stderr(), "flush="+flush) {
		return proof{}, fmt.Errorf("%s was asked for, the writer says: %s", flush, writer.Stderr())
	}
	enough := l.next + 500
	if err := l.feed(ctx, b, writer, func(acknowledged int) bool { return acknowledged >= enough }); err != nil {
		return proof{}, err
	}
	if err := finish(ctx, writer); err != nil {
		return proof{}, err
	}
	return l.proveMemory(b.targetMemory())
}

// readFlushIsRefused: a READ reaches what caches hold, and nothing attests here that writes pass the caches by. Asked for on devdax it is
// refused when the ring is opened, with what there is instead.
func (b *bed) readFlushIsRefused(ctx context.Context, host *vm.Guest, target *farTarget) error {
	by, err := b.takeover(ctx, target, 100)
	if err != nil {
		return err
	}
	_, err = b.writeFar(ctx, host, by, "?flush=rdma-read", "")
	if err == nil || !strings.Contains(err.Error(), "it offers: rdma-flush, target-cpu") {
		return fmt.Errorf("flush=rdma-read on devdax: %w, want a refusal that tells what is offered", err)
	}
	return nil
}
