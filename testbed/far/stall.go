//go:build cgo

package main

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// stalls knows for how long each processor of this machine stood still: a thread of its own on each wants to run every
// stallTick, and what it comes later than twice that, everything else there came later, too. An emulated machine has no
// processor of its own, and a deadline of ours can be kept only while we run.
type stalls struct {
	processors []stalled
}

type stalled struct {
	total atomic.Int64 // nanoseconds, up to the last time that it ran
	ranAt atomic.Int64 // when that was, since stallBegan
}

const stallTick = 20 * time.Millisecond

var stallBegan = time.Now()

func watchStalls() *stalls {
	s := &stalls{make([]stalled, runtime.NumCPU())}
	for i := range s.processors {
		s.processors[i].ranAt.Store(int64(time.Since(stallBegan)))
		go s.processors[i].watch(i)
	}
	return s
}

func (p *stalled) watch(processor int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(processor)
	_ = unix.SchedSetaffinity(0, &set) // where it may not: it runs somewhere, and tells less
	for {
		unix.Nanosleep(&unix.Timespec{Nsec: int64(stallTick)}, nil)
		now := time.Since(stallBegan)
		p.total.Add(p.since(now))
		p.ranAt.Store(int64(now))
	}
}

// since is how late it is by now.
func (p *stalled) since(now time.Duration) int64 {
	return max(0, int64(now-2*stallTick)-p.ranAt.Load())
}

// now is each processor's total so far.
func (s *stalls) now() []int64 {
	now := time.Since(stallBegan)
	totals := make([]int64, len(s.processors))
	for i := range s.processors {
		totals[i] = s.processors[i].total.Load() + s.processors[i].since(now)
	}
	return totals
}

// sinceUS is for how many microseconds the processor that stood still most did so since then.
func (s *stalls) sinceUS(before []int64) int64 {
	most := int64(0)
	for i, total := range s.now() {
		most = max(most, total-before[i])
	}
	return most / 1000
}
