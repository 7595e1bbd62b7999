package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/retry"
)

const (
	clockLooks    = time.Second
	clockJumpMost = 500 * time.Millisecond // between two looks: who slews a clock moves it by a tenth of that
	clockToldFor  = time.Hour
	clockTries    = 5
)

// clockJumps sees that the clock of the host was set: it is compared with one that nobody sets.
type clockJumps struct {
	logger *slog.Logger
	// read gives the host's clock, and the time since any moment by the other one, which goes on while the host sleeps.
	read func() (wall time.Time, elapsed time.Duration)

	mutex   sync.Mutex
	wall    time.Time // of the last look; zero: there was none
	elapsed time.Duration
	count   uint64
	by      time.Duration // the last jump: ahead, or back
	at      time.Duration // when that was, by the other clock
	text    string
}

func newClockJumps(logger *slog.Logger) *clockJumps {
	return &clockJumps{logger: logger, read: readClocks}
}

func (c *clockJumps) run(ctx context.Context) {
	for c.look(); retry.Sleep(ctx, clockLooks) == nil; {
		c.look()
	}
}

// look compares both clocks with the last look.
func (c *clockJumps) look() {
	wall, elapsed := c.read()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	before, by := c.wall, wall.Sub(c.wall)-(elapsed-c.elapsed)
	c.wall, c.elapsed = wall, elapsed
	if before.IsZero() || by.Abs() <= clockJumpMost {
		return
	}
	c.count++
	c.by, c.at = by, elapsed
	c.text = fmt.Sprintf("the clock jumped by %s to %s; expected steps below %s", signed(by),
		wall.UTC().Format(time.RFC3339), clockJumpMost)
	c.logger.Error(
		"the clock of this host jumped: times of records and the expiry of grants and certificates are wrong, "+
			"or were before; expected steps below "+clockJumpMost.String()+": check chrony or ptp4l (farlog doctor)",
		"by",
		signed(by),
		"from",
		before.UTC().Format(time.RFC3339),
		"to",
		wall.UTC().Format(time.RFC3339),
	)
}

func signed(by time.Duration) string {
	if by > 0 {
		return "+" + by.Round(time.Millisecond).String()
	}
	return by.Round(time.Millisecond).String()
}

// recent is the last jump, for an hour; "": there was none.
func (c *clockJumps) recent() string {
	_, elapsed := c.read()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if elapsed-c.at > clockToldFor {
		return ""
	}
	return c.text
}

// sample is for metrics: how many there were, and the last one.
func (c *clockJumps) sample() (count uint64, last time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.count, c.by
}

// readClocks reads both clocks together: of some tries the one that took least, as a busy host may take the processor
// away in between.
func readClocks() (wall time.Time, elapsed time.Duration) {
	least := time.Duration(-1)
	for range clockTries {
		before := bootTime()
		now := time.Now().Round(0) // without its monotonic reading, by which Sub would go
		after := bootTime()
		if took := after - before; least < 0 || took < least {
			least, wall, elapsed = took, now, before+took/2
		}
	}
	return wall, elapsed
}

func bootTime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every Linux has it
	}
	return time.Duration(now.Nano())
}
