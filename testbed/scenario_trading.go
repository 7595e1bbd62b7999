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
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	tradingRecords = 100_000
	tradingWindow  = 2000 // records that are under way at a time
	storeDir       = "/var/store"
)

// trading proves the whole way: a trading host appends real order messages to persistent memory on a target, by native FLUSH; a drain
// moves them into a store, from a central host by RDMA READ, and in a second run on the target itself. The store is verified where it is,
// then fetched, and every acknowledged record is looked up in it.
func trading(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine, machine{name: "central", cpus: 2, isOnWire: true})
	if err != nil {
		return "", err
	}
	if _, err := guests["target"].Run(ctx, "dax-up"); err != nil {
		return "", err
	}
	var told []string
	for _, drainer := range []string{"central", "target"} {
		text, err := b.trade(ctx, guests, drainer)
		if err != nil {
			return "", fmt.Errorf("drained on %s: %w", drainer, err)
		}
		told = append(told, fmt.Sprintf("drained on %s: %s", drainer, text))
	}
	return strings.Join(told, "; "), nil
}

// trade is one run, on a new ring.
func (b *bed) trade(ctx context.Context, guests map[string]*vm.Guest, drainer string) (string, error) {
	records, err := newRecords("T"+drainer[:1], tradingRecords)
	if err != nil {
		return "", err
	}
	l, by, from := newLedger(records), b.newGrant(1), b.newGrant(0)
	if _, err := guests["target"].Run(ctx, "farlog ring format --force "+devdax+" --stream desk/orders"); err != nil {
		return "", err
	}
	target, err := b.serveDevdax(ctx, guests["target"], false, by)
	if err != nil {
		return "", err
	}
	if _, err := target.say(ctx, "grant orders %s drain 0", from.token); err != nil {
		return "", err
	}
	writer, err := b.writeFar(ctx, guests["host"], by, "?flush=rdma-flush", "-batch 256 -deadline 10s")
	if err != nil {
		return "", err
	}
	where := devdax
	if drainer != "target" {
		where = fmt.Sprintf("-token %s verbs://%s:%d/orders", from.token, addresses["target"], farPort)
	}
	drain, err := b.start(guests[drainer], "drain", fmt.Sprintf("exec far drain -store %s %s", storeDir, where))
	if err != nil {
		return "", err
	}
	began := time.Now()
	for l.next < tradingRecords {
		if err := l.give(ctx, writer, min(tradingWindow, tradingRecords-l.next)); err != nil {
			return "", err
		}
	}
	took := time.Since(began)
	if err := finish(ctx, writer); err != nil {
		return "", err
	}
	if err := waitDrained(ctx, drain, l.lastLSN); err != nil {
		return "", err
	}
	if err := target.stop(ctx); err != nil {
		return "", err
	}
	proved, err := b.fetchAndProve(ctx, guests[drainer], l)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, appended in %.0f s", proved, took.Seconds()), nil
}

// waitDrained waits until the drain has released the record at lsn and all before it, then ends the drain.
func waitDrained(ctx context.Context, drain *vm.Process, lsn uint64) error {
	for {
		line, err := drain.ReadLine(ctx)
		if err != nil {
			return fmt.Errorf("drain: %w: %s", err, drain.Stderr())
		}
		head, _, _ := strings.Cut(line, " ")
		if head, err := strconv.ParseUint(head, 10, 64); err == nil && head > lsn {
			break
		}
	}
	if err := drain.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return drain.Wait(ctx)
}

// fetchAndProve verifies the store in the guest, brings it here and looks the records up.
func (b *bed) fetchAndProve(ctx context.Context, g *vm.Guest, l *ledger) (proof, error) {
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
	return l.proveStore(dir, "desk/orders")
}
