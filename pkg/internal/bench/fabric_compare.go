package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// fabricRounds is how often the two take turns.
const fabricRounds = 3

// fabricSettle is how long a control that has just started is left alone.
const fabricSettle = 10 * time.Second

// turns is what one of two daemons took, over all of its turns.
type turns struct {
	daemon    string
	share     float64 // % of a core, the mean
	start     float64 // seconds of the processor until all streams were in order, the mean
	now, most float64 // MiB resident behind a turn, and ever
}

// compare has this farlogd and the one that FARLOGD_OTHER names take turns over the same state and agents, so that what
// else runs on the machine meets both.
func (f *fabric) compare(ctx context.Context) error {
	ours, other := turns{daemon: f.daemon}, turns{daemon: os.Getenv("FARLOGD_OTHER")}
	if other.daemon == "" {
		return nil
	}
	defer func() { f.daemon = ours.daemon }()
	for range fabricRounds {
		for _, one := range []*turns{&ours, &other} {
			if err := f.turn(ctx, one); err != nil {
				return err
			}
		}
	}
	tell := func(name, unit, what string, ours, other float64) error {
		return report(result{Name: "fabric/compare-" + name, Ours: ours, Unit: unit, Note: what}, other)
	}
	return errors.Join(
		tell("share", "% core", fmt.Sprintf("mean of %d turns of %s each; beside it %s", fabricRounds, fabricMoving,
			other.daemon), ours.share, other.share),
		tell("start", "s", "of the processor, until all streams were in order", ours.start, other.start),
		tell("resident", "MiB", "behind a turn, the most of all turns", ours.now, other.now),
		tell("most", "MiB", "that there ever was", ours.most, other.most))
}

func (f *fabric) turn(ctx context.Context, of *turns) error {
	f.daemon = of.daemon
	if _, _, err := f.again(ctx); err != nil {
		return err
	}
	of.start += f.processor() / fabricRounds
	time.Sleep(fabricSettle)
	began, before := time.Now(), f.processor()
	time.Sleep(fabricMoving)
	share := 100 * (f.processor() - before) / time.Since(began).Seconds()
	memory, err := f.memory()
	fmt.Fprintf(os.Stderr, "  %s: %.1f %% of a core, resident %.0f MiB, %.0f of them pages of files, at most %.0f\n",
		of.daemon, share, memory.now, memory.files, memory.most)
	of.share, of.now, of.most = of.share+share/fabricRounds, max(of.now, memory.now), max(of.most, memory.most)
	return err
}
