package state

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// SameStream is the condition that a stream is the one of the view: not another of its name, and declared as it was.
func SameStream(v *View, name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(etcd.KeyStreams+name), "=", v.Streams[name].GetRevision())
}

// RingsUnchanged is the condition that the stream is that of the view, not another of its name, and that its rings are.
func RingsUnchanged(v *View, name string) []clientv3.Cmp {
	guards := []clientv3.Cmp{SameStream(v, name)}
	for i := range reconcile.MemberCount(v.Streams[name]) {
		guards = append(guards, UnchangedSince(v, etcd.KeyRings+reconcile.MemberKey(name, i)))
	}
	return guards
}

// UnchangedSince is the condition that nobody has written a key since a view.
func UnchangedSince(v *View, key string) clientv3.Cmp { return UnchangedSinceRevision(v.Revision, key) }

// UnchangedSinceRevision is the condition that nobody has written a key since a revision.
func UnchangedSinceRevision(revision int64, key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "<", revision+1)
}

// NoRouteSince is the condition that no route was made or changed after a revision.
func NoRouteSince(revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(etcd.KeyRoutes), "<", revision+1).WithPrefix()
}

// Commit writes in one step while conditions hold, and gives its revision. act is what its caller is at; what may have
// been changed meanwhile, where they do not hold.
func Commit(ctx context.Context, client *clientv3.Client, act, what string, guards []clientv3.Cmp,
	writes []clientv3.Op,
) (revision int64, err error) {
	put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", act, err)
	}
	if !put.Succeeded {
		return 0, refusal.ChangedMeanwhile(what)
	}
	return put.Header.Revision, nil
}
