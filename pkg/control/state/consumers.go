package state

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// SlowConsumers are those of a stream, those that lose most first.
func (v *View) SlowConsumers(stream string) []*api.SlowConsumer {
	v.slowOnce.Do(func() {
		v.slowOf = map[string][]*api.SlowConsumer{}
		for _, key := range slices.Sorted(maps.Keys(v.Slow)) {
			stream, _, _ := strings.Cut(key, "#")
			v.slowOf[stream] = append(v.slowOf[stream], v.Slow[key])
		}
		for _, all := range v.slowOf {
			slices.SortStableFunc(all, func(a, b *api.SlowConsumer) int {
				return cmp.Or(cmp.Compare(b.LostRecords, a.LostRecords), cmp.Compare(b.LostBytes, a.LostBytes),
					cmp.Compare(b.LagBytes, a.LagBytes))
			})
		}
	})
	return v.slowOf[stream]
}
