// Package sweep is the frame of tests that make each call of a scenario fail once, in turn: which of the faults are
// tried, and by which seed. It is for tests alone.
package sweep

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("sweep.seed", 0,
		"seed of the sample of faults under -short, and of what a power cut keeps; 0 = from the clock")
	percentFlag = flag.Int("sweep.percent", 0, "percent of the faults; 0 = all, a few under -short")
)

// Sample chooses faults. One goroutine uses it.
type Sample struct {
	Seed    uint64
	percent int
	rng     *rand.Rand
}

// New says by which seed the sample is drawn. short is the percent of the faults that are tried under -short.
func New(t *testing.T, short int) *Sample {
	t.Helper()
	s := &Sample{Seed: *seedFlag, percent: *percentFlag}
	if s.Seed == 0 {
		s.Seed = uint64(time.Now().UnixNano())
	}
	if s.percent == 0 {
		if s.percent = 100; testing.Short() {
			s.percent = short
		}
	}
	s.rng = rand.New(rand.NewPCG(s.Seed, 5))
	t.Logf("%d percent of the faults, seed %d (again with -sweep.seed)", s.percent, s.Seed)
	return s
}

// Includes reports whether the next fault is tried.
func (s *Sample) Includes() bool { return s.rng.IntN(100) < s.percent }
