package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	tradingRecords = 100_000
	tradingNear    = 50_000 // of them where the drain is on the target: round the ring once
	tradingBatch   = 2000   // records that are fed at a time
	tradingWindow  = 256    // of them under one flush, at most
	storeDir       = "/var/store"
)

// trading proves the whole way through the real daemons: farlog append on a trading host writes real order messages
// into persistent memory of a target, by native FLUSH; a drain moves them into a store, from the central host by RDMA
// READ, and in a second run on the target itself. The store is verified where it is, then fetched, and every
// acknowledged record is looked up in it.
func trading(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine, centralMachine)
	if err != nil {
		return "", err
	}
	c := b.newCrew(guests, "central", "central", "target")
	if err := c.startAll(ctx, "control", "target"); err != nil {
		return "", err
	}
	var told []string
	for _, drainer := range []string{"central", "target"} {
		text, err := c.trade(ctx, drainer)
		if err != nil {
			return "", fmt.Errorf("drained on %s: %w", drainer, err)
		}
		told = append(told, fmt.Sprintf("drained on %s: %s", drainer, text))
	}
	return strings.Join(told, "; "), nil
}

// trade is one run: a stream of its own, and a drain that is there for it alone.
func (c *crew) trade(ctx context.Context, drainer string) (string, error) {
	isFar, count := drainer == "central", tradingNear
	if isFar {
		count = tradingRecords
	}
	records, err := newRecords("T"+drainer[:1], count+outageRecords)
	if err != nil {
		return "", err
	}
	before, err := c.bed.rdma("central")
	if err != nil {
		return "", err
	}
	l, stream := newLedger(records), "desk/orders-"+drainer
	if err := c.start(ctx, "drain-"+drainer); err != nil {
		return "", err
	}
	if err := c.serve(ctx, stream, "16MiB"); err != nil {
		return "", err
	}
	writer, err := c.startWriter(stream, tradingWindow)
	if err != nil {
		return "", err
	}
	began := time.Now()
	for l.next < count {
		if err := l.give(ctx, writer, min(tradingBatch, count-l.next)); err != nil {
			return "", fmt.Errorf("%w: %s", err, writer.Stderr())
		}
	}
	took := time.Since(began)
	if err := finish(ctx, writer); err != nil {
		return "", err
	}
	if err := checkWriter(writer); err != nil {
		return "", err
	}
	outage := ""
	if isFar {
		if outage, err = c.outage(ctx, stream, drainer, l); err != nil {
			return "", fmt.Errorf("an outage of the drain: %w", err)
		}
	}
	load, err := c.drainLoad(ctx, stream, drainer, before, l)
	if err != nil {
		return "", err
	}
	proved, err := c.drained(ctx, stream, drainer, l)
	if err != nil {
		return "", err
	}
	if proved.acknowledged != l.next || l.next < count {
		return "", fmt.Errorf("%d records were acknowledged, want %d", proved.acknowledged, count)
	}
	wire, err := c.bed.crossed()
	if err != nil {
		return "", err
	}
	after, err := c.bed.rdma("central")
	if err == nil && isFar != (after.Reads > before.Reads) {
		err = fmt.Errorf("%d READs of the central host are on the wire since the run began", after.Reads-before.Reads)
	}
	return fmt.Sprintf("%s, appended in %.0f s, %s, %s%s", proved, took.Seconds(), wire, load, outage), err
}

// drainLoad waits until a drain has all of a ledger, and tells what it cost: its processor's time, and of a far one its
// READs on the wire. The emulator's seconds are longer than others; what a drain of a backlog costs the counting clock
// tells (verbs-bench).
func (c *crew) drainLoad(ctx context.Context, stream, drainer string, before vm.RDMACounters, l *ledger) (string,
	error,
) {
	if _, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-drained %s %d %s", stream, l.lastLSN,
		c.control)); err != nil {
		return "", err
	}
	after, err := c.bed.rdma("central")
	if err != nil {
		return "", err
	}
	text, err := c.guests[drainer].Run(ctx, "cpu-of farlogd drain")
	if err != nil {
		return "", err
	}
	hundredths, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || hundredths == 0 {
		return "", fmt.Errorf("processor time of the drain %q: %w", text, err)
	}
	mb := float64(l.lastLSN) / 1e6
	return fmt.Sprintf("the drain: %.1f MB, %.1f MB in a second of its processor, %.1f READs per MB", mb,
		mb*100/float64(hundredths), float64(after.Reads-before.Reads)/mb), nil
}

// fetchAndProve verifies the store in the guest, brings it here and looks the records up.
func (b *bed) fetchAndProve(ctx context.Context, g *vm.Guest, stream string, l *ledger, others ...streamLedger) (proof,
	error,
) {
	if _, err := g.Run(ctx, "farlog verify "+storeDir+" >&2"); err != nil {
		return proof{}, err
	}
	packed, err := g.Run(ctx, "tar -C "+storeDir+" -czf - . && rm -r "+storeDir)
	if err != nil {
		return proof{}, err
	}
	dir := filepath.Join(b.dir, "store-"+g.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return proof{}, err
	}
	defer os.RemoveAll(dir)
	unpack := exec.CommandContext(ctx, "tar", "-C", dir, "-xzf", "-")
	unpack.Stdin = strings.NewReader(packed)
	if output, err := unpack.CombinedOutput(); err != nil {
		return proof{}, fmt.Errorf("unpack the store: %w: %s", err, bytes.TrimSpace(output))
	}
	for _, one := range others {
		if _, err := one.proveStore(dir, one.stream); err != nil {
			return proof{}, fmt.Errorf("stream %s: %w", one.stream, err)
		}
	}
	return l.proveStore(dir, stream)
}

// streamLedger is what was acknowledged of one of several streams.
type streamLedger struct {
	stream string
	*ledger
}
