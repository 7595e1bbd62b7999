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
	nvmeFaultDeadline = time.Second
	nvmeCutTime       = 10 * time.Second
	nvmePatience      = 2 * time.Second // of the writer with an outcome that nobody can tell it any more
	nvmeEndLimit      = goOnLimit       // for a writer to end behind it
	nvmeFaultRecords  = 30_000
	nvmeFaultMost     = 4000 // before a fault, and after the last
)

// nvmeFault is what happens to a target while a host appends: begin and end of it.
type nvmeFault struct {
	name, transport string
	begin, end      func(context.Context, *nvmeStage) error
}

// nvmeStage is a writer on a host, and the target of its namespace.
type nvmeStage struct {
	bed          *bed
	host, target *vm.Guest
	ledger       *ledger
	writer       *vm.Process
}

// Over tcp a cable is cut in nvme-takeover.
var nvmeFaults = []nvmeFault{
	{"the port removed and put back", "rdma", portRemoved, portBack},
	{"a cut of 10 s", "rdma", cutBegun, cutEnded},
	{"the target killed and booted again", "rdma", targetKilled, targetBooted},
}

// nvmeFaulted proves that a writer on a namespace of another machine loses nothing that it acknowledged, whatever
// happens to port, link and target, and that none of its appends goes past its deadline meanwhile: the outcome is
// unknown by then. The device goes with its connection; once the fault is over the host connects again, and a new
// writer recovers the ring and goes on. What was acknowledged is drained in the end, and looked up. Behind it come
// those who are kept out, on the same machines.
func nvmeFaulted(ctx context.Context, b *bed) (string, error) {
	guests, err := b.nvmeBed(ctx, nvmeHost)
	if err != nil {
		return "", err
	}
	records, err := newRecords("X", nvmeFaultRecords)
	if err != nil {
		return "", err
	}
	s := &nvmeStage{bed: b, host: guests["host"], target: guests["target"], ledger: newLedger(records)}
	for i, fault := range nvmeFaults {
		if _, err := b.connectNVMe(ctx, s.host, fault.transport); err != nil {
			return "", err
		}
		if i == 0 {
			if _, err := s.host.Run(ctx, "farlog ring format "+nvmeRing+" --force --stream desk/orders"); err != nil {
				return "", err
			}
		}
		if err := s.suffer(ctx, fault); err != nil {
			return "", fmt.Errorf("%s, %s: %w", fault.transport, fault.name, err)
		}
		if i+1 < len(nvmeFaults) {
			if err := b.disconnectNVMe(ctx, s.host); err != nil {
				return "", err
			}
		}
	}
	proved, err := s.prove(ctx)
	if err != nil {
		return "", err
	}
	if err := b.disconnectNVMe(ctx, s.host); err != nil {
		return "", err
	}
	kept, err := b.keptOutNVMe(ctx, s.target, s.host)
	if err != nil {
		return "", fmt.Errorf("who is kept out: %w", err)
	}
	return fmt.Sprintf("%d faults: %s; %d outcomes were unknown, slowest append %s of a deadline of %s; %s",
		len(nvmeFaults), proved, s.ledger.unknown, s.ledger.slowest.Round(time.Millisecond),
		nvmeFaultDeadline, kept), nil
}

// suffer lets a writer append into a fault, and another one go on behind it.
func (s *nvmeStage) suffer(ctx context.Context, fault nvmeFault) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	enough := s.ledger.next + 500 + s.bed.draw(nvmeFaultMost)
	if err := s.ledger.feed(ctx, s.bed, s.writer,
		func(acknowledged int) bool { return acknowledged >= enough }); err != nil {
		return fmt.Errorf("%w: %s", err, s.writer.Stderr())
	}
	ended := make(chan error, 1)
	go func() {
		ended <- s.ledger.feed(ctx, s.bed, s.writer, func(int) bool { return false })
	}()
	time.Sleep(time.Duration(s.bed.draw(300)) * time.Millisecond)
	if err := fault.begin(ctx, s); err != nil {
		return err
	}
	began := time.Now()
	if err := s.cutOff(ctx, ended); err != nil {
		return err
	}
	s.bed.say("%s, %s: the writer was cut off after %.1f s, with %d acknowledged: %s", fault.transport, fault.name,
		time.Since(began).Seconds(), s.ledger.next, strings.TrimSpace(lastLine(s.writer.Stderr())))
	if err := fault.end(ctx, s); err != nil {
		return err
	}
	if _, err := s.host.Run(ctx, "wait-for "+nvmeConnectCommand(s.host.Name, fault.transport,
		nvmeHostNQN(s.host.Name))); err != nil {
		return fmt.Errorf("it is not connected again: %w", err)
	}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("a writer afterwards: %w", err)
	}
	enough = s.ledger.next + 500
	if err := s.ledger.feed(ctx, s.bed, s.writer,
		func(acknowledged int) bool { return acknowledged >= enough }); err != nil {
		return fmt.Errorf("a writer afterwards: %w: %s", err, s.writer.Stderr())
	}
	if err := finish(ctx, s.writer); err != nil {
		return err
	}
	if most := nvmeFaultDeadline + deadlineSlack; s.ledger.slowest > most {
		return fmt.Errorf("an append took %s, more than its deadline of %s", s.ledger.slowest, nvmeFaultDeadline)
	}
	return nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

func (s *nvmeStage) open(ctx context.Context) (err error) {
	s.writer, err = s.bed.start(s.host, "write", fmt.Sprintf("exec far write -batch 16 -deadline %s -patience %s %s",
		nvmeFaultDeadline, nvmePatience, nvmeRing))
	if err != nil {
		return err
	}
	return s.writer.WaitText(ctx, "recovered_tail=")
}

// cutOff waits until the writer has ended because of its device, and the feeding with it.
func (s *nvmeStage) cutOff(ctx context.Context, ended <-chan error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, nvmeEndLimit,
		fmt.Errorf("the writer did not end within %s of the fault", nvmeEndLimit))
	defer cancel()
	select {
	case <-s.writer.Ended():
	case <-ctx.Done():
		return fmt.Errorf("%w: %s", context.Cause(ctx), s.writer.Stderr())
	}
	if err := s.writer.Wait(ctx); err == nil {
		return errors.New("the writer ended without an error")
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func portRemoved(ctx context.Context, s *nvmeStage) error {
	_, err := s.target.Run(ctx, fmt.Sprintf("sed '/{id: 1,/d' %s >/run/without.yaml && farlog target nvmet apply -f "+
		"/run/without.yaml && ! test -e /sys/kernel/config/nvmet/ports/1", nvmetFile))
	return err
}

func portBack(ctx context.Context, s *nvmeStage) error {
	_, err := s.target.Run(ctx, "farlog target nvmet apply -f "+nvmetFile)
	return err
}

func cutBegun(_ context.Context, s *nvmeStage) error {
	return s.cut(true)
}

// cutEnded waits out what is left of the time: the writer has ended before.
func cutEnded(ctx context.Context, s *nvmeStage) error {
	select {
	case <-time.After(nvmeCutTime):
		return s.cut(false)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *nvmeStage) cut(isCut bool) error {
	port, err := s.bed.port("target")
	if err == nil {
		port.SetFaults(vm.Faults{Cut: isCut})
	}
	return err
}

func targetKilled(_ context.Context, s *nvmeStage) error {
	s.target.Kill()
	return nil
}

func targetBooted(ctx context.Context, s *nvmeStage) (err error) {
	if s.target, err = s.bed.boot(ctx, nvmeTarget); err != nil {
		return err
	}
	_, err = s.target.Run(ctx, "nvmet-up && farlog target nvmet apply -f "+nvmetFile)
	return err
}

// prove drains the ring, and looks up what was acknowledged.
func (s *nvmeStage) prove(ctx context.Context) (proof, error) {
	drain, err := s.bed.start(s.host, "drain", fmt.Sprintf("exec far drain -store %s %s", storeDir, nvmeRing))
	if err != nil {
		return proof{}, err
	}
	return s.bed.drainedNVMe(ctx, s.host, drain, "desk/orders", s.ledger)
}
