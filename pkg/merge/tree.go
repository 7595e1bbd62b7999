package merge

// key is what streams are compared by: order time, then the stream. Within a stream the order is that of its records.
type key struct {
	orderNS uint64
	rank    int // of the stream's name among all names
}

func (k key) isBefore(other key) bool {
	return k.orderNS < other.orderNS || k.orderNS == other.orderNS && k.rank < other.rank
}

// never is behind every key: of a stream that is not waited for.
var never = key{orderNS: ^uint64(0), rank: int(^uint(0) >> 1)}

// tree is a tournament of keys: the least one is at the top, and when one changes only the matches on its way up are
// played again, one for each doubling of their number. It is pure.
type tree struct {
	keys        []key // by leaf, filled up to a power of two
	winners     []int // of each match: leaf; [1] is the final
	comparisons uint64
}

func newTree(count int) *tree {
	size := 1
	for size < count {
		size *= 2
	}
	t := &tree{keys: make([]key, size), winners: make([]int, size)}
	for i := range t.keys {
		t.keys[i] = never
	}
	t.build()
	return t
}

// build plays all matches.
func (t *tree) build() {
	for match := len(t.winners) - 1; match >= 1; match-- {
		t.play(match)
	}
}

// set changes a key and plays its matches.
func (t *tree) set(leaf int, k key) {
	t.keys[leaf] = k
	for match := (leaf + len(t.keys)) / 2; match >= 1; match /= 2 {
		t.play(match)
	}
}

// top gives the leaf with the least key.
func (t *tree) top() int {
	if len(t.keys) == 1 {
		return 0
	}
	return t.winners[1]
}

func (t *tree) play(match int) {
	left, right := t.winner(2*match), t.winner(2*match+1)
	t.comparisons++
	if t.keys[right].isBefore(t.keys[left]) {
		left = right
	}
	t.winners[match] = left
}

// winner is that of a match, or the leaf itself.
func (t *tree) winner(node int) int {
	if node >= len(t.keys) {
		return node - len(t.keys)
	}
	return t.winners[node]
}
