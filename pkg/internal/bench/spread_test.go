package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Against the same durations sorted: quantiles to within a bucket, never too low, and the moments as they are.
func TestSpread_AgreesWithSortedDurations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var whole, half spread
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(random.Int64N(1 << (1 + i%40)))
		all = append(all, d)
		if i%2 == 0 {
			half.add(d)
		} else {
			whole.add(d)
		}
	}
	whole.merge(&half)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		want := all[max(int(q*float64(len(all)))-1, 0)]
		if got := whole.quantile(q); got < want || float64(got) > float64(want)*(1+1.0/spreadStep)+1 {
			t.Errorf("quantile %g is %d, expected %d to %g", q, got, want, float64(want)*(1+1.0/spreadStep)+1)
		}
	}
	mean, deviation := moments(all)
	if got := float64(whole.mean()); got < mean-1 || got > mean+1 {
		t.Errorf("mean is %g, expected %g", got, mean)
	}
	if got := float64(whole.deviation()); got < deviation*0.999 || got > deviation*1.001 {
		t.Errorf("deviation is %g, expected %g", got, deviation)
	}
	if whole.count != uint64(len(all)) || whole.max != all[len(all)-1] {
		t.Errorf("%d durations, the longest %s; expected %d, %s", whole.count, whole.max, len(all), all[len(all)-1])
	}
}

// moments gives mean and standard deviation the long way.
func moments(durations []time.Duration) (mean, deviation float64) {
	for _, d := range durations {
		mean += float64(d) / float64(len(durations))
	}
	variance := 0.0
	for _, d := range durations {
		variance += (float64(d) - mean) * (float64(d) - mean) / float64(len(durations))
	}
	return mean, math.Sqrt(variance)
}
