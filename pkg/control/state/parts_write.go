package state

import (
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// reportChange is in what a report differs from what is shown, and from what etcd has.
type reportChange struct {
	isHead bool            // what is no part
	News   map[string]bool // parts in which more than figures differs
	Moved  map[string]bool // parts in which figures do
	Gone   []string        // parts that are no longer there
}

// IsNews reports whether the head of a report changed, or a part of it is gone.
func (c *reportChange) IsNews() bool { return c.isHead || len(c.Gone) > 0 }

// IsSame reports whether nothing but figures changed.
func (c *reportChange) IsSame() bool { return !c.IsNews() && len(c.News) == 0 }

// Compare goes by the names of the report's parts, which are in order.
func (k *AgentKind[S, P]) Compare(v *View, id string, names []string, report S) *reportChange {
	change := &reportChange{News: map[string]bool{}, Moved: map[string]bool{}}
	of := k.of(v)
	whole, isThere := (*k.Wholes(v))[id]
	have, shown, list := of.by[id], k.get(whole), k.get(report)
	change.isHead = !isThere || of.isWhole[id] || !k.isSameHead(whole, report)
	isShown := isThere && !of.isWhole[id] && len(shown) == len(have)
	at := 0
	for i, name := range names {
		for ; at < len(have) && have[at].name < name; at++ {
			change.Gone = append(change.Gone, have[at].name)
		}
		if at == len(have) || have[at].name != name {
			change.News[name] = true
			continue
		}
		before := have[at].value
		if isShown {
			before = shown[at]
		}
		at++
		if !k.isSame(before, list[i]) {
			change.News[name] = true
		} else if k.isMoved(before, list[i]) {
			change.Moved[name] = true
		}
	}
	for ; at < len(have); at++ {
		change.Gone = append(change.Gone, have[at].name)
	}
	return change
}

// ReportWrite is one key of a report that is written, and about how much that is.
type ReportWrite struct {
	Op   clientv3.Op
	Size int
}

// Writes are the parts that are to be written, those that are to go, and the head.
func (k *AgentKind[S, P]) Writes(id string, names []string, written map[string]bool, gone []string, report S,
) (writes []ReportWrite, err error) {
	put := func(key string, message proto.Message) {
		value, failed := etcd.EncodeBytes(message)
		if failed != nil && err == nil {
			rule := "expected texts in UTF-8: " + failed.Error()
			err = refusal.WithProblems(codes.InvalidArgument, fmt.Sprintf("state of %s: %s", key, failed),
				[]*api.Problem{{Field: "state", Rule: rule}})
		}
		writes = append(writes, ReportWrite{clientv3.OpPut(key, value), len(key) + len(value)})
	}
	for i, name := range names {
		if written[name] {
			put(k.partKey(id, name), k.get(report)[i])
		}
	}
	for _, name := range gone {
		key := k.partKey(id, name)
		writes = append(writes, ReportWrite{clientv3.OpDelete(key), len(key)})
	}
	put(k.Heads+id, k.with(report, nil))
	return writes, err
}

// partKey is the key of one part of an agent's report.
func (k *AgentKind[S, P]) partKey(id, name string) string { return k.parts + id + "/" + name }
