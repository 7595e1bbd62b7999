package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// roundMax is how long a round of a role's loop may take: each waits for a disk, and for an answer with a deadline.
const roundMax = time.Minute

// progress is when the loop of a role began its last round. Any goroutine may use it.
type progress struct {
	role  string
	began atomic.Pointer[time.Time] // nil: no round has begun, and none is expected
}

// note says that a round begins.
func (p *progress) note() {
	now := time.Now()
	p.began.Store(&now)
}

// expect says that rounds are to come from now on: a loop that never begins hangs, too.
func (p *progress) expect() {
	now := time.Now()
	p.began.CompareAndSwap(nil, &now)
}

// stalled says that a role hangs; nil while it does not, and before its first round is expected.
func (p *progress) stalled(now time.Time) error {
	began := p.began.Load()
	if began == nil || now.Sub(*began) <= roundMax {
		return nil
	}
	return fmt.Errorf("%s: hangs: its main loop has not turned for %s, expected at least once a minute: look whether "+
		"its disk answers (dmesg)", p.role, now.Sub(*began).Round(time.Second))
}

// newProgress is for the loop of a role of this daemon.
func (d *daemon) newProgress(role string) *progress {
	one := &progress{role: role}
	d.loops = append(d.loops, one)
	return one
}

// stalled says which roles of this daemon hang; nil: none. Their loops go round also without a control plane.
func (d *daemon) stalled(now time.Time) error {
	var errs []error
	for _, one := range d.loops {
		errs = append(errs, one.stalled(now))
	}
	return errors.Join(errs...)
}
