package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	outageTime      = time.Second
	outageBefore    = outageTime / 2
	outageRounds    = 5
	outageRecords   = 20_000 // for all rounds
	outageFed       = 10     // at a time
	outageStuck     = time.Minute
	outageP50Ratio  = 1.5
	outageP99Ratio  = 3.0
	outageRateRatio = 0.5
)

// outage: a drain that stands still for a second does not slow appends while the ring has room. That none waits for it
// is told by each: the drain goes on only when the last append of its outage has come back. That none is slower is told
// by their times against those just before; what else the machine does makes a round worse, the drain would make all of
// them so.
func (c *crew) outage(ctx context.Context, stream, drainer string, l *ledger) (string, error) {
	writer, err := c.writeSingly(ctx, stream, "")
	if err != nil {
		return "", err
	}
	if _, err := c.pace(ctx, writer, l, outageBefore); err != nil { // the first ones fetch what is cold
		return "", err
	}
	var seen []string
	for range outageRounds {
		before, during, err := c.outageRound(ctx, stream, drainer, writer, l)
		if err != nil {
			return "", err
		}
		seen = append(seen, fmt.Sprintf("an append p50 %s, p99 %s with the drain, %s, %s without", before.p50,
			before.p99, during.p50, during.p99))
		if during.isAsFastAs(before) {
			return fmt.Sprintf("; in its outage %d: %s", len(seen), seen[len(seen)-1]), finish(ctx, writer)
		}
	}
	return "", fmt.Errorf("in each of %d outages appends were slower than before: wanted are p50 at most %.1f times, "+
		"p99 %.1f times as long, and %.1f times as many a second: %s",
		outageRounds, outageP50Ratio, outageP99Ratio, outageRateRatio, strings.Join(seen, "; "))
}

// writeSingly starts a writer that appends one record after another, by a grant of its own. from is the address of the
// trading host that it goes out by; "": the kernel's routes say.
func (c *crew) writeSingly(ctx context.Context, stream, from string) (*vm.Process, error) {
	host := c.guests["host"]
	if _, err := host.Run(ctx, fmt.Sprintf("rm -f /run/grant; wait-for farlog stream grant %s --takeover "+
		"--token-file /run/grant --transport verbs %s", stream, c.control)); err != nil {
		return nil, err
	}
	text, err := host.Run(ctx, "cat /run/grant")
	if err != nil {
		return nil, err
	}
	var granted struct {
		Ring, Token string
		Epoch       int
	}
	if err := json.Unmarshal([]byte(text), &granted); err != nil {
		return nil, fmt.Errorf("the grant: %w", err)
	}
	if from != "" {
		granted.Ring += "?from=" + from
	}
	for attempt := 1; ; attempt++ {
		p, err := c.bed.start(host, "write", fmt.Sprintf("exec far write -token %s -epoch %d -deadline %s '%s'",
			granted.Token, granted.Epoch, outageStuck/3, granted.Ring))
		if err != nil {
			return nil, err
		}
		// A machine that is busy enough does not answer in time.
		if err = p.WaitText(ctx, "recovered_tail="); err == nil || attempt == memberOpenings ||
			!strings.Contains(err.Error(), "no answer in time") {
			return p, err
		}
	}
}

func (c *crew) outageRound(ctx context.Context, stream, drainer string, writer *vm.Process, l *ledger) (before,
	during pace, err error,
) {
	if _, err := c.guests["host"].Run(ctx, fmt.Sprintf("wait-drained %s %d %s", stream, l.lastLSN,
		c.control)); err != nil {
		return before, during, err
	}
	if before, err = c.pace(ctx, writer, l, outageBefore); err != nil {
		return before, during, err
	}
	drain := c.part("drain-" + drainer)
	if err := drain.Signal(syscall.SIGSTOP); err != nil {
		return before, during, err
	}
	if during, err = c.pace(ctx, writer, l, outageTime); err != nil {
		return before, during, fmt.Errorf("while the drain stood: %w", err)
	}
	return before, during, drain.Signal(syscall.SIGCONT)
}

// pace is what single appends took, one behind the other.
type pace struct {
	perSecond float64
	p50, p99  time.Duration
}

func (p pace) isAsFastAs(other pace) bool {
	return p.p50.Seconds() <= outageP50Ratio*other.p50.Seconds() &&
		p.p99.Seconds() <= outageP99Ratio*other.p99.Seconds() &&
		p.perSecond >= outageRateRatio*other.perSecond
}

// pace feeds a writer for so long at least. Each append must be acknowledged at once.
func (c *crew) pace(ctx context.Context, writer *vm.Process, l *ledger, lasts time.Duration) (pace, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, outageStuck,
		fmt.Errorf("appends did not come back within %s", outageStuck))
	defer cancel()
	first, asides := len(l.took), len(l.asides)
	for began := time.Now(); time.Since(began) < lasts; {
		if l.next+outageFed > len(l.records.payloads) {
			return pace{}, errors.New("all records were fed")
		}
		if err := l.give(ctx, writer, outageFed); err != nil {
			return pace{}, fmt.Errorf("%w: %s", err, writer.Stderr())
		}
	}
	if len(l.asides) != asides {
		return pace{}, fmt.Errorf("not all appends were acknowledged: %q", l.asides[asides:])
	}
	return paceOf(l.took[first:]), nil
}

func paceOf(took []time.Duration) pace {
	sorted := slices.Sorted(slices.Values(took))
	var total time.Duration
	for _, one := range sorted {
		total += one
	}
	return pace{float64(len(sorted)) / total.Seconds(), sorted[len(sorted)/2], sorted[len(sorted)*99/100]}
}
