package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

const (
	slowRecords = 200                    // that are acknowledged before a member is slow, and while it is
	slowLeast   = 20 * time.Millisecond  // that each of its answers is late
	slowMost    = 200 * time.Millisecond // more, and what it lacks grows faster than it is sent
	// as long as an append took before is the delay, within these bounds: whoever waits for the member shows it
	slowTimes = 8
	slowRatio = 4                    // at most as long as before may half of the appends take
	netemIdle = "netem limit 100000" // holds and loses nothing
	// what else the machine does makes a round slower, waiting for the member would make all of them so
	slowRounds = 3
)

// slacken proves that a stream with members waits for none of their links: netem in a member's own kernel delays all
// that it sends, then loses all of it. Each time appends go on at the pace of the other two, and when it is over the
// member has what was acknowledged.
func (c *memberCrew) slacken(ctx context.Context) (string, error) {
	told, err := c.slowed(ctx)
	if err != nil {
		return "", err
	}
	return told, c.darkened(ctx)
}

// slowed proves that nobody waits for a member that is slow: half of the appends take no more than some times what they
// took before, and most are acknowledged without it.
func (c *memberCrew) slowed(ctx context.Context) (string, error) {
	var seen []string
	for range slowRounds {
		before, err := c.lap(ctx, slowRecords)
		if err != nil {
			return "", err
		}
		delay := min(max(slowLeast, slowTimes*before.p50), slowMost)
		if err := c.netem(ctx, "target", "delay "+delay.String()); err != nil {
			return "", err
		}
		during, err := c.lap(ctx, slowRecords)
		if err != nil {
			return "", fmt.Errorf("while a member is %s late: %w", delay, err)
		}
		if during.byAll*2 > during.count {
			return "", fmt.Errorf("while a member was %s late %d of %d records were acknowledged when all members "+
				"had them, want most when two had", delay, during.byAll, during.count)
		}
		if err := c.agreed(ctx, "target"); err != nil {
			return "", fmt.Errorf("a member that was %s late: %w", delay, err)
		}
		seen = append(seen, fmt.Sprintf("a member %s late: p50 of an append %s, %s before, %d of %d acknowledged "+
			"without it", delay.Round(time.Millisecond), during.p50.Round(time.Millisecond),
			before.p50.Round(time.Millisecond), during.count-during.byAll, during.count))
		if during.p50 <= slowRatio*before.p50 {
			return seen[len(seen)-1], nil
		}
	}
	return "", fmt.Errorf("each time that a member was slow appends were, too, wanted is a p50 of at most %d times "+
		"that before: %s", slowRatio, strings.Join(seen, "; "))
}

// darkened proves the same of a member none of whose frames comes through: no acknowledgement counts it.
func (c *memberCrew) darkened(ctx context.Context) error {
	if err := c.netem(ctx, "target", "loss 100%"); err != nil {
		return err
	}
	if err := c.without(ctx); err != nil {
		return fmt.Errorf("with a member in the dark: %w", err)
	}
	if err := c.agreed(ctx, "target"); err != nil {
		return fmt.Errorf("a member that was in the dark: %w", err)
	}
	return nil
}

// without proves that the writer goes on without a member that it does not reach.
func (c *memberCrew) without(ctx context.Context) error {
	if err := c.stage.more(ctx, memberMore); err != nil { // what was under way
		return err
	}
	seen, err := c.lap(ctx, memberMore)
	if err == nil && seen.byAll > 0 {
		err = fmt.Errorf("%d of %d records were acknowledged when all members had them, want none", seen.byAll,
			seen.count)
	}
	return err
}

// netem has a guest's kernel do something to all that it sends; "" ends it.
func (c *memberCrew) netem(ctx context.Context, name, what string) error {
	_, err := c.guests[name].Run(ctx, "tc qdisc change dev eth0 root "+netemIdle+" "+what)
	return err
}

// agreed ends what netem does, and waits until every member has what is acknowledged by then.
func (c *memberCrew) agreed(ctx context.Context, name string) error {
	if err := c.netem(ctx, name, ""); err != nil {
		return err
	}
	if err := c.whole(ctx); err != nil {
		return fmt.Errorf("does not come to agree again: %w: %s", err, c.writer.Stderr())
	}
	return nil
}

// lap is some appends in a row: how long half of them took at most, how many records were acknowledged, and how many of
// these when all members had them.
type lap struct {
	p50          time.Duration
	count, byAll int
}

// lap waits for one of the writer's, which goes on all the time.
func (c *memberCrew) lap(ctx context.Context, records int) (lap, error) {
	took, _ := c.ledger.appends(0)
	first := len(took)
	if err := c.stage.more(ctx, records); err != nil {
		return lap{}, err
	}
	took, copies := c.ledger.appends(first)
	seen := lap{p50: paceOf(took).p50, count: len(took)}
	for _, count := range copies {
		if count == fmt.Sprint(len(memberTargets)) {
			seen.byAll++
		}
	}
	return seen, nil
}
