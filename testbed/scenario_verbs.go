package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

// targetMachine has the NVDIMM, hostMachine appends to it, centralMachine has the control plane and a drain.
var (
	targetMachine  = machine{name: "target", cpus: 2, hasNVDIMM: true, isOnWire: true}
	hostMachine    = machine{name: "host", cpus: 2, isOnWire: true}
	centralMachine = machine{name: "central", cpus: 2, memoryMiB: 1024, isOnWire: true}
)

// drainRates is how many runs the test has that countWaits starts: four rates, with one ring and with three.
const drainRates = 8

// onDevdax tells a test of a region where its rings lie.
const onDevdax = "FARLOG_TEST_DEVDAX=$(dax-up)"

// verbsConformance proves that each flush method of verbs: puts records into persistent memory on another machine, and
// what the test of the verbs region claims beyond that, on a device that is not a simulation of ours.
func verbsConformance(ctx context.Context, b *bed) (string, error) {
	host := hostMachine
	host.hasNVDIMM, host.hasBAR = true, true // for the region's own test
	guests, err := b.bootAll(ctx, targetMachine, host)
	if err != nil {
		return "", err
	}
	records, err := newRecords("V", 6000)
	if err != nil {
		return "", err
	}
	l := newLedger(records)
	target, err := b.serveDevdax(ctx, guests["target"], true)
	if err != nil {
		return "", err
	}
	seen, err := b.takeTurns(ctx, guests["host"], target, 1, l, "rdma-flush", "target-cpu", "rdma-flush&wait=block",
		"target-cpu&wait=block")
	if err != nil {
		return "", err
	}
	attested, err := b.readFlush(ctx, guests, target, l)
	if err != nil {
		return "", err
	}
	seen = append(seen, attested...)
	own, err := b.ownTest(ctx, guests["host"], onDevdax)
	if err != nil {
		return "", err
	}
	for _, kind := range []string{"verbs-packed", "verbs-devdax"} {
		if err := b.conforms(ctx, guests["host"], kind); err != nil {
			return "", err
		}
	}
	waits, err := b.countWaits(ctx, guests["host"])
	if err != nil {
		return "", err
	}
	return strings.Join(append(seen, own, waits,
		"the conformance suite packed in /dev/shm and on devdax: by each method"), "; "), nil
}

// verbsTmpfs is the same test and suite where nothing is said of power cuts: a ring's memory in /dev/shm.
func verbsTmpfs(ctx context.Context, b *bed) (string, error) {
	host := hostMachine
	host.hasBAR = true // for the region's own test
	guests, err := b.bootAll(ctx, host)
	if err != nil {
		return "", err
	}
	own, err := b.ownTest(ctx, guests["host"], "")
	if err != nil {
		return "", err
	}
	waits, err := b.countWaits(ctx, guests["host"])
	if err != nil {
		return "", err
	}
	return own + "; " + waits + "; the conformance suite: by each method",
		b.conforms(ctx, guests["host"], "verbs-tmpfs")
}

// ownTest runs the test of the verbs region, target and client on one machine: on tmpfs, or with its rings on devdax,
// where it asks every method for the level persistent, over several laps of the ring. A BAR and a dma-buf are refused
// there, with all that is missing.
func (b *bed) ownTest(ctx context.Context, host *vm.Guest, place string) (string, error) {
	alone, err := b.start(host, "verbs", "export FARLOG_TEST_BAR=$(bar); "+place+" exec verbs "+addresses["host"])
	if err != nil {
		return "", err
	}
	if err := alone.Wait(ctx); err != nil {
		return "", fmt.Errorf("%w: %s", err, alone.Stdout())
	}
	name, level := "on tmpfs", "level visible"
	if place != "" {
		name, level = "on devdax", "level persistent"
	}
	text := alone.Stdout()
	for _, method := range []string{"rdma-flush", "rdma-read", "target-cpu"} {
		if !strings.Contains(text, level+" by "+method) {
			return "", fmt.Errorf("its own test %s: nothing was appended with %s by %s: %s", name, level, method, text)
		}
	}
	for _, said := range []string{"verbs: BAR: serve ring ", "verbs: dma-buf: "} {
		if !strings.Contains(text, said) || strings.Contains(text, said+"a real one: skipped") {
			return "", fmt.Errorf("its own test %s: it did not get as far as %q: %s", name, said, text)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Sprintf("its own test %s: %s", name, lines[len(lines)-1]), nil
}

// countWaits has a drain drain by verbs at several rates, from one ring and from three, and counts what ends its waits.
func (b *bed) countWaits(ctx context.Context, host *vm.Guest) (string, error) {
	test, err := b.start(host, "drain.test",
		"FARLOG_TEST_VERBS="+addresses["host"]+" exec drain.test -test.run=^TestRun_WaitsOfAVerbsDrainEndByEvents$ "+
			"-test.v")
	if err != nil {
		return "", err
	}
	if err := test.Wait(ctx); err != nil {
		return "", fmt.Errorf("waits of a drain: %w: %s", err, test.Stdout())
	}
	text := test.Stdout()
	counted := regexp.MustCompile(`\d+ records in \d+ batches: \d+ waits, \d+ of them expired, \d+ READs`).
		FindAllString(text,
			-1)
	if len(counted) != drainRates {
		return "", fmt.Errorf("waits of a drain: counted at %d rates, expected %d: %s", len(counted), drainRates, text)
	}
	return "a drain at 50 to 10,000 records/s, of one ring and of three: " + strings.Join(counted, ", "), nil
}

// conforms runs the suite that every kind of region passes, on rings of a target on the same machine.
func (b *bed) conforms(ctx context.Context, host *vm.Guest, kind string) error {
	place := ""
	if kind == "verbs-devdax" {
		place = onDevdax
	}
	suite, err := b.start(host, kind, place+" FARLOG_TEST_VERBS="+addresses["host"]+" exec conformance "+kind)
	if err != nil {
		return err
	}
	if err := suite.Wait(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, suite.Stdout())
	}
	text := suite.Stdout()
	for _, method := range []string{"rdma-flush", "rdma-read", "target-cpu"} {
		if !regexp.MustCompile(`flush=` + method + ` \(level (visible|persistent)\): conforms`).MatchString(text) {
			return fmt.Errorf("%s: no ring was seen to conform by %s: %s", kind, method, text)
		}
	}
	return nil
}

// takeTurns writes by one method after another, from epoch on.
func (b *bed) takeTurns(ctx context.Context, host *vm.Guest, target *farTarget, epoch int, l *ledger,
	methods ...string,
) ([]string, error) {
	var seen []string
	for i, method := range methods {
		by, err := b.takeover(ctx, target, epoch+i)
		if err != nil {
			return nil, err
		}
		proved, err := b.writeAndProve(ctx, host, by, method, l)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		seen = append(seen, fmt.Sprintf("%s: %s", method, proved))
	}
	return seen, nil
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
	isRead := flush == "rdma-read"
	if isRead != strings.Contains(writer.Stderr(), "ddio-off by attestation of "+attestedBy+", 2026-11-21") ||
		isRead != strings.Contains(writer.Stderr(), "; any READ flushes") {
		return proof{}, fmt.Errorf("the contract of %s: %s", flush, writer.Stderr())
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

const (
	attestationFile = "/run/attestation.yaml"
	attestedBy      = "testbed"

	// attestation of the guest's NVDIMM, by path and reason. SoftRoCE writes with the processor's own stores: that a
	// READ flushes them is not so, and here it is the road of an operator's word that is looked at, from the file to
	// the writer, and the method that comes of it.
	attestation = `cat >` + attestationFile + ` <<'END'
regions:
  %s:
    read_flushes: true
    any_read_flushes: true
    how: %s
    by: ` + attestedBy + `
    date: 2026-11-21
    reason: no power is cut here
END
`
)

// readFlush proves that rdma-read to persistent memory is there only by attestation: refused without one, as is an
// attestation that the kernel denies; with one that it does not, it takes records like the other methods.
func (b *bed) readFlush(ctx context.Context, guests map[string]*vm.Guest, target *farTarget, l *ledger) ([]string,
	error,
) {
	if err := b.readFlushIsRefused(ctx, guests["host"], target); err != nil {
		return nil, err
	}
	attest := func(how string) error {
		path := strings.TrimPrefix(devdax, "mem:")
		if _, err := guests["target"].Run(ctx, fmt.Sprintf(attestation, path, how)); err != nil {
			return err
		}
		_, err := target.say(ctx, "attest %s %s", attestationFile, path)
		return err
	}
	if err := mustSay("eADR of a memory controller's domain", attest("eadr"), attestationFile, `how "eadr"`,
		"memory_controller, says the kernel"); err != nil {
		return nil, err
	}
	if err := attest("ddio-off"); err != nil {
		return nil, err
	}
	for _, command := range []string{"forget orders", "serve orders " + devdax + " desk"} {
		if _, err := target.say(ctx, "%s", command); err != nil {
			return nil, err
		}
	}
	return b.takeTurns(ctx, guests["host"], target, 101, l, "rdma-read", "rdma-read&wait=block")
}

// readFlushIsRefused: a READ reaches what caches hold, and nothing attests here that writes pass the caches by. Asked
// for on devdax it is refused when the ring is opened, with what there is instead and what to do.
func (b *bed) readFlushIsRefused(ctx context.Context, host *vm.Guest, target *farTarget) error {
	by, err := b.takeover(ctx, target, 100)
	if err != nil {
		return err
	}
	_, err = b.writeFar(ctx, host, by, "?flush=rdma-read", "")
	return mustSay("flush=rdma-read on devdax", err, "it offers: rdma-flush, target-cpu",
		"farlogd target --attestation FILE")
}
