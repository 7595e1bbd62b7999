package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	victimStream   = "desk/orders"
	attackerStream = "rival/orders"

	statusDone    = 0
	statusRefused = 10 // IBV_WC_REM_ACCESS_ERR: the device at the other end refused what was asked of it

	attacksBeside = 10 // while the victim appends
)

// tenants proves that one tenant's key is of no use to another, whatever program the other runs: it posts bare verbs
// WRITEs and READs with the address and the key of the victim's writer, as they are on the wire for all to read. The
// device refuses each; the victim's memory stays as it is, and its writer goes on by the connection that it had.
func tenants(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine, machine{name: "second", isOnWire: true})
	if err != nil {
		return "", err
	}
	c := b.newCrew(guests, "target", "target")
	if err := c.startAll(ctx, "control", "target", "drain-target"); err != nil {
		return "", err
	}
	for _, stream := range []string{victimStream, attackerStream} {
		if err := c.serve(ctx, stream, "8MiB"); err != nil {
			return "", err
		}
	}
	records, err := newRecords("X", 60000)
	if err != nil {
		return "", err
	}
	l := newLedger(records)
	writer, err := c.startWriter(victimStream, daemonWindow)
	if err != nil {
		return "", err
	}
	if err := l.give(ctx, writer, 500); err != nil {
		return "", err
	}
	if err := checkWriter(writer); err != nil {
		return "", err
	}
	a, err := c.newAttacker(ctx)
	if err != nil {
		return "", err
	}
	told, err := a.attack(ctx, l, writer)
	if err != nil {
		return "", err
	}
	if err := finish(ctx, writer); err != nil {
		return "", err
	}
	proved, err := c.drained(ctx, victimStream, "target", l)
	if err == nil && proved.others != 0 {
		err = fmt.Errorf("%d records are in the victim's store that nobody acknowledged", proved.others)
	}
	return fmt.Sprintf("%s; the victim: %s", told, proved), err
}

// attacker is a tenant of the same target, with a stream of its own, on a guest of its own.
type attacker struct {
	crew  *crew
	guest *vm.Guest
	grant struct {
		Token string
		Epoch int
	}
	victim vm.RDMAPlace // what the victim's writer showed on the wire
}

// newAttacker gets a grant for its own stream, and proves that what it posts there is done: its program works.
func (c *crew) newAttacker(ctx context.Context) (*attacker, error) {
	port, err := c.bed.port("host")
	if err != nil {
		return nil, err
	}
	a := &attacker{crew: c, guest: c.guests["second"], victim: port.LastWrite()}
	if a.victim.Key == 0 {
		return nil, fmt.Errorf("no WRITE of the victim was seen on the wire: %+v", port.RDMA())
	}
	if _, err := a.guest.Run(ctx, fmt.Sprintf("farlog stream grant %s --takeover --token-file /run/grant --transport "+
		"verbs %s", attackerStream, c.control)); err != nil {
		return nil, err
	}
	text, err := a.guest.Run(ctx, "cat /run/grant")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(text), &a.grant); err != nil {
		return nil, fmt.Errorf("the attacker's grant: %w", err)
	}
	if _, err := a.post(ctx, statusDone, "write", "own", "own"); err != nil {
		return nil, fmt.Errorf("to its own ring: %w", err)
	}
	seen, err := a.post(ctx, statusDone, "read", "own", "own")
	if err == nil && seen != strings.Repeat("ee", 64) {
		err = fmt.Errorf("it reads %q where it wrote", seen)
	}
	if err != nil {
		return nil, fmt.Errorf("from its own ring: %w", err)
	}
	return a, nil
}

// post posts one request over a connection of its own, checks its completion's status, and returns what a READ brought.
func (a *attacker) post(ctx context.Context, want int, operation, address, key string) (string, error) {
	said, err := a.guest.Run(ctx, fmt.Sprintf("bare %s %d %s %s %d %s %s %s", addresses["target"], farPort,
		attackerStream, a.grant.Token, a.grant.Epoch,
		operation, address, key))
	if err != nil {
		return "", err
	}
	_, line, _ := strings.Cut(said, "\n"+operation+" ")
	status, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if got, err := strconv.Atoi(status); err != nil || got != want {
		return "", fmt.Errorf("%s of address %s by key %s: %q, want status %d", operation, address, key,
			strings.TrimSpace(said), want)
	}
	return rest[strings.LastIndexByte(rest, ' ')+1:], nil
}

// refused posts what must be refused: WRITE and READ, of the victim's address by its key, of the victim's address by
// the attacker's key, and of the attacker's address by the victim's key.
func (a *attacker) refused(ctx context.Context) (count int, err error) {
	address, key := strconv.FormatUint(a.victim.Address, 16), strconv.FormatUint(uint64(a.victim.Key), 16)
	for _, place := range [][2]string{{address, key}, {address, "own"}, {"own", key}} {
		for _, operation := range []string{"write", "read"} {
			seen, err := a.post(ctx, statusRefused, operation, place[0], place[1])
			if err != nil {
				return count, err
			}
			if operation == "read" && seen != strings.Repeat("a5", 64) {
				return count, fmt.Errorf("READ of address %s by key %s was refused, and brought %s all the same",
					place[0], place[1], seen)
			}
			count++
		}
	}
	return count, nil
}

// attack attacks the victim while it is idle, when no byte of the memory may change, and while it appends.
func (a *attacker) attack(ctx context.Context, l *ledger, writer *vm.Process) (string, error) {
	// The drain has then moved the head, and writes nothing more.
	if _, err := a.guest.Run(ctx, fmt.Sprintf("wait-drained %s %d %s", victimStream, l.lastLSN,
		a.crew.control)); err != nil {
		return "", err
	}
	before, err := a.look(ctx)
	if err != nil {
		return "", err
	}
	memory, err := os.ReadFile(a.crew.bed.targetMemory())
	if err != nil {
		return "", err
	}
	count, err := a.refused(ctx)
	if err != nil {
		return "", err
	}
	if err := a.isUntouched(memory); err != nil {
		return "", err
	}
	stop, fed := make(chan struct{}), make(chan error, 1)
	go func() {
		fed <- l.feed(ctx, a.crew.bed, writer, func(int) bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		})
	}()
	for range attacksBeside {
		if _, err := a.post(ctx, statusRefused, "write", strconv.FormatUint(a.victim.Address, 16),
			strconv.FormatUint(uint64(a.victim.Key), 16)); err != nil {
			return "", err
		}
		count++
		if err := a.crew.more(ctx, l, 100, fed); err != nil {
			return "", fmt.Errorf("the victim: %w", err)
		}
	}
	close(stop)
	if err := <-fed; err != nil {
		return "", err
	}
	return a.judge(ctx, before, count)
}

// isUntouched compares the target's memory with how it was.
func (a *attacker) isUntouched(before []byte) error {
	now, err := os.ReadFile(a.crew.bed.targetMemory())
	if err != nil {
		return err
	}
	if bytes.Equal(before, now) {
		return nil
	}
	at := 0
	for before[at] == now[at] {
		at++
	}
	return fmt.Errorf("the memory has changed, first at byte %d of the NVDIMM: %x, then %x", at, before[at:at+16],
		now[at:at+16])
}

// look reads the target's counters of both streams from its metrics.
func (a *attacker) look(ctx context.Context) (map[string]float64, error) {
	text, err := a.crew.guests["target"].Run(ctx,
		"busybox wget -q -O - http://"+targetMetrics+"/metrics | grep ^farlog_target_")
	if err != nil {
		return nil, err
	}
	counters := map[string]float64{}
	for line := range strings.Lines(text) {
		name, labels, _ := strings.Cut(line, "{")
		_, stream, _ := strings.Cut(labels, `stream="`)
		stream, _, _ = strings.Cut(stream, `"`)
		value := line[strings.LastIndexByte(line, ' ')+1:]
		if counters[stream+" "+name], err = strconv.ParseFloat(strings.TrimSpace(value), 64); err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
	}
	return counters, nil
}

// judge compares the target's counters: each attack is counted as the attacker's, and the victim still has the
// connection that it had, or has another one for a reason of the wire's.
func (a *attacker) judge(ctx context.Context, before map[string]float64, count int) (string, error) {
	after, err := a.look(ctx)
	if err != nil {
		return "", err
	}
	rose := func(stream, name string) float64 {
		name = stream + " farlog_target_" + name + "_total"
		return after[name] - before[name]
	}
	if got := rose(attackerStream, "denied"); got != float64(count) {
		return "", fmt.Errorf("the attacker was denied %.0f times, want %d: %v", got, count, after)
	}
	lost, again := rose(victimStream, "lost"), ""
	for name, most := range map[string]float64{"denied": lost, "admitted": lost, "fenced": 0} {
		if got := rose(victimStream, name); got > most {
			return "", fmt.Errorf("%s: %s rose by %.0f, want %.0f at most: %v", victimStream, name, got, most, after)
		}
	}
	if lost > 0 {
		// On a machine that is busy enough SoftRoCE sends requests again, and was seen to answer the owner of a key
		// that it does not open. The owner then comes again.
		if again, err = a.sentAgain(ctx); err != nil || again == "" {
			return "", fmt.Errorf("the victim lost its connection, and no request came twice: %w: %v", err, after)
		}
		again = fmt.Sprintf("; the victim came again %.0f times, for the device had %s", lost, again)
	}
	return fmt.Sprintf("%d WRITEs and READs of another tenant refused by the device and counted, %d of them while "+
		"the victim appended%s", count, attacksBeside, again), nil
}

// sentAgain is what the target's device counts of requests that came twice or out of order; "": there were none.
func (a *attacker) sentAgain(ctx context.Context) (string, error) {
	const counters = "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep -H . duplicate_request " +
		"out_of_seq_request | grep -v ':0$' || true"
	text, err := a.crew.guests["target"].Run(ctx, counters)
	return strings.Join(strings.Fields(text), " "), err
}
