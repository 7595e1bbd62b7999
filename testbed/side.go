package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// runAll runs scenarios side by side, each as soon as there is room for its guests: those of many guests first, and
// beside them those that fit. Each has machines, a wire and draws of its own. What one guest leaves of the processors,
// waiting for a fault to pass or booting by one thread, another one has.
func runAll(ctx context.Context, o options, chosen []scenario, make func(scenario) (*bed, error)) error {
	report, err := newReport(o.result)
	if err != nil {
		return err
	}
	defer report.close()
	if err := os.RemoveAll(o.failed); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	room := newRoom(o.room)
	var running sync.WaitGroup
	waiting := slices.Clone(chosen)
	slices.SortStableFunc(waiting, func(a, b scenario) int { return b.guests - a.guests })
	for len(waiting) > 0 {
		at := room.take(waiting)
		if ctx.Err() != nil {
			break
		}
		s := waiting[at]
		waiting = slices.Delete(waiting, at, at+1)
		say("%d of %d: %s: %s", len(chosen)-len(waiting), len(chosen), s.name, s.what)
		running.Add(1)
		go func() {
			defer running.Done()
			defer room.leave(s)
			if err := runOne(ctx, s, o.failed, report, make); err != nil {
				cancel(err)
			}
		}()
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return report.conclude()
}

// runOne reports how a scenario went, and plays it once more when the emulator took a guest from it. An error: it was
// not that which failed, and no other one can go on.
func runOne(ctx context.Context, s scenario, failed string, report *report, make func(scenario) (*bed, error)) error {
	o, err := play(ctx, s, failed, make)
	if lost := new(guestLost); errors.As(err, &lost) && lost.isEmulators {
		say("%s: %v; its kernel fell over a breakpoint that nobody set; once more", s.name, lost)
		o, err = play(ctx, s, failed, make)
	}
	if o.Name == "" || ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return report.add(o)
}

// play plays a scenario once. Without an outcome there was none.
func play(ctx context.Context, s scenario, failed string, make func(scenario) (*bed, error)) (outcome, error) {
	b, err := make(s)
	if err != nil {
		return outcome{}, err
	}
	defer b.remove()
	began := time.Now()
	detail, err := b.run(ctx, s)
	if err != nil {
		if kept, keepErr := b.keep(filepath.Join(failed, s.name)); keepErr == nil {
			detail = fmt.Sprintf("%v; kept: %s", err, kept)
		} else {
			detail = errors.Join(err, keepErr).Error()
		}
	}
	return outcome{s.name, err == nil, time.Since(began).Seconds(), b.processorTime().Seconds(), detail}, err
}

// room is the guests that may run at a time.
type room struct {
	mu   sync.Mutex
	left *sync.Cond
	free int
	size int
}

func newRoom(size int) *room {
	r := &room{free: size, size: size}
	r.left = sync.NewCond(&r.mu)
	return r
}

// take waits until there is room for one of these, and gives the first that there is room for. One that needs more than
// there is at all has it alone.
func (r *room) take(waiting []scenario) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for i, s := range waiting {
			if need := min(s.guests, r.size); need <= r.free {
				r.free -= need
				return i
			}
		}
		r.left.Wait()
	}
}

func (r *room) leave(s scenario) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += min(s.guests, r.size)
	r.left.Signal()
}
