package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	appendDeadline = 2 * time.Second
	// deadlineSlack is what may come on top beside the time for which the writer's machine stood still (far/stall.go),
	// which is counted: the emulator's other threads wait for the host's processors, too.
	deadlineSlack = time.Second
)

// verbsBed boots host and target, formats the target's memory and opens a writer to it with epoch 1.
func (b *bed) verbsBed(ctx context.Context, count int) (*stage, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine)
	if err != nil {
		return nil, err
	}
	records, err := newRecords("F", count)
	if err != nil {
		return nil, err
	}
	s := &stage{bed: b, host: guests["host"], machine: guests["target"], ledger: newLedger(records), by: b.newGrant(1)}
	if s.target, err = b.serveDevdax(ctx, s.machine, true, s.by); err != nil {
		return nil, err
	}
	s.writer, err = b.writeFar(ctx, s.host, s.by, "", "-batch 16 -deadline "+appendDeadline.String())
	return s, err
}

// stage is a writer at work on a far ring.
type stage struct {
	bed           *bed
	host, machine *vm.Guest
	target        *farTarget
	writer        *vm.Process
	ledger        *ledger
	by            grant

	stop    chan struct{}
	feeding sync.WaitGroup
	fed     error
}

// begin feeds the writer, until end is called.
func (s *stage) begin(ctx context.Context) {
	s.stop = make(chan struct{})
	s.feeding.Add(1)
	go func() {
		defer s.feeding.Done()
		s.fed = s.ledger.feed(ctx, s.bed, s.writer, func(int) bool {
			select {
			case <-s.stop:
				return true
			default:
				return false
			}
		})
	}()
}

func (s *stage) end() error {
	close(s.stop)
	s.feeding.Wait()
	return s.fed
}

// more waits until so many further records were acknowledged, which proves that the writer goes on.
func (s *stage) more(ctx context.Context, count int) error {
	from := s.ledger.acknowledged()
	ctx, cancel := context.WithTimeoutCause(ctx, goOnLimit, fmt.Errorf("the writer did not go on within %s", goOnLimit))
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for s.ledger.acknowledged() < from+count {
		select {
		case <-ticker.C:
		case <-s.writer.Ended():
			return fmt.Errorf("the writer ended: %w: %s", s.writer.Wait(ctx), s.writer.Stderr())
		case <-ctx.Done():
			return fmt.Errorf("%w: %d records were acknowledged, then %d", context.Cause(ctx), from,
				s.ledger.acknowledged())
		}
	}
	return nil
}

// conclude ends feeding and the writer, and proves all.
func (s *stage) conclude(ctx context.Context) (proof, error) {
	if err := errors.Join(s.end(), finish(ctx, s.writer)); err != nil {
		return proof{}, err
	}
	if most := appendDeadline + deadlineSlack; s.ledger.slowest > most {
		return proof{}, fmt.Errorf("an append took %s, more than its deadline of %s", s.ledger.slowest, appendDeadline)
	}
	return s.ledger.proveMemory(s.bed.targetMemory())
}

func (s *stage) tell(p proof) string {
	return fmt.Sprintf("%s; %d outcomes were unknown at first, slowest append %s of a deadline of %s", p,
		s.ledger.unknown,
		s.ledger.slowest.Round(time.Millisecond), appendDeadline)
}

// linkDown takes a guest's link away for a while, which its kernel is told, and proves that the writer goes on.
func (s *stage) linkDown(ctx context.Context, guest *vm.Guest) error {
	if err := guest.SetLink(ctx, false); err != nil {
		return err
	}
	time.Sleep(cutTime)
	if err := guest.SetLink(ctx, true); err != nil {
		return err
	}
	if err := s.more(ctx, 200); err != nil {
		return fmt.Errorf("after the link of %s was down: %w", guest.Name, err)
	}
	return nil
}

// verbsFaults: a cut of 3 seconds, 5 % loss and 20 ms of delay, one after another, while a writer appends; then the
// links of both machines go down, and the target's machine is killed.
func verbsFaults(ctx context.Context, b *bed) (string, error) {
	s, err := b.verbsBed(ctx, 60000)
	if err != nil {
		return "", err
	}
	port, err := b.port("host")
	if err != nil {
		return "", err
	}
	s.begin(ctx)
	if err := s.more(ctx, 200); err != nil {
		return "", err
	}
	for _, fault := range []struct {
		name   string
		faults vm.Faults
		lasts  time.Duration
		during int // records that must be acknowledged while it lasts
	}{
		{"cut", vm.Faults{Cut: true}, cutTime, 0},
		{"loss", vm.Faults{Loss: 0.05}, 0, 500},
		{"delay", vm.Faults{Delay: 20 * time.Millisecond}, 0, 500},
		{"cut again", vm.Faults{Cut: true}, cutTime, 0},
	} {
		port.SetFaults(fault.faults)
		if err := s.more(ctx, fault.during); err != nil {
			return "", fmt.Errorf("%s: %w", fault.name, err)
		}
		select {
		case <-time.After(fault.lasts):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		port.SetFaults(vm.Faults{})
		if err := s.more(ctx, 200); err != nil {
			return "", fmt.Errorf("after %s: %w", fault.name, err)
		}
	}
	for _, guest := range []*vm.Guest{s.host, s.machine} {
		if err := s.linkDown(ctx, guest); err != nil {
			return "", err
		}
	}
	if err := s.targetKilled(ctx); err != nil {
		return "", err
	}
	proved, err := s.conclude(ctx)
	if err != nil {
		return "", err
	}
	return s.tell(proved), nil
}

// targetKilled kills the target's whole machine at a random moment, looks what its memory has by then, and boots it
// again on that. The writer finds it again by itself.
func (s *stage) targetKilled(ctx context.Context) (err error) {
	if err := s.more(ctx, 300+s.bed.draw(1500)); err != nil {
		return err
	}
	time.Sleep(time.Duration(s.bed.draw(50000)) * time.Microsecond)
	s.machine.Kill()
	if _, err := s.ledger.proveMemory(s.bed.targetMemory()); err != nil {
		return fmt.Errorf("the target's machine was killed, in its memory: %w", err)
	}
	if err := s.ledger.calmly(func() error { return s.bootAgain(ctx) }); err != nil {
		return err
	}
	if err := s.more(ctx, 200); err != nil {
		return fmt.Errorf("after the target's machine was killed: %w", err)
	}
	return nil
}

// bootAgain boots the target's machine, and serves its ring.
func (s *stage) bootAgain(ctx context.Context) (err error) {
	if s.machine, err = s.bed.boot(ctx, targetMachine); err != nil {
		return err
	}
	s.target, err = s.bed.serveDevdax(ctx, s.machine, false, s.by)
	return err
}
