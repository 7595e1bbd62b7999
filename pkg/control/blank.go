package control

import (
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// placeGuards are the conditions under which a ring is wanted in the place of none, or of one in which nothing can be: it still is so, and no epoch was granted. A grant is given only
// for the rings that its giver has seen (ringsUnchanged), so that of a grant and this the second one fails.
func placeGuards(now *state.View, action reconcile.Action) []clientv3.Cmp {
	spec := action.Place
	isStill := reconcile.IsMovable
	if action.Renew != nil {
		spec, isStill = action.Renew, reconcile.IsRenewable
	}
	name := spec.Stream.Spec.Name
	key := etcd.KeyRings + reconcile.MemberKey(name, int(spec.Member))
	have := now.Rings[reconcile.MemberKey(name, int(spec.Member))]
	if have == nil || !isStill(now.World(), have) {
		return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}
	}
	return []clientv3.Cmp{state.UnchangedSince(now, key), clientv3.Compare(clientv3.CreateRevision(etcd.KeyEpochs+name), "=", 0)}
}

// withEpochs gives each stream of a backup an epoch. One that had none may have been granted some after it was backed up, and its ring is no longer known to be blank.
func withEpochs(entries []*api.BackupEntry) []*api.BackupEntry {
	has := map[string]bool{}
	for _, entry := range entries {
		has[entry.Key] = true
	}
	for _, entry := range entries {
		if prefix, name := etcd.CutKey(entry.Key); prefix == etcd.KeyStreams && !has[etcd.KeyEpochs+name] {
			entries = append(entries, &api.BackupEntry{Key: etcd.KeyEpochs + name, Value: strconv.Itoa(restoreLeap)})
		}
	}
	return entries
}
