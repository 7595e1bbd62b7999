package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	nvmeTakeoverRecords  = 20_000
	nvmeTakeoverTurn     = 150 // records that a writer appends where it goes on
	nvmeTakeoverLate     = 50  // records that a writer has to append when it goes on
	nvmeTakeoverDeadline = 5 * time.Second
	nvmeBare             = "?commands=nvme"
	nvmeConflict         = "83 Reservation Conflict)" // behind it the type of the status, and whether to try again
)

// nvmeTakeover proves that a namespace's reservation keeps a former writer out: a writer is stopped, another host takes
// its ring over, and when the first goes on its device refuses its write, it says within its deadline that it is
// fenced, and nothing of it is in the ring. The second one, which sends bare NVMe commands, is stopped and loses the
// ring to the first in the same way. Then the first one's cable is cut, the ring is taken back behind its back, and
// what it tried meanwhile is not there either, also after its cable is whole again. A drain on a third host goes on
// over all of them.
func nvmeTakeover(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBed(ctx, nvmeHost, nvmeSecond, nvmeCentral)
	if err != nil {
		return "", err
	}
	records, err := newRecords("NT", nvmeTakeoverRecords)
	if err != nil {
		return "", err
	}
	s := &nvmeRivals{bed: b, guests: guests, ledger: newLedger(records)}
	for _, name := range []string{"host", "second"} {
		if err := s.connect(ctx, name); err != nil {
			return "", err
		}
	}
	// As an administrator would have it: the kernel holds on to this one.
	if _, err := b.connectNVMe(ctx, guests["central"], "tcp"); err != nil {
		return "", err
	}
	shown, err := guests["host"].Run(ctx, fmt.Sprintf("farlog ring format %s --force --stream desk/orders", nvmeRing))
	if err != nil {
		return "", err
	}
	if contract := lineOf(shown, "contract"); !strings.HasSuffix(contract,
		"between hosts fenced by reservation, until the target restarts") {
		return "", fmt.Errorf("the contract does not tell of the reservation: %s", contract)
	}
	drain, err := b.start(guests["central"], "drain", fmt.Sprintf("exec far drain -store %s %s", storeDir, nvmeRing))
	if err != nil {
		return "", err
	}
	if err := drain.WaitText(ctx, "draining"); err != nil {
		return "", err
	}
	stopped, err := s.overStopped(ctx, "host", "", "second", nvmeBare)
	if err != nil {
		return "", fmt.Errorf("taken over from a writer that is stopped: %w", err)
	}
	bare, err := s.overStopped(ctx, "second", nvmeBare, "host", "")
	if err != nil {
		return "", fmt.Errorf("taken over from a writer of bare commands that is stopped: %w", err)
	}
	cut, err := s.overCut(ctx)
	if err != nil {
		return "", fmt.Errorf("taken over from a writer that is cut off: %w", err)
	}
	proved, err := b.drainedNVMe(ctx, guests["central"], drain, "desk/orders", s.ledger)
	if err != nil {
		return "", err
	}
	if proved.others != 0 {
		return "", fmt.Errorf("%d records are in the store that nobody was told of: a former writer's landed",
			proved.others)
	}
	return fmt.Sprintf("%s; stopped: %s; with bare commands: %s; cut off: %s", proved, stopped, bare, cut), nil
}

// nvmeRivals are two hosts that write one ring in turn.
type nvmeRivals struct {
	bed    *bed
	guests map[string]*vm.Guest
	ledger *ledger
	writer *vm.Process // the present one
}

// connect connects a guest by farlog itself, once more where a busy machine showed its key too late (connectNVMe).
func (s *nvmeRivals) connect(ctx context.Context, name string) error {
	guest := s.guests[name]
	text, err := guest.Run(ctx, fmt.Sprintf("modprobe nvme-tcp && wait-for sh -c 'farlog host connect %s --transport "+
		"tcp --address %s --port %d --host-nqn %s --host-id %s --key-file /run/nvme.key >/run/connected 2>&1 || { "+
		"cat /run/connected; exit 1; }' && cat /run/connected",
		nvmeSubsystem, addresses["target"], nvmeTCPPort, nvmeHostNQN(name), nvmeHostID(name)))
	if err == nil && strings.Contains(text, "warning") {
		err = fmt.Errorf("farlog warns of its own connection: %s", text)
	}
	return err
}

// open lets a guest take the ring: whoever has it is shut out. options are the URI's.
func (s *nvmeRivals) open(ctx context.Context, name, options string) error {
	writer, err := s.bed.start(s.guests[name], "write-"+name,
		fmt.Sprintf("exec far write -deadline %s -patience 1s '%s'", nvmeTakeoverDeadline, nvmeRing+options))
	if err != nil {
		return err
	}
	s.writer = writer
	if err := s.ledger.give(ctx, writer, nvmeTakeoverTurn); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, writer.Stderr())
	}
	return nil
}

// stopped is the writer, on a guest that opens the ring if nobody has: it has written, was stopped, and has records to
// append when it goes on.
func (s *nvmeRivals) stopped(ctx context.Context, name, options string) (*vm.Process, error) {
	if s.writer == nil {
		if err := s.open(ctx, name, options); err != nil {
			return nil, err
		}
	}
	if err := s.writer.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	_, err := s.writer.Write(s.ledger.records.framed(s.ledger.next, s.ledger.next+nvmeTakeoverLate))
	return s.writer, err
}

// overStopped: from writes and is stopped, to takes over, from goes on.
func (s *nvmeRivals) overStopped(ctx context.Context, from, fromOptions, to, toOptions string) (string, error) {
	l := s.ledger
	former, err := s.stopped(ctx, from, fromOptions)
	if err != nil {
		return "", err
	}
	if err := s.open(ctx, to, toOptions); err != nil {
		return "", err
	}
	if _, err := s.guests[from].Run(ctx, "dmesg -C"); err != nil {
		return "", err
	}
	l.slowest = 0
	acknowledged := l.next
	if err := former.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	if err := l.listen(ctx, former, nvmeTakeoverLate); !errors.Is(err, errFenced) {
		return "", fmt.Errorf("the former writer was not told that it is fenced, but: %v, %q: %s", err, l.asides,
			former.Stderr())
	}
	took := l.slowest
	switch {
	case l.next != acknowledged:
		return "", fmt.Errorf("%d records of the former writer were acknowledged", l.next-acknowledged)
	case took > nvmeTakeoverDeadline+deadlineSlack:
		return "", fmt.Errorf("it was told after %s, of a deadline of %s", took, nvmeTakeoverDeadline)
	}
	if err := s.refused(ctx, from, fromOptions, former); err != nil {
		return "", err
	}
	return fmt.Sprintf("refused by the device, told after %s", took.Round(time.Millisecond)),
		l.give(ctx, s.writer, nvmeTakeoverTurn)
}

// refused: the former writer's device has refused its write. Of a bare command the kernel says nothing, and the writer
// has its status.
func (s *nvmeRivals) refused(ctx context.Context, name, options string, former *vm.Process) error {
	if options == nvmeBare {
		if !strings.Contains(former.Stderr(), nvmeConflict) {
			return fmt.Errorf("its device did not answer %q: %s", nvmeConflict, former.Stderr())
		}
		return nil
	}
	if !strings.Contains(former.Stderr(), "reservation conflict") {
		return fmt.Errorf("the writer does not say why it is fenced: %s", former.Stderr())
	}
	if _, err := s.guests[name].Run(ctx, "dmesg | grep 'reservation conflict'"); err != nil {
		return fmt.Errorf("its device has refused nothing: %w", err)
	}
	return nil
}

// overCut: host is cut off with records to append, second takes the ring back, host's cable is whole again.
func (s *nvmeRivals) overCut(ctx context.Context) (string, error) {
	l, former := s.ledger, s.writer
	cable, err := s.bed.port("host")
	if err != nil {
		return "", err
	}
	cable.SetFaults(vm.Faults{Cut: true})
	l.slowest = 0
	acknowledged := l.next
	if _, err := former.Write(l.records.framed(l.next, l.next+1)); err != nil {
		return "", err
	}
	line, err := former.ReadLine(ctx)
	if err != nil {
		return "", err
	}
	if _, err := l.hear(line); err != nil || !strings.HasPrefix(line, "unknown ") ||
		l.slowest > nvmeTakeoverDeadline+deadlineSlack {
		return "", fmt.Errorf("the writer that is cut off said %q, after %s of a deadline of %s: %w", line, l.slowest,
			nvmeTakeoverDeadline, err)
	}
	took := l.slowest
	if err := s.open(ctx, "second", nvmeBare); err != nil {
		return "", err
	}
	cable.SetFaults(vm.Faults{})
	if err := s.bed.waitDisconnected(ctx, s.guests["host"]); err != nil {
		return "", err
	}
	if err := s.connect(ctx, "host"); err != nil {
		return "", fmt.Errorf("connected again: %w", err)
	}
	if text, err := s.guests["host"].Run(ctx, "farlog ring show "+nvmeRing); err != nil {
		return "", fmt.Errorf("a reader on the host that was shut out: %w: %s", err, text)
	}
	if err := l.give(ctx, s.writer, nvmeTakeoverTurn); err != nil {
		return "", err
	}
	if l.next != acknowledged+2*nvmeTakeoverTurn {
		return "", fmt.Errorf("%d records were acknowledged since the cut, want %d", l.next-acknowledged,
			2*nvmeTakeoverTurn)
	}
	if err := former.Wait(ctx); err == nil {
		return "", errors.New("the writer that was cut off ended as if nothing were")
	}
	return fmt.Sprintf("unknown after %s, connected again", took.Round(time.Millisecond)), nil
}

// waitDisconnected waits until the kernel has given a broken connection up.
func (b *bed) waitDisconnected(ctx context.Context, guest *vm.Guest) error {
	_, err := guest.Run(ctx, "wait-for nvme-gone "+nvmeSubsystem)
	if err != nil {
		return fmt.Errorf("the device of a broken connection is still there: %w", err)
	}
	return nil
}
