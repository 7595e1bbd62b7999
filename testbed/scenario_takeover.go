package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

// revocationPause is how long a writer meets an ended key on a living queue pair, in the second run; less than the
// deadline, so that there is time to learn of the fence behind it.
const revocationPause = appendDeadline / 2

// verbsTakeover: a writer is stopped, its stream is taken over by another on a third machine, then it goes on: nothing
// of its lands, it is told within its deadline that it is fenced, and the target counts it. In a first run it finds its
// queue pair gone; in a second one its queue pair lives and its key has ended, so that it is the device that refuses.
func verbsTakeover(ctx context.Context, b *bed) (string, error) {
	old, err := b.verbsBed(ctx, 20000)
	if err != nil {
		return "", err
	}
	other, err := b.boot(ctx, machine{name: "second", cpus: 2, isOnWire: true})
	if err != nil {
		return "", err
	}
	gone, err := old.takenOver(ctx, other)
	if err != nil {
		return "", fmt.Errorf("taken over with its queue pair gone: %w", err)
	}
	denied, err := old.takenOverByDevice(ctx, other)
	if err != nil {
		return "", fmt.Errorf("taken over with its queue pair alive: %w", err)
	}
	proved, err := old.ledger.proveMemory(b.targetMemory())
	if err != nil {
		return "", err
	}
	if proved.others != 0 {
		return "", fmt.Errorf("%d records are there that nobody was told of: the old writer's landed", proved.others)
	}
	return fmt.Sprintf("%s; queue pair gone: %s; queue pair alive: %s", proved, gone, denied), nil
}

// takenOver is the first run.
func (s *stage) takenOver(ctx context.Context, other *vm.Guest) (string, error) {
	l := s.ledger
	if err := l.give(ctx, s.writer, 300); err != nil {
		return "", err
	}
	if err := s.writer.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	// It has records to append when it goes on.
	const late = 50
	if _, err := s.writer.Write(l.records.framed(l.next, l.next+late)); err != nil {
		return "", err
	}
	by, err := s.bed.takeover(ctx, s.target, 2)
	if err != nil {
		return "", err
	}
	next, err := s.succeed(ctx, other, by)
	if err != nil {
		return "", err
	}
	before, err := s.bed.rdma("host")
	if err != nil {
		return "", err
	}
	if err := s.writer.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	acknowledged := l.next
	told, err := s.isTold(ctx, l.listen(ctx, s.writer, late))
	if err != nil {
		return "", fmt.Errorf("the writer that was taken over: %w", err)
	}
	if l.next != acknowledged {
		return "", fmt.Errorf("%d records of the writer that was taken over were acknowledged: %q", l.next-acknowledged,
			l.asides)
	}
	after, err := s.bed.rdma("host")
	if err == nil && after.Writes == before.Writes {
		err = errors.New("it asked its device for no WRITE: there was nothing to refuse")
	}
	if err == nil {
		err = s.goesOn(ctx, next)
	}
	if err != nil {
		return "", err
	}
	counters, err := s.fenced(ctx, 0)
	return fmt.Sprintf("%d WRITEs went out and none landed, %s; %s", after.Writes-before.Writes, told, counters), err
}

// takenOverByDevice is the second run. The target is one that waits between the end of the key and that of the queue
// pair. The writer is stopped while the takeover is ordered and has records to append from then on: those that come
// before its key has ended are in the log that the next writer finds.
func (s *stage) takenOverByDevice(ctx context.Context, other *vm.Guest) (string, error) {
	if err := s.reopen(ctx); err != nil {
		return "", err
	}
	if err := s.ledger.give(ctx, s.writer, 300); err != nil {
		return "", err
	}
	before, err := s.bed.rdma("target")
	if err != nil {
		return "", err
	}
	if err := s.writer.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	var by grant
	taken := make(chan error, 1)
	go func() {
		var err error
		by, err = s.bed.takeover(ctx, s.target, 4)
		taken <- err
	}()
	if err := s.writer.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	var end error
	for end == nil {
		end = s.ledger.give(ctx, s.writer, 16)
	}
	told, err := s.isTold(ctx, end)
	if err != nil {
		return "", fmt.Errorf("the writer that was taken over: %w", err)
	}
	if err := <-taken; err != nil {
		return "", err
	}
	after, err := s.bed.rdma("target")
	if err == nil && after.Denials == before.Denials {
		err = errors.New("the target's device has refused nothing")
	}
	if err != nil {
		return "", err
	}
	next, err := s.succeed(ctx, other, by)
	if err == nil {
		err = s.goesOn(ctx, next)
	}
	if err != nil {
		return "", err
	}
	counters, err := s.fenced(ctx, 1)
	return fmt.Sprintf("the target's device answered %d WRITEs with a remote access error, %s; %s",
		after.Denials-before.Denials, told, counters), err
}

// reopen starts a target that pauses revocations, on the same memory, and a writer to it.
func (s *stage) reopen(ctx context.Context) error {
	err := s.target.stop(ctx)
	if err != nil {
		return err
	}
	if s.target, err = s.bed.startTargetOf(ctx, s.machine, "far-fault"); err != nil {
		return err
	}
	for _, command := range []string{
		"serve orders " + devdax + " desk",
		"pause revocations " + revocationPause.String(),
	} {
		if _, err := s.target.say(ctx, "%s", command); err != nil {
			return err
		}
	}
	if s.by, err = s.bed.takeover(ctx, s.target, 3); err != nil {
		return err
	}
	s.writer, err = s.bed.writeFar(ctx, s.host, s.by, "", "-batch 16 -deadline "+appendDeadline.String())
	return err
}

// succeed opens the next writer, on another machine, which appends.
func (s *stage) succeed(ctx context.Context, on *vm.Guest, by grant) (*vm.Process, error) {
	next, err := s.bed.writeFar(ctx, on, by, "", "-batch 16 -deadline 10s")
	if err == nil {
		err = s.ledger.give(ctx, next, 300)
	}
	return next, err
}

// goesOn proves that the next writer appends still, and ends it.
func (s *stage) goesOn(ctx context.Context, next *vm.Process) error {
	if err := s.ledger.give(ctx, next, 300); err != nil {
		return fmt.Errorf("the next writer: %w", err)
	}
	return finish(ctx, next)
}

// fenced compares counters of the target: one writer was fenced, denied so often by the device, came again and was
// refused by the listener, once or more.
func (s *stage) fenced(ctx context.Context, denied int) (string, error) {
	counters, err := s.target.count(ctx, "orders")
	if err != nil {
		return "", err
	}
	if counters["fenced_count"] != 1 || counters["denied_count"] != denied {
		return "", fmt.Errorf("fenced_count is %d, want 1, denied_count %d, want %d: %v", counters["fenced_count"],
			counters["denied_count"], denied, counters)
	}
	if counters["refused_count"] == 0 {
		return "", fmt.Errorf("refused_count is 0: who told the old writer that it is fenced? %v", counters)
	}
	return fmt.Sprintf("fenced_count 1, denied_count %d, refused_count %d", denied, counters["refused_count"]), nil
}

// isTold judges how a writer that was taken over learned of it and ended, from what it said beside acknowledgements.
// end is how listening to it ended.
func (s *stage) isTold(ctx context.Context, end error) (string, error) {
	if !errors.Is(end, errFenced) {
		return "", fmt.Errorf("want that it is fenced: %w: it said %q; %s", end, s.ledger.asides, s.writer.Stderr())
	}
	told, err := judgeFenced(s.ledger.asides)
	s.ledger.asides = nil
	if err != nil {
		return "", err
	}
	if err := s.writer.Wait(ctx); err == nil || !strings.Contains(s.writer.Stderr(), "fenced") {
		return "", fmt.Errorf("it ended with %w: %s", err, s.writer.Stderr())
	}
	return told, nil
}

// judgeFenced: the first append that was not acknowledged came back FENCED within its deadline; or UNKNOWN at its
// deadline, with all of its records resolved, and the append behind it FENCED within its own.
func judgeFenced(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", errors.New("it said nothing but acknowledgements, want that it is fenced")
	}
	last := strings.Fields(lines[len(lines)-1])
	if last[0] != "fenced" {
		return "", fmt.Errorf("its last word is %q, want that it is fenced", lines[len(lines)-1])
	}
	took, err := tookOf(last, 2)
	if err != nil {
		return "", err
	}
	if took > appendDeadline {
		return "", fmt.Errorf("the append that was told FENCED took %s of a deadline of %s", took, appendDeadline)
	}
	if len(lines) == 1 {
		return fmt.Sprintf("its first append was FENCED after %s of a deadline of %s", took.Round(time.Millisecond),
			appendDeadline), nil
	}
	first, counts, err := judgeUnknown(lines[:len(lines)-1])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("its first append was UNKNOWN after %s of a deadline of %s (%d records absent, %d there), the "+
		"next one FENCED after %s", first.Round(time.Millisecond),
		appendDeadline, counts["absent"], counts["resolved"], took.Round(time.Millisecond)), nil
}

// judgeUnknown takes the lines of an append whose outcome was not known: each of its records is resolved.
func judgeUnknown(lines []string) (took time.Duration, counts map[string]int, err error) {
	counts = map[string]int{}
	for i, line := range lines {
		fields := strings.Fields(line)
		counts[fields[0]]++
		switch isUnknown := i%2 == 0; {
		case isUnknown && fields[0] == "unknown":
			if took, err = tookOf(fields, 3); err != nil {
				return 0, nil, err
			}
			if most := appendDeadline + deadlineSlack; took > most {
				return 0, nil, fmt.Errorf("an append took %s, more than its deadline of %s and %s", took,
					appendDeadline, deadlineSlack)
			}
		case !isUnknown && (fields[0] == "absent" || fields[0] == "resolved"):
		default:
			return 0, nil, fmt.Errorf("it says %q, want each unknown record resolved, and then that it is fenced: %q",
				line, lines)
		}
	}
	if len(lines)%2 != 0 {
		return 0, nil,
			fmt.Errorf("what became of the last record was never told, want each unknown record resolved: %q", lines)
	}
	return took, counts, nil
}

func tookOf(fields []string, at int) (time.Duration, error) {
	if at >= len(fields) {
		return 0, fmt.Errorf("outcome %q: expected how long it took", fields)
	}
	us, err := strconv.ParseInt(fields[at], 10, 64)
	if at+1 < len(fields) && err == nil { // for so much of it a processor of that machine stood still
		var stood int64
		stood, err = strconv.ParseInt(fields[at+1], 10, 64)
		us -= stood
	}
	return time.Duration(us) * time.Microsecond, err
}
