package main

import (
	"math"
	"math/bits"
	"time"
)

const (
	spreadBits = 6 // of a bucket's precision: quantiles are 1/64 too high at most
	spreadStep = 1 << spreadBits
)

// spread is how durations are distributed: count, mean and deviation exactly, quantiles by buckets, so that minutes at
// millions a second take no memory.
type spread struct {
	count        uint64
	sum, squares float64
	max          time.Duration
	buckets      [(65 - spreadBits) * spreadStep]uint64
}

func (s *spread) add(d time.Duration) {
	d = max(d, 0)
	s.count++
	s.sum += float64(d)
	s.squares += float64(d) * float64(d)
	s.max = max(s.max, d)
	shift := max(bits.Len64(uint64(d))-spreadBits-1, 0)
	s.buckets[shift*spreadStep+int(uint64(d)>>shift)]++
}

func (s *spread) merge(other *spread) {
	s.count += other.count
	s.sum += other.sum
	s.squares += other.squares
	s.max = max(s.max, other.max)
	for i, n := range other.buckets {
		s.buckets[i] += n
	}
}

func (s *spread) mean() time.Duration { return time.Duration(s.sum / float64(max(s.count, 1))) }

func (s *spread) deviation() time.Duration {
	mean := s.sum / float64(max(s.count, 1))
	return time.Duration(math.Sqrt(max(s.squares/float64(max(s.count, 1))-mean*mean, 0)))
}

// quantile gives the upper end of the bucket that has it.
func (s *spread) quantile(q float64) time.Duration {
	wanted, seen := uint64(math.Ceil(q*float64(s.count))), uint64(0)
	for i, n := range s.buckets {
		seen += n
		if n != 0 && seen >= wanted {
			shift := max(i/spreadStep-1, 0)
			return min(time.Duration(uint64(i-shift*spreadStep+1)<<shift-1), s.max)
		}
	}
	return 0
}
