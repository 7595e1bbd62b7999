package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

// memConformance runs the suite that every kind of region must pass on memory that only a guest has here: on it, and on
// a target's ring in it over libfabric.
func memConformance(ctx context.Context, b *bed) (string, error) {
	target, err := b.boot(ctx, machine{name: "target", cpus: 2, hasNVDIMM: true, hasBAR: true})
	if err != nil {
		return "", err
	}
	var seen []string
	for _, kind := range []struct {
		name, script string
		check        func(text string) error
	}{
		{"devdax", `device=$(dax-up); FARLOG_TEST_DEVDAX=$device conformance devdax`, nil},
		{"bar", `path=$(bar); FARLOG_TEST_BAR=$path conformance bar`, nil},
		{"tmpfs", `conformance tmpfs`, nil},
		{"file", `conformance file`, nil},
		{"fsdax", `fsdax-mount /media/pmem; FARLOG_TEST_FSDAX=/media/pmem conformance fsdax`, nil},
		// Not on what the suite before has left there: rings alone and several ones do not mix.
		{
			"ofi-devdax",
			`umount /media/pmem; dd if=/dev/zero of=/dev/pmem0 bs=1M count=1 2>/dev/null
			device=$(dax-up); FARLOG_TEST_DEVDAX=$device conformance ofi-devdax`, ofiAttested,
		},
	} {
		text, err := b.conformance(ctx, target, kind.name, kind.script)
		if err == nil && kind.check != nil {
			err = kind.check(text)
		}
		if err != nil {
			return "", err
		}
		seen = append(seen, fmt.Sprintf("%s at %d flush methods", kind.name, strings.Count(text, ": conforms\n")))
	}
	return strings.Join(seen, ", "), target.PowerOff(ctx)
}

// ofiAttested: on a target's ring in such memory, among others in a directory, over libfabric: by the target's
// processor, and by the commit that is attested.
func ofiAttested(text string) error {
	for _, method := range []string{"ofi-commit", "target-cpu"} {
		if !strings.Contains(text, "flush="+method+" (level persistent): conforms\n") {
			return fmt.Errorf("no ring was seen to conform by %s at the level persistent: %s", method, text)
		}
	}
	return nil
}

// conformance runs the suite by a script, and returns what it printed, in which something conforms.
func (b *bed) conformance(ctx context.Context, guest *vm.Guest, name, script string) (string, error) {
	process, err := b.start(guest, name, "set -e; "+script)
	if err != nil {
		return "", err
	}
	if err := process.Wait(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	if !strings.Contains(process.Stdout(), ": conforms\n") {
		return "", fmt.Errorf("%s: no region conformed: %s", name, process.Stdout())
	}
	return process.Stdout(), nil
}

const memKills = 3

// memKilled proves that what a writer on persistent memory acknowledged is there after its machine was killed, with no
// program left to tidy up: first in the memory itself, then for the recovery of the next writer, which appends behind
// it.
func memKilled(ctx context.Context, b *bed) (string, error) {
	records, err := newRecords("M", 60000)
	if err != nil {
		return "", err
	}
	l := newLedger(records)
	memory := filepath.Join(b.dir, "target.nvdimm")
	var proved proof
	for life := range memKills + 1 {
		target, err := b.boot(ctx, machine{name: "target", cpus: 2, hasNVDIMM: true})
		if err != nil {
			return "", err
		}
		if life == 0 {
			_, err = target.Run(ctx, "farlog ring format mem:$(dax-up) --stream desk/orders")
		} else {
			_, err = target.Run(ctx, "dax-up")
		}
		if err != nil {
			return "", err
		}
		writer, err := b.start(target, "append",
			"farlog append --ring mem:/dev/dax0.0 --format length-prefixed --ack text --window 16")
		if err != nil {
			return "", err
		}
		enough := l.next + 1000 + b.draw(8000)
		if err := l.feed(ctx, b, writer, func(acknowledged int) bool { return acknowledged >= enough }); err != nil {
			return "", err
		}
		if life < memKills {
			err = killWhileAppending(b, l, writer, target)
		} else {
			err = errors.Join(writer.CloseInput(), writer.Wait(ctx), target.PowerOff(ctx))
		}
		if err != nil {
			return "", err
		}
		if proved, err = l.proveMemory(memory); err != nil {
			return "", fmt.Errorf("life %d, in the memory: %w", life+1, err)
		}
	}
	return fmt.Sprintf("%d kills of the machine: %s", memKills, proved), nil
}

// killWhileAppending gives the writer more, and kills its machine at a random moment from then on.
func killWhileAppending(b *bed, l *ledger, writer *vm.Process, target *vm.Guest) error {
	if _, err := writer.Write(l.records.framed(l.next, min(l.next+200, len(l.records.payloads)))); err != nil {
		return err
	}
	time.Sleep(time.Duration(b.draw(20000)) * time.Microsecond)
	target.Kill()
	return nil
}
