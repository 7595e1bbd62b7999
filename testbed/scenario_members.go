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
	memberRecords  = 120_000 // more than a writer is acknowledged meanwhile
	memberLate     = 50      // records that the writer that is taken over has to append when it goes on
	memberMore     = 200     // that are acknowledged while a member is at fault
	memberOpenings = 5
	memberSegment  = " --store-segment 8MiB" // a guest's disk is too small for segments of the default size
	memberQuorum   = "flush=2 of 3 level=persistent"
	memberTakeover = "writer-stopped"
)

// memberMachine has its ring in an NVDIMM, and what its daemon knows on a disk: both outlive it.
func memberMachine(name string) machine {
	return machine{name: name, cpus: 2, hasNVDIMM: true, hasDisk: true, isOnWire: true}
}

// memberTargets have a ring each. The last one also has the control plane and the drain, and takes the stream over.
var memberTargets = []string{"target", "second", memberCentral}

const memberCentral = "third"

// memberCrew is a crew with three targets; a stream has a ring on each, and an acknowledgement needs two.
type memberCrew struct {
	*crew
	*stage
	spread []streamLedger // streams of one ring, one on each rail
}

// membersVerbs proves a stream with members over SoftRoCE, by the daemons: while a writer appends to persistent memory
// of three hosts, the link of one of these is slow, then dark, and its machine is killed and booted again on its
// memory, and joins. Then the writer is stopped, and another host takes the stream over; when the first one goes on, it
// is told that it is fenced. The next one goes on when another member's daemon is killed. Each record that any writer
// was told is acknowledged is in the store.
func membersVerbs(ctx context.Context, b *bed) (string, error) {
	machines := []machine{hostMachine}
	for _, name := range memberTargets {
		machines = append(machines, memberMachine(name))
	}
	guests, err := b.bootAll(ctx, machines...)
	if err != nil {
		return "", err
	}
	// Before anything goes over the link, and changed in place: while the kernel exchanges a link's queue it refuses
	// frames, which SoftRoCE's connection manager does not outlive.
	if _, err := guests["target"].Run(ctx, "tc qdisc add dev eth0 root "+netemIdle); err != nil {
		return "", err
	}
	c, err := b.startMembers(ctx, guests)
	if err != nil {
		return "", err
	}
	if err := c.whole(ctx); err != nil {
		return "", err
	}
	slow, err := c.slacken(ctx)
	if err != nil {
		return "", err
	}
	if err := c.suffer(ctx); err != nil {
		return "", err
	}
	if err := c.end(); err != nil {
		return "", err
	}
	if most := appendDeadline + deadlineSlack; c.ledger.slowest > most {
		return "", fmt.Errorf("an append took %s, more than its deadline of %s", c.ledger.slowest, appendDeadline)
	}
	slowest, unknown := c.ledger.slowest, c.ledger.unknown
	told, err := c.takenOver(ctx)
	if err != nil {
		return "", fmt.Errorf("takeover by another host: %w", err)
	}
	proved, err := c.drained(ctx, daemonStream, memberCentral, c.ledger)
	if err != nil {
		return "", err
	}
	wire, err := b.rdma("host")
	if err == nil && (wire.Writes == 0 || wire.Flushes == 0) {
		err = fmt.Errorf("on the wire of the writer: %+v, want WRITEs and FLUSHes", wire)
	}
	return fmt.Sprintf("%s; %d outcomes were unknown at first, slowest append %s of a deadline of %s; %s; taken "+
		"over: %s", proved, unknown, slowest.Round(time.Millisecond), appendDeadline, slow, told), err
}

// startMembers starts the daemons and a writer, which is fed from then on.
func (b *bed) startMembers(ctx context.Context, guests map[string]*vm.Guest) (*memberCrew, error) {
	records, err := newRecords("MV", memberRecords)
	if err != nil {
		return nil, err
	}
	c := &memberCrew{crew: b.newMemberCrew(guests), stage: &stage{
		bed: b, host: guests["host"],
		ledger: newLedger(records),
	}}
	if err := c.setUp(ctx); err != nil {
		return nil, err
	}
	if c.writer, err = c.open(ctx, c.host, "block"); err != nil {
		return nil, err
	}
	c.begin(ctx)
	return c, nil
}

func (b *bed) newMemberCrew(guests map[string]*vm.Guest) *crew {
	c := &crew{
		bed: b, guests: guests, control: fmt.Sprintf("--control %s:%d", addresses[memberCentral], controlPort),
		parts: map[string]*vm.Process{}, duties: []duty{controlDuty(memberCentral)},
	}
	for _, name := range memberTargets {
		c.duties = append(c.duties, targetDuty(name, name, b.memberAddress(name), c.control))
	}
	drain := drainDuty(memberCentral, c.control)
	drain.command += memberSegment
	c.duties = append(c.duties, drain)
	return c
}

// setUp starts the daemons and makes the stream.
func (c *memberCrew) setUp(ctx context.Context) error {
	if err := c.start(ctx, "control"); err != nil {
		return err
	}
	for _, name := range memberTargets {
		if err := c.startTarget(ctx, name); err != nil {
			return err
		}
	}
	if err := c.start(ctx, "drain-"+memberCentral); err != nil {
		return err
	}
	if err := c.serve(ctx, daemonStream, "8MiB --members 3 --needed 2"); err != nil {
		return err
	}
	return c.ready(ctx, len(memberTargets))
}

func (c *memberCrew) startTarget(ctx context.Context, name string) error {
	if _, err := c.guests[name].Run(ctx,
		"dax-up && { mountpoint -q "+targetDir+" || disk-up "+targetDir+"; }"); err != nil {
		return err
	}
	return c.start(ctx, name)
}

// ready waits until the control plane knows so many rings.
func (c *memberCrew) ready(ctx context.Context, count int) error {
	_, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-for rings-ready %s %d %s", daemonStream, count, c.control))
	return err
}

// open takes a grant for a guest, and opens the stream there. wait is how it waits for answers: a writer that spins
// takes a whole processor of an emulated machine all the time.
func (c *memberCrew) open(ctx context.Context, guest *vm.Guest, wait string) (*vm.Process, error) {
	if _, err := guest.Run(ctx, fmt.Sprintf("rm -f /run/grant; wait-for farlog stream grant %s --takeover "+
		"--token-file /run/grant --transport verbs %s", daemonStream, c.control)); err != nil {
		return nil, err
	}
	p, err := c.tryOpen(ctx, guest, wait)
	for attempt := 1; err != nil && attempt < memberOpenings && isLate(err); attempt++ {
		p, err = c.tryOpen(ctx, guest, wait)
	}
	if err != nil {
		return nil, err
	}
	if said := p.Stderr(); !strings.Contains(said, memberQuorum) {
		return nil, fmt.Errorf("the writer of a stream with members was opened with %q, want %q", said, memberQuorum)
	}
	return p, nil
}

// isLate tells an opening that a busy machine has kept from its end: by an address that was not resolved in time, or a
// member that was not read.
func isLate(err error) bool {
	return strings.Contains(err.Error(), "no answer in time") || strings.Contains(err.Error(), "members are reached")
}

// tryOpen is one attempt.
func (c *memberCrew) tryOpen(ctx context.Context, guest *vm.Guest, wait string) (*vm.Process, error) {
	p, err := c.stage.bed.start(guest, "write",
		"exec far write -grant /run/grant -wait "+wait+" -batch 16 -deadline "+appendDeadline.String())
	if err != nil {
		return nil, err
	}
	return p, p.WaitText(ctx, "recovered_tail=")
}

// whole waits until each member has what is acknowledged by now.
func (c *memberCrew) whole(ctx context.Context) error {
	return c.ledger.calmly(func() error {
		_, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-for members-at %s %d %d %s", daemonStream,
			len(memberTargets), c.ledger.last(), c.control))
		return err
	})
}

// suffer kills a member's machine, and boots it again: appends go on by the other two, and it joins.
func (c *memberCrew) suffer(ctx context.Context) error {
	c.guests["target"].Kill()
	if err := c.stage.more(ctx, memberMore); err != nil {
		return fmt.Errorf("without the machine that was killed: %w", err)
	}
	if err := c.ledger.calmly(func() error { return c.bootTarget(ctx, "target") }); err != nil {
		return err
	}
	if err := c.whole(ctx); err != nil {
		return fmt.Errorf("the machine that was killed and booted again does not join: %w: %s", err, c.writer.Stderr())
	}
	return nil
}

func (c *memberCrew) mustKill(ctx context.Context, name string) error {
	isKilled, err := c.kill(ctx, name)
	if err == nil && !isKilled {
		err = fmt.Errorf("it ended by itself: %s", c.part(name).Stderr())
	}
	return err
}

func (c *memberCrew) bootTarget(ctx context.Context, name string) (err error) {
	if c.guests[name], err = c.stage.bed.boot(ctx, memberMachine(name)); err != nil {
		return err
	}
	return c.startTarget(ctx, name)
}

// takenOver: an operator fences the stream, and another host opens it. That one goes on without the second member, so
// by the one whose machine was killed.
func (c *memberCrew) takenOver(ctx context.Context) (string, error) {
	central := c.guests[memberCentral]
	next, told, err := c.succeeded(ctx, func() (*vm.Process, error) {
		if _, err := central.Run(ctx, fmt.Sprintf("wait-for farlog stream takeover %s --timeout 60s --reason %s %s",
			daemonStream, memberTakeover, c.control)); err != nil {
			return nil, err
		}
		return c.open(ctx, central, "spin")
	}, c.isTold)
	if err != nil {
		return "", err
	}
	if err := c.mustKill(ctx, "second"); err != nil {
		return "", err
	}
	return told, c.goesOn(ctx, next)
}

// succeeded stops the writer, which has records to append when it goes on, and has another host open the stream and
// append. When the first one goes on, isOut judges how it ended and says what it was told; nothing of it is
// acknowledged.
func (s *stage) succeeded(ctx context.Context, open func() (*vm.Process, error),
	isOut func(ctx context.Context, end error) (string, error),
) (next *vm.Process, told string, err error) {
	l := s.ledger
	if err := s.writer.Signal(syscall.SIGSTOP); err != nil {
		return nil, "", err
	}
	if _, err := s.writer.Write(l.records.framed(l.next, l.next+memberLate)); err != nil {
		return nil, "", err
	}
	if next, err = open(); err != nil {
		return nil, "", err
	}
	if err := l.give(ctx, next, 300); err != nil {
		return nil, "", fmt.Errorf("the next writer: %w: %s", err, next.Stderr())
	}
	s.bed.say("the next writer goes on")
	if err := s.writer.Signal(syscall.SIGCONT); err != nil {
		return nil, "", err
	}
	l.asides = nil
	acknowledged := l.next
	if told, err = isOut(ctx, l.listen(ctx, s.writer, memberLate)); err != nil {
		return nil, "", fmt.Errorf("the writer that was taken over: %w", err)
	}
	if l.next != acknowledged {
		return nil, "", fmt.Errorf("%d records of the writer that was taken over were acknowledged",
			l.next-acknowledged)
	}
	return next, told, nil
}
