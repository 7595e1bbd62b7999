package merge

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// The cost of a record is counted in comparisons, which no machine makes faster or slower: one for each doubling of the
// number of streams.
func TestTree_ComparisonsGrowWithTheLogarithm(t *testing.T) {
	for _, streams := range []int{1, 2, 3, 16, 100, 256, 1000, 4096} {
		rng := rand.New(rand.NewPCG(uint64(streams), 5))
		tree := newTree(streams)
		for leaf := range streams {
			tree.keys[leaf] = key{rng.Uint64N(1000), leaf}
		}
		tree.build()
		tree.comparisons = 0
		const records = 20000
		var before key
		for range records {
			leaf := tree.top()
			if now := tree.keys[leaf]; now.isBefore(before) {
				t.Fatalf("%d streams: %v comes after %v", streams, now, before)
			} else {
				before = now
			}
			tree.set(leaf, key{before.orderNS + rng.Uint64N(1000), leaf})
		}
		want := float64(bits.Len(uint(streams - 1)))
		if got := float64(tree.comparisons) / records; got > want {
			t.Errorf("%d streams: %.2f comparisons a record, expected at most %.0f", streams, got, want)
		}
	}
}
