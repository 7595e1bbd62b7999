package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	nvmeRecords  = 100_000
	nvmeBatch    = 2000 // records that are fed at a time
	nvmeWindow   = 256  // of them in one commit, at most
	nvmeDeadline = 5 * time.Second
)

// nvmeTrading proves the whole way through a namespace: a trading host appends real order messages to a ring in a
// namespace of nvmet, over rdma and then over tcp; a third host reads them from the same namespace and moves them into
// its store, which is verified there and looked through here. The writer goes round the ring: its credit is what the
// drain persists in the namespace. Behind it comes a stream that has the namespace as one of three members of different
// kinds, on the same machines.
func nvmeTrading(ctx context.Context, b *bed) (string, error) {
	guests, err := b.mixedBed(ctx)
	if err != nil {
		return "", err
	}
	var told []string
	for i, transport := range []string{"rdma", "tcp"} {
		if i > 0 {
			for _, name := range []string{"host", "central"} {
				if err := b.disconnectNVMe(ctx, guests[name]); err != nil {
					return "", err
				}
			}
		}
		text, err := b.tradeNVMe(ctx, guests["host"], guests["central"], transport)
		if err != nil {
			return "", fmt.Errorf("%s: %w", transport, err)
		}
		told = append(told, transport+": "+text)
		b.say("traded over %s", transport)
	}
	mixed, err := b.mixMembers(ctx, guests)
	if err != nil {
		return "", fmt.Errorf("members of three kinds: %w", err)
	}
	return strings.Join(append(told, "members of three kinds: "+mixed), "; "), nil
}

func (b *bed) tradeNVMe(ctx context.Context, host, central *vm.Guest, transport string) (string, error) {
	records, err := newRecords("N"+transport[:1], nvmeRecords)
	if err != nil {
		return "", err
	}
	for _, guest := range []*vm.Guest{host, central} {
		if _, err := b.connectNVMe(ctx, guest, transport); err != nil {
			return "", err
		}
	}
	stream := "desk/orders-" + transport
	if _, err := host.Run(ctx, fmt.Sprintf("farlog ring format %s --force --stream %s", nvmeRing, stream)); err != nil {
		return "", err
	}
	drain, err := b.start(central, "drain-"+transport, fmt.Sprintf("exec far drain -store %s %s", storeDir, nvmeRing))
	if err != nil {
		return "", err
	}
	if err := drain.WaitOutput(ctx, "draining", func(stdout,
		_ string,
	) bool {
		return strings.Contains(stdout, "draining")
	}); err != nil {
		return "", err
	}
	writer, err := b.start(host, "append-"+transport, fmt.Sprintf("exec farlog append --ring %s --format "+
		"length-prefixed --ack text --window %d --deadline %s", nvmeRing, nvmeWindow, nvmeDeadline))
	if err != nil {
		return "", err
	}
	l, began := newLedger(records), time.Now()
	for l.next < nvmeRecords {
		if err := l.give(ctx, writer, min(nvmeBatch, nvmeRecords-l.next)); err != nil {
			return "", fmt.Errorf("%w: %s", err, writer.Stderr())
		}
	}
	took := time.Since(began)
	if err := finish(ctx, writer); err != nil {
		return "", err
	}
	shown, err := host.Run(ctx, "farlog ring show "+nvmeRing)
	if err != nil {
		return "", err
	}
	proved, err := b.drainedNVMe(ctx, central, drain, stream, l)
	if err != nil {
		return "", err
	}
	if proved.acknowledged != nvmeRecords {
		return "", fmt.Errorf("%d records were acknowledged, want all %d", proved.acknowledged, nvmeRecords)
	}
	if l.lastLSN < diskLen {
		return "", fmt.Errorf("the writer came to lsn %d: it did not go round a ring on %d bytes", l.lastLSN, diskLen)
	}
	return fmt.Sprintf("%s, appended in %.0f s to a ring of %s, %s", proved, took.Seconds(), lineOf(shown, "capacity"),
		lineOf(shown, "contract")), nil
}

// drainedNVMe waits until the drain has stored and released all of a ledger, ends it, and looks the records up in its
// store.
func (b *bed) drainedNVMe(ctx context.Context, central *vm.Guest, drain *vm.Process, stream string, l *ledger) (proof,
	error,
) {
	err := drain.WaitOutput(ctx, fmt.Sprintf("drained beyond %d", l.lastLSN), func(stdout, _ string) bool {
		_, last, _ := strings.Cut(stdout[max(strings.LastIndex(stdout, "drained "), 0):], "drained ")
		head := uint64(0)
		_, err := fmt.Sscan(last, &head)
		return err == nil && strings.HasSuffix(stdout, "\n") && head > l.lastLSN
	})
	if err != nil {
		return proof{}, fmt.Errorf("%w: %s", err, drain.Stderr())
	}
	if err := drain.Signal(syscall.SIGTERM); err != nil {
		return proof{}, err
	}
	if err := drain.Wait(ctx); err != nil {
		return proof{}, err
	}
	return b.fetchAndProve(ctx, central, stream, l)
}

// lineOf gives what farlog ring show says of one thing.
func lineOf(shown, name string) string {
	for line := range strings.Lines(shown) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "(no " + name + ")"
}
