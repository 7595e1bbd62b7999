package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const (
	// daemonKills of each of target, drain and writer; controlKills beside them.
	daemonKills  = 7
	controlKills = 3

	daemonWindow      = 64
	daemonPauseMax    = 200 * time.Millisecond
	piledUp           = 300
	idleWritersMax    = 10
	hurriedKillsOneIn = 4
	exitKilled        = 128 + 9
)

// clockJumps are made between kills, one behind each quarter of them: the trading host's clock and that of the control
// plane go an hour ahead, and come back.
var clockJumps = []struct {
	guest string
	by    time.Duration
}{{"host", time.Hour}, {"central", time.Hour}, {"host", -time.Hour}, {"central", -time.Hour}}

// daemonsKilled kills the target's daemon, the drain, the writer and the control plane at random, and starts them
// again. The writer is on the trading host, the ring on the target's NVDIMM, drain and control plane on the central
// host; all that lies between them is SoftRoCE and the control plane's connections. The clocks of trading host and
// control plane jump meanwhile. At the end every acknowledged record is in the store.
func daemonsKilled(ctx context.Context, b *bed) (string, error) {
	guests, err := b.bootAll(ctx, targetMachine, hostMachine, centralMachine)
	if err != nil {
		return "", err
	}
	c := b.newCrew(guests, "central", "central")
	if err := c.startAll(ctx, "control", "target", "drain-central"); err != nil {
		return "", err
	}
	if err := c.serve(ctx, daemonStream, "8MiB"); err != nil {
		return "", err
	}
	records, err := newRecords("D", 60000)
	if err != nil {
		return "", err
	}
	l := newLedger(records)
	stop, writing := make(chan struct{}), make(chan error, 1)
	go func() { writing <- c.writeOn(ctx, l, stop) }()
	kills, err := c.killAll(ctx, l, writing)
	if err != nil {
		return "", err
	}
	close(stop)
	if err := <-writing; err != nil {
		return "", err
	}
	if err := checkWriter(c.part("writer")); err != nil {
		return "", err
	}
	proved, err := c.drained(ctx, daemonStream, "central", l)
	if err != nil {
		return "", fmt.Errorf("after kills %v and jumps of clocks: %w", kills, err)
	}
	wire, err := b.crossed()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("kills %v and %d jumps of clocks by an hour, %d writers: %s; %s", kills, len(clockJumps),
		c.writers, proved, wire), nil
}

// killAll kills in an order that is drawn, most of them after some records, some at once after the one before.
func (c *crew) killAll(ctx context.Context, l *ledger, writing <-chan error) (map[string]int, error) {
	kills, order := map[string]int{}, c.bed.drawKills()
	for i, name := range order {
		if quarter := len(order) / len(clockJumps); i%quarter == quarter/2 && i/quarter < len(clockJumps) {
			if err := c.jump(ctx, clockJumps[i/quarter].guest, clockJumps[i/quarter].by); err != nil {
				return kills, err
			}
		}
		count := 50 + c.bed.draw(100)
		if c.bed.draw(hurriedKillsOneIn) == 0 {
			count = 0
		}
		if err := c.more(ctx, l, count, writing); err != nil {
			return kills, fmt.Errorf("after kills %v: %w", kills, err)
		}
		if name == "drain-central" {
			if err := c.pileUp(ctx, l, writing); err != nil {
				return kills, fmt.Errorf("after kills %v: %w", kills, err)
			}
		}
		time.Sleep(time.Duration(c.bed.draw(int(daemonPauseMax/time.Microsecond))) * time.Microsecond)
		if err := l.calmly(func() error { return c.killOne(ctx, name, writing) }); err != nil {
			return kills, fmt.Errorf("after kills %v: %s: %w", kills, name, err)
		}
		kills[name]++
	}
	if err := c.more(ctx, l, 200, writing); err != nil {
		return kills, fmt.Errorf("after kills %v: %w", kills, err)
	}
	return kills, nil
}

// jump sets a guest's clock; whoever measures time there has to do without it.
func (c *crew) jump(ctx context.Context, guest string, by time.Duration) error {
	text, err := c.guests[guest].Run(ctx, fmt.Sprintf("from=$(date +%%s); date -s @$((from + %d)) >/dev/null && echo "+
		"$(($(date +%%s) - from))", int(by.Seconds())))
	if err != nil {
		return err
	}
	seconds, err := strconv.Atoi(strings.TrimSpace(text))
	if off := time.Duration(seconds)*time.Second - by; err != nil || off < -time.Minute || off > time.Minute {
		return fmt.Errorf("the clock of %s jumped by %q s, want %s: %w", guest, text, by, err)
	}
	c.bed.say("the clock of %s jumped by %s", guest, by)
	return nil
}

// pileUp stops the drain for some records, so that it is at work, and not waiting for more, when it is killed.
func (c *crew) pileUp(ctx context.Context, l *ledger, writing <-chan error) error {
	drain := c.part("drain-central")
	if err := drain.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := c.more(ctx, l, piledUp, writing); err != nil {
		return err
	}
	return drain.Signal(syscall.SIGCONT)
}

// killOne kills a part and starts it again; a writer is followed by the next one without this. A writer may have just
// ended because of a kill before: then the next one is meant. A daemon that ended by itself is a failure.
func (c *crew) killOne(ctx context.Context, name string, writing <-chan error) error {
	isKilled, err := c.kill(ctx, name)
	for err == nil && !isKilled && name == "writer" {
		select {
		case <-time.After(time.Millisecond):
			isKilled, err = c.kill(ctx, name)
		case err = <-writing:
			err = fmt.Errorf("writing ended: %w", err)
		}
	}
	switch {
	case err != nil:
		return err
	case !isKilled:
		return fmt.Errorf("it ended by itself: %s", c.part(name).Stderr())
	case name == "writer":
		return nil
	}
	return c.start(ctx, name)
}

// drawKills gives the parts in the order in which they are killed.
func (b *bed) drawKills() []string {
	var order []string
	for range daemonKills {
		order = append(order, "target", "drain-central", "writer")
	}
	for range controlKills {
		order = append(order, "control")
	}
	for last := len(order) - 1; last > 0; last-- {
		other := b.draw(last + 1)
		order[last], order[other] = order[other], order[last]
	}
	return order
}

// crossed proves by the wire that the writer flushed by native FLUSH and that the drain came by RDMA READ, and tells
// how often.
func (b *bed) crossed() (string, error) {
	host, err := b.rdma("host")
	if err != nil {
		return "", err
	}
	central, err := b.rdma("central")
	if err != nil {
		return "", err
	}
	if host.Writes == 0 || host.Flushes == 0 || central.Reads == 0 {
		return "", fmt.Errorf("on the wire: the writer %+v, the drain %+v; want WRITEs and FLUSHes of the one, READs "+
			"of the other", host, central)
	}
	return fmt.Sprintf("on the wire %d WRITEs and %d FLUSHes of the writer, %d READs of the drain", host.Writes,
		host.Flushes, central.Reads), nil
}

// isMeant tells an end that a writer may have: killed here, or without the control plane when it asked for its grant.
// One that has opened its ring goes on through whatever else is killed.
func isMeant(end error, said string) error {
	var exit *vm.ExitError
	isKilled := errors.As(end, &exit) && exit.Code == exitKilled
	if isKilled || strings.Contains(said, "acquire writer of stream") && !strings.Contains(said, "recovered: ") {
		return nil
	}
	return fmt.Errorf("a writer ended by itself: %w", end)
}

// writeOn starts one writer after another, and feeds each until it ends. A record that no writer acknowledged goes to
// the next one.
func (c *crew) writeOn(ctx context.Context, l *ledger, stop <-chan struct{}) error {
	for idle := 0; idle < idleWritersMax; idle++ {
		before := l.acknowledged()
		p, err := c.startWriter(daemonStream, daemonWindow)
		if err != nil {
			return err
		}
		err = l.feed(ctx, c.bed, p, func(int) bool {
			select {
			case <-stop:
				return true
			default:
				return false
			}
		})
		if err == nil {
			return finish(ctx, p)
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
		if l.acknowledged() > before {
			idle = -1
		}
		if err := isMeant(p.Wait(ctx), p.Stderr()); err != nil {
			return err
		}
	}
	return fmt.Errorf("%d writers in a row ended without an acknowledgement: %s", idleWritersMax,
		c.part("writer").Stderr())
}
