package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	mixedRecords  = 40_000
	mixedSalt     = 0x5eed_0001_cafe_0001 // rings of one stream have one
	mixedPatience = 5 * time.Second       // with outcomes that nobody may ever tell
	mixedAlign    = 512                   // every record fills LBAs: the others have the bytes of the namespace
	headerLen     = 0x3000                // of a ring
	mixedNear     = "mem:/dev/dax0.0?ring=near"
	mixedServed   = "mem:/dev/dax0.0?ring=orders"
	mixedOther    = "central" // has the verbs member and the drain, and takes over
)

// mixed is a stream with a member of each kind: in the writer's own NVDIMM, in that of `central` over verbs, in a
// namespace of `target`. k is 2.
type mixed struct {
	*stage
	guests map[string]*vm.Guest
	tokens map[string]grant // of the ring on central
	drain  *vm.Process      // on central, which reaches the two members that are left when host is taken over from
}

// membersMixed proves a stream whose members are of three kinds. While host appends, the verbs member's target is
// killed and started again, and the namespace's port is removed and put back; each time appends go on and the member
// joins again. Then host is stopped, and central takes the stream over by the two members that it reaches; nothing that
// host had under way is acknowledged. All the while a drain on central, which reaches the two far ones, gives the
// writers room; in the end every acknowledged record is in its store.
func membersMixed(ctx context.Context, b *bed) (string, error) {
	guests, err := b.mixedBed(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"host", mixedOther} {
		if _, err := b.connectNVMe(ctx, guests[name], "tcp"); err != nil {
			return "", err
		}
	}
	return b.mixMembers(ctx, guests)
}

// mixedBed boots the guests for it: host and central have an NVDIMM each.
func (b *bed) mixedBed(ctx context.Context) (map[string]*vm.Guest, error) {
	near, far := nvmeHost, nvmeCentral
	near.hasNVDIMM, far.hasNVDIMM = true, true
	return b.nvmeBed(ctx, near, far)
}

// mixMembers is the same on guests that are connected to the namespace over tcp.
func (b *bed) mixMembers(ctx context.Context, guests map[string]*vm.Guest) (string, error) {
	records, err := newRecords("MM", mixedRecords)
	if err != nil {
		return "", err
	}
	m := &mixed{
		stage:  &stage{bed: b, host: guests["host"], machine: guests[mixedOther], ledger: newLedger(records)},
		guests: guests,
		tokens: map[string]grant{"writer": b.newGrant(1), "drain": b.newGrant(0)},
	}
	if err := m.setUp(ctx); err != nil {
		return "", err
	}
	if m.writer, err = m.open(ctx, m.host, m.tokens["writer"]); err != nil {
		return "", err
	}
	if m.drain, err = b.start(m.machine, "drain", fmt.Sprintf("exec far drain -store %s %s", storeDir,
		m.flags(m.tokens["drain"].token))); err != nil {
		return "", err
	}
	m.begin(ctx)
	seen, err := m.suffer(ctx)
	if err != nil {
		return "", err
	}
	if err := m.end(); err != nil {
		return "", err
	}
	if most := appendDeadline + deadlineSlack; m.ledger.slowest > most {
		return "", fmt.Errorf("an append took %s, more than its deadline of %s", m.ledger.slowest, appendDeadline)
	}
	b.say("faults are over: %s", strings.Join(seen, ", "))
	told, err := m.takenOver(ctx)
	if err != nil {
		return "", fmt.Errorf("takeover by another host: %w", err)
	}
	b.say("taken over: %s", told)
	proved, err := b.drainedNVMe(ctx, m.machine, m.drain, "desk/orders", m.ledger)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; taken over: %s", m.tell(proved)+" ("+strings.Join(seen, ", ")+")", told), nil
}

// setUp formats the rings alike, and serves the one on central.
func (m *mixed) setUp(ctx context.Context) error {
	for _, name := range []string{"host", mixedOther} {
		if _, err := m.guests[name].Run(ctx, "dax-up"); err != nil {
			return err
		}
	}
	format := fmt.Sprintf("far format -salt %d -align %d ", uint64(mixedSalt), mixedAlign)
	if _, err := m.host.Run(ctx, format+nvmeRing); err != nil {
		return err
	}
	shown, err := m.host.Run(ctx, "farlog ring show "+nvmeRing)
	if err != nil {
		return err
	}
	capacity := 0
	if _, err := fmt.Sscan(lineOf(shown, "capacity"), &capacity); err != nil {
		return fmt.Errorf("capacity of the namespace's ring: %w: %s", err, shown)
	}
	format += fmt.Sprintf("-size %d ", capacity+headerLen)
	if _, err := m.host.Run(ctx, format+"'"+mixedNear+"'"); err != nil {
		return err
	}
	if _, err := m.machine.Run(ctx, format+"'"+mixedServed+"'"); err != nil {
		return err
	}
	return m.serve(ctx)
}

// serve starts the target on central, which lets the writer of the first epoch and the drain in.
func (m *mixed) serve(ctx context.Context) (err error) {
	if m.target, err = m.bed.startTarget(ctx, m.machine); err != nil {
		return err
	}
	for _, command := range []string{
		"serve orders " + mixedServed + " desk",
		fmt.Sprintf("grant orders %s writer 1", m.tokens["writer"].token),
		fmt.Sprintf("grant orders %s drain 0", m.tokens["drain"].token),
	} {
		if _, err := m.target.say(ctx, "%s", command); err != nil {
			return err
		}
	}
	return nil
}

// flags are the tokens and the URI of the stream, for far on any host: the first member is there on host alone.
func (m *mixed) flags(token string) string {
	return fmt.Sprintf("-token -,%s,- 'members:2 %s verbs://%s:%d/orders?wait=block %s'", token, mixedNear,
		addresses[mixedOther], farPort, nvmeRing)
}

// open opens the stream on a guest, again where a busy machine did not reach a member in time.
func (m *mixed) open(ctx context.Context, guest *vm.Guest, by grant) (p *vm.Process, err error) {
	for range memberOpenings {
		if p, err = m.tryOpen(ctx, guest, by); err == nil || !strings.Contains(err.Error(), "members are reached") {
			return p, err
		}
	}
	return nil, err
}

func (m *mixed) tryOpen(ctx context.Context, guest *vm.Guest, by grant) (*vm.Process, error) {
	p, err := m.bed.start(guest, "write", fmt.Sprintf("exec far write -batch 16 -deadline %s -patience %s -epoch %d %s",
		appendDeadline, mixedPatience, by.epoch, m.flags(by.token)))
	if err != nil {
		return nil, err
	}
	if err := p.WaitText(ctx, "recovered_tail="); err != nil {
		return nil, err
	}
	if said := p.Stderr(); !strings.Contains(said, memberQuorum) {
		return nil, fmt.Errorf("the writer was opened with %q, want %q", said, memberQuorum)
	}
	return p, nil
}

// suffer puts the far members at fault in turn.
func (m *mixed) suffer(ctx context.Context) (seen []string, err error) {
	for _, fault := range []struct {
		name       string
		begin, end func() error
	}{
		{
			"verbs target killed", func() error { return crash(ctx, m.target.process) },
			func() error { return m.serve(ctx) },
		},
		{
			"namespace's port removed", func() error { return m.removePort(ctx) },
			func() error { return m.putPortBack(ctx) },
		},
	} {
		if err := m.whole(ctx); err != nil {
			return nil, fmt.Errorf("before %s: %w: %s", fault.name, err, m.writer.Stderr())
		}
		m.bed.say("%s", fault.name)
		if err := fault.begin(); err != nil {
			return nil, fmt.Errorf("%s: %w", fault.name, err)
		}
		if err := m.more(ctx, memberMore); err != nil {
			return nil, fmt.Errorf("%s: %w", fault.name, err)
		}
		if err := m.ledger.calmly(fault.end); err != nil {
			return nil, fmt.Errorf("%s is over: %w", fault.name, err)
		}
		seen = append(seen, fault.name)
	}
	return seen, m.whole(ctx)
}

// removePort does it while another program of each host has the device open, and goes on to: the next one of that
// namespace has another name then.
func (m *mixed) removePort(ctx context.Context) error {
	for _, name := range []string{"host", mixedOther} {
		holder, err := m.bed.start(m.guests[name], "holder",
			"exec 3<$(nvme-device "+nvmeSubsystem+" 1) && echo holds && exec sleep infinity")
		if err != nil {
			return err
		}
		if err := holder.WaitText(ctx, "holds"); err != nil {
			return err
		}
	}
	_, err := m.guests["target"].Run(ctx, fmt.Sprintf("sed '/{id: 2,/d' %s >/run/without.yaml && farlog target nvmet "+
		"apply -f /run/without.yaml && ! test -e /sys/kernel/config/nvmet/ports/2", nvmetFile))
	return err
}

// putPortBack also connects the hosts again: their devices went with the connections. Writer and drain have to close
// those before, while there are no others.
func (m *mixed) putPortBack(ctx context.Context) error {
	for _, name := range []string{"host", mixedOther} {
		if err := m.bed.waitDisconnected(ctx, m.guests[name]); err != nil {
			return err
		}
		if _, err := m.guests[name].Run(ctx, "wait-for let-go far"); err != nil {
			return fmt.Errorf("%s holds a device that was removed: %w", name, err)
		}
	}
	if _, err := m.guests["target"].Run(ctx, "farlog target nvmet apply -f "+nvmetFile); err != nil {
		return err
	}
	for _, name := range []string{"host", mixedOther} {
		if _, err := m.bed.connectNVMe(ctx, m.guests[name], "tcp"); err != nil {
			return fmt.Errorf("%s is not connected again: %w", name, err)
		}
	}
	return nil
}

// takenOver: central fences its ring and opens the stream by the verbs member and the namespace.
func (m *mixed) takenOver(ctx context.Context) (string, error) {
	next, told, err := m.succeeded(ctx, func() (*vm.Process, error) {
		by, err := m.bed.takeover(ctx, m.target, 2)
		if err != nil {
			return nil, err
		}
		return m.open(ctx, m.machine, by)
	}, m.isOut)
	if err != nil {
		return "", err
	}
	return told, m.goesOn(ctx, next)
}

// isOut judges how a writer ended that was taken over. Its own memory, which no target serves, still takes its records,
// and the namespace does not tell where its log there ends: so of what it had under way it may be left in the dark
// (docs/explanation/members.md), but nothing of it is acknowledged.
func (m *mixed) isOut(ctx context.Context, end error) (string, error) {
	if errors.Is(end, errFenced) {
		return m.isTold(ctx, end)
	}
	asides := m.ledger.asides
	m.ledger.asides = nil
	if len(asides) == 0 || !strings.HasPrefix(asides[len(asides)-1], "unknown") {
		return "", fmt.Errorf("want FENCED or UNKNOWN: %w: it said %q; %s", end, asides, m.writer.Stderr())
	}
	if err := m.writer.Wait(ctx); err == nil {
		return "", fmt.Errorf("it ended as if all was well, after %q", asides)
	}
	return "its first append was UNKNOWN, and stayed so", nil
}

// whole waits until each member has what is acknowledged by now.
func (m *mixed) whole(ctx context.Context) error {
	m.ledger.isCalm.Store(true)
	defer m.ledger.isCalm.Store(false)
	lsn := m.ledger.last()
	for _, member := range []struct{ guest, ring string }{
		{"host", mixedNear},
		{mixedOther, mixedServed},
		{"host", nvmeRing},
	} {
		if _, err := m.guests[member.guest].Run(ctx, fmt.Sprintf("wait-for has-lsn '%s' %d", member.ring,
			lsn)); err != nil {
			return fmt.Errorf("%s lacks what was acknowledged: %w", member.ring, err)
		}
	}
	return nil
}
