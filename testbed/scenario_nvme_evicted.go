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

// The machines of the distribution's own kernel, whose NVMe target has no reservations.
var (
	nvmeOldTarget = machine{name: "target", cpus: 2, hasNVDIMM: true, hasDisk: true, isOnWire: true}
	nvmeOldHost   = machine{name: "host", cpus: 2, isOnWire: true}
	nvmeOldSecond = machine{name: "second", cpus: 2, isOnWire: true}
)

// nvmeEvicted proves that a former writer is kept out where the target's kernel has no reservations: a writer is
// stopped; another host is not let on; it orders the fence, the target's daemon takes the former host out of the
// allowed ones, ends its controllers, makes sure of it and says so in the ring; only then is the other one let on. When
// the first goes on its device is gone: nothing of it lands, and it is not told that anything did. It is not let in
// again. A ring that was closed moves between the hosts without all that.
func nvmeEvicted(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBedOn(ctx, nvmeOldTarget, "  takeover: evict\n", nvmeOldHost, nvmeOldSecond)
	if err != nil {
		return "", err
	}
	records, err := newRecords("NE", nvmeTakeoverRecords)
	if err != nil {
		return "", err
	}
	s := &nvmeRivals{bed: b, guests: guests, ledger: newLedger(records)}
	daemon, err := b.start(
		guests["target"],
		"farlogd",
		"exec farlogd target --data-dir /var/target --host-name target --metrics-listen "+targetMetrics+
			" --nvmet-file "+nvmetFile+" --ready-file /run/target.ready",
	)
	if err != nil {
		return "", err
	}
	if err := s.meet(ctx, daemon); err != nil {
		return "", err
	}
	took, err := s.evict(ctx, daemon)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, daemon.Stderr())
	}
	if err := s.moveBack(ctx); err != nil {
		return "", fmt.Errorf("a planned move: %w: %s", err, daemon.Stderr())
	}
	drain, err := b.start(guests["host"], "drain", fmt.Sprintf("exec far drain -store %s %s", storeDir, nvmeRing))
	if err != nil {
		return "", err
	}
	proved, err := b.drainedNVMe(ctx, guests["host"], drain, "desk/orders", s.ledger)
	if err != nil {
		return "", err
	}
	if proved.others != 0 {
		return "", fmt.Errorf("%d records are in the store that nobody was told of: a former writer's landed",
			proved.others)
	}
	return fmt.Sprintf("%s; %s; a closed ring moved back", proved, took), nil
}

// meet connects both hosts, and formats the ring.
func (s *nvmeRivals) meet(ctx context.Context, daemon *vm.Process) error {
	if _, err := s.guests["target"].Run(ctx, "wait-for test -s /run/target.ready"); err != nil {
		return fmt.Errorf("%w: %s", err, daemon.Stderr())
	}
	for _, name := range []string{"host", "second"} {
		if _, err := s.bed.connectNVMe(ctx, s.guests[name], "tcp"); err != nil {
			return err
		}
	}
	shown, err := s.guests["host"].Run(ctx, fmt.Sprintf("farlog ring format %s --force --stream desk/orders", nvmeRing))
	if err != nil {
		return err
	}
	if contract := lineOf(shown, "contract"); !strings.HasSuffix(contract,
		"between hosts fenced at the target, by its hosts; follows closed writers") {
		return fmt.Errorf("the contract does not tell what fences: %s", contract)
	}
	return nil
}

// evict: host writes and is stopped, second takes over, host goes on.
func (s *nvmeRivals) evict(ctx context.Context, daemon *vm.Process) (string, error) {
	l, second := s.ledger, s.guests["second"]
	former, err := s.stopped(ctx, "host", "")
	if err != nil {
		return "", err
	}
	if text, err := second.Run(ctx, "echo order | farlog append --ring "+nvmeRing+" 2>&1"); err == nil ||
		!strings.Contains(text+err.Error(), "opened on another host, was not closed") {
		return "", fmt.Errorf("a writer of the other host was let on beside one that may still write: %s: %w", text,
			err)
	}
	began := time.Now()
	if _, err := second.Run(ctx, "farlog ring fence "+nvmeRing); err != nil {
		return "", err
	}
	if err := daemon.WaitText(ctx, "nvmet host is evicted"); err != nil {
		return "", err
	}
	if err := s.bed.waitDisconnected(ctx, second); err != nil {
		return "", err
	}
	if _, err := second.Run(ctx, "wait-for "+nvmeConnectCommand("second", "tcp", nvmeHostNQN("second"))); err != nil {
		return "", err
	}
	if err := s.open(ctx, "second", ""); err != nil {
		return "", err
	}
	took := time.Since(began)
	if err := s.goOnEvicted(ctx, former); err != nil {
		return "", err
	}
	return fmt.Sprintf("taken over in %s", took.Round(time.Millisecond)), l.give(ctx, s.writer, nvmeTakeoverTurn)
}

// goOnEvicted lets the former writer go on: its host is out, and is not let in again.
func (s *nvmeRivals) goOnEvicted(ctx context.Context, former *vm.Process) error {
	if err := s.goOnOut(ctx, former); err != nil {
		return err
	}
	return s.bed.refusedNVMe(ctx, s.guests["host"], "true", "tcp", nvmeHostNQN("host"),
		"host NQN "+nvmeHostNQN("host")+" is not allowed at ")
}

// goOnOut lets the former writer go on: nothing of it is acknowledged, and it is told that in time.
func (s *nvmeRivals) goOnOut(ctx context.Context, former *vm.Process) error {
	l := s.ledger
	acknowledged, asides := l.next, len(l.asides)
	l.slowest = 0
	if err := former.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	err := l.listen(ctx, former, nvmeTakeoverLate)
	switch {
	case err == nil:
		return fmt.Errorf("the former writer went on as if nothing were: %q", l.asides[asides:])
	case l.next != acknowledged:
		return fmt.Errorf("%d records of the former writer were acknowledged", l.next-acknowledged)
	case l.slowest > nvmeTakeoverDeadline+deadlineSlack:
		return fmt.Errorf("it was told after %s, of a deadline of %s", l.slowest, nvmeTakeoverDeadline)
	}
	if err := former.Wait(ctx); err == nil {
		return errors.New("the former writer ended without an error")
	}
	s.bed.say("the former writer said %q and ended: %s", l.asides[asides:], lastLine(former.Stderr()))
	return nil
}

// moveBack: second closes, and host, which is let in again, opens.
func (s *nvmeRivals) moveBack(ctx context.Context) error {
	if err := finish(ctx, s.writer); err != nil {
		return err
	}
	if _, err := s.guests["target"].Run(ctx, fmt.Sprintf("farlog target nvmet readmit %s --subsystem %s",
		nvmeHostNQN("host"), nvmeSubsystem)); err != nil {
		return err
	}
	if _, err := s.guests["host"].Run(ctx, "wait-for "+nvmeConnectCommand("host", "tcp",
		nvmeHostNQN("host"))); err != nil {
		return err
	}
	if err := s.open(ctx, "host", ""); err != nil {
		return err
	}
	return finish(ctx, s.writer)
}
