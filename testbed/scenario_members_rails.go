package main

import (
	"context"
	"fmt"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	memberRailed  = "second" // the target whose ring is reached over the second rail
	spreadStreams = 4        // of one ring, on the two rails in turn
	spreadRecords = 200
)

// memberAddress is where a target serves its rings.
func (b *bed) memberAddress(name string) string {
	if name == memberRailed && b.hasRail(name) {
		return railAddress(name)
	}
	return addresses[name]
}

// membersRails proves a stream with members, and streams of one ring, on two rails of the writer's host: both carry
// what is appended, and when one is lost the writer goes on by the members of the other. Each record that was
// acknowledged, of all streams, is in the store.
func membersRails(ctx context.Context, b *bed) (string, error) {
	machines := []machine{hostMachine}
	for _, name := range memberTargets {
		machines = append(machines, memberMachine(name))
	}
	for i := range machines {
		machines[i].isOnRail = machines[i].name != "target"
	}
	guests, err := b.bootAll(ctx, machines...)
	if err != nil {
		return "", err
	}
	c, err := b.startMembers(ctx, guests)
	if err != nil {
		return "", err
	}
	if err := c.whole(ctx); err != nil {
		return "", err
	}
	if err := c.railed(ctx); err != nil {
		return "", err
	}
	if err := finish(ctx, c.writer); err != nil {
		return "", err
	}
	if most := appendDeadline + deadlineSlack; c.ledger.slowest > most {
		return "", fmt.Errorf("an append took %s, more than its deadline of %s", c.ledger.slowest, appendDeadline)
	}
	proved, err := c.drained(ctx, daemonStream, memberCentral, c.ledger, c.spread...)
	if err != nil {
		return "", err
	}
	seen, err := c.onRails()
	return fmt.Sprintf("%s; the writer's host asked for %d WRITEs and %d FLUSHes by the first rail, %d and %d by the "+
		"second; %d streams of one ring by one of them each", c.tell(proved),
		seen[0].Writes, seen[0].Flushes, seen[1].Writes, seen[1].Flushes, spreadStreams), err
}

// railed proves that a stream's members, and streams, lie on both of the writer's rails, two devices in two networks:
// what is appended goes out by both; one is lost and the writer goes on by the members of the other; a stream with one
// ring goes by the rail of that alone. Nothing is fed any more in the end.
func (c *memberCrew) railed(ctx context.Context) error {
	before, err := c.onRails()
	if err != nil {
		return err
	}
	if err := c.stage.more(ctx, memberMore); err != nil {
		return err
	}
	after, err := c.onRails()
	if err != nil {
		return err
	}
	for i := range after {
		if after[i].Writes == before[i].Writes || after[i].Flushes == before[i].Flushes {
			return fmt.Errorf("rail %d carried nothing of %d records: %+v, then %+v", i, memberMore, before[i],
				after[i])
		}
	}
	if err := c.railLost(ctx); err != nil {
		return fmt.Errorf("one is lost: %w", err)
	}
	if err := c.stage.end(); err != nil {
		return err
	}
	for i := range spreadStreams {
		if err := c.spreadTo(ctx, i, i%2); err != nil {
			return fmt.Errorf("stream %d, on rail %d alone: %w", i, i%2, err)
		}
	}
	return nil
}

// onRails is what the trading host asked of others' devices, by each rail.
func (c *memberCrew) onRails() (seen [2]vm.RDMACounters, err error) {
	first, err := c.crew.bed.port("host")
	if err != nil {
		return seen, err
	}
	second, err := c.crew.bed.railPort("host")
	if err != nil {
		return seen, err
	}
	return [2]vm.RDMACounters{first.RDMA(), second.RDMA()}, nil
}

// railLost cuts the second rail of the writer's host, in the switch: SoftRoCE does not outlive an interface that is
// switched off.
func (c *memberCrew) railLost(ctx context.Context) error {
	port, err := c.crew.bed.railPort("host")
	if err != nil {
		return err
	}
	port.SetFaults(vm.Faults{Cut: true})
	if err := c.without(ctx); err != nil {
		return err
	}
	port.SetFaults(vm.Faults{})
	return c.wholeAgain(ctx)
}

// spreadTo makes a stream whose ring is on the target of a rail, and appends to it from the host's address there.
func (c *memberCrew) spreadTo(ctx context.Context, number, rail int) error {
	target := []string{"target", memberRailed}[rail]
	stream := fmt.Sprintf("desk/spread-%d", number)
	if err := c.serve(ctx, stream, "2MiB --target "+target); err != nil {
		return err
	}
	records, err := newRecords(fmt.Sprintf("R%d", number), spreadRecords)
	if err != nil {
		return err
	}
	before, err := c.onRails()
	if err != nil {
		return err
	}
	writer, err := c.writeSingly(ctx, stream, []string{addresses["host"], railAddress("host")}[rail])
	if err != nil {
		return err
	}
	l := newLedger(records)
	c.spread = append(c.spread, streamLedger{stream, l})
	if err := l.give(ctx, writer, spreadRecords); err != nil {
		return fmt.Errorf("%w: %s", err, writer.Stderr())
	}
	if err := finish(ctx, writer); err != nil {
		return err
	}
	after, err := c.onRails()
	if err != nil {
		return err
	}
	if own, other := after[rail].Writes-before[rail].Writes,
		after[1-rail].Writes-before[1-rail].Writes; own < spreadRecords || other >= own/10 {
		return fmt.Errorf("%d records went out by %d WRITEs on their rail, and %d on the other one", spreadRecords, own,
			other)
	}
	return nil
}

// wholeAgain waits until every member has what is acknowledged. Nothing is appended meanwhile, so that what the member
// lacks does not grow while it connects, and the processors are its.
func (c *memberCrew) wholeAgain(ctx context.Context) error {
	if err := c.stage.end(); err != nil {
		return err
	}
	defer c.begin(ctx)
	if err := c.whole(ctx); err != nil {
		return fmt.Errorf("does not come to agree again: %w: %s", err, c.writer.Stderr())
	}
	return nil
}
