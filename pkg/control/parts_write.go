package control

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
	news   map[string]bool // parts in which more than figures differs
	moved  map[string]bool // parts in which figures do
	gone   []string        // parts that are no longer there
}

func (c *reportChange) isNews() bool { return c.isHead || len(c.gone) > 0 }
func (c *reportChange) isSame() bool { return !c.isNews() && len(c.news) == 0 }

// compare goes by the names of the report's parts, which are in order.
func (k *agentKind[S, P]) compare(v *view, id string, names []string, report S) *reportChange {
	change := &reportChange{news: map[string]bool{}, moved: map[string]bool{}}
	of := k.of(v)
	whole, isThere := (*k.wholes(v))[id]
	have, shown, list := of.by[id], k.get(whole), k.get(report)
	change.isHead = !isThere || of.isWhole[id] || !k.isSameHead(whole, report)
	isShown := isThere && !of.isWhole[id] && len(shown) == len(have)
	at := 0
	for i, name := range names {
		for ; at < len(have) && have[at].name < name; at++ {
			change.gone = append(change.gone, have[at].name)
		}
		if at == len(have) || have[at].name != name {
			change.news[name] = true
			continue
		}
		before := have[at].value
		if isShown {
			before = shown[at]
		}
		at++
		if !k.isSame(before, list[i]) {
			change.news[name] = true
		} else if k.isMoved(before, list[i]) {
			change.moved[name] = true
		}
	}
	for ; at < len(have); at++ {
		change.gone = append(change.gone, have[at].name)
	}
	return change
}

// reportWrite is one key of a report that is written, and about how much that is.
type reportWrite struct {
	op   clientv3.Op
	size int
}

// writes are the parts that are to be written, those that are to go, and the head.
func (k *agentKind[S, P]) writes(id string, names []string, written map[string]bool, gone []string, report S) (writes []reportWrite, err error) {
	put := func(key string, message proto.Message) {
		value, failed := etcd.EncodeBytes(message)
		if failed != nil && err == nil {
			rule := "expected texts in UTF-8: " + failed.Error()
			err = refusal.WithProblems(codes.InvalidArgument, fmt.Sprintf("state of %s: %s", key, failed), []*api.Problem{{Field: "state", Rule: rule}})
		}
		writes = append(writes, reportWrite{clientv3.OpPut(key, value), len(key) + len(value)})
	}
	for i, name := range names {
		if written[name] {
			put(k.partKey(id, name), k.get(report)[i])
		}
	}
	for _, name := range gone {
		key := k.partKey(id, name)
		writes = append(writes, reportWrite{clientv3.OpDelete(key), len(key)})
	}
	put(k.heads+id, k.with(report, nil))
	return writes, err
}

func (k *agentKind[S, P]) partKey(id, name string) string { return k.parts + id + "/" + name }
