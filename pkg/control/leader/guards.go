package leader

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// actionGuards are the conditions under which what was planned of a view may still be done: each key that the decision
// rests on is as the view has it. A stream that was deleted since, or made again under its name, is another one.
func actionGuards(v *state.View, action reconcile.Action) []clientv3.Cmp {
	name := action.Stream()
	guards := []clientv3.Cmp{state.SameStream(v, name)}
	switch {
	case action.Place != nil || action.Renew != nil:
		guards = append(guards, state.UnchangedSince(v, etcd.KeyDeletions+name))
		return append(guards, placeGuards(v, action)...)
	case action.Bind != nil: // its member may have been replaced since
		return append(guards, state.UnchangedSince(v, etcd.KeyRings+reconcile.MemberKey(name, int(action.Bind.Member))))
	case action.Keep != nil:
		return append(guards, state.UnchangedSince(v, etcd.KeyRings+reconcile.MemberKey(name, action.Keep.Member)))
	}
	guards = append(guards, state.UnchangedSince(v, etcd.KeyAssignments+name),
		state.UnchangedSince(v, etcd.KeyDeletions+name))
	if action.IsEnd() && v.Deletions[name].GetRingLost() { // the ring may be seen again
		rings, _ := reconcile.RingSpecs(v.Rings, v.Streams[name])
		for _, ring := range rings {
			if ring != nil && v.LiveTargets[ring.Target] == nil {
				guards = append(guards, clientv3.Compare(clientv3.CreateRevision(etcd.KeyLiveTargets+ring.Target), "=",
					0))
			}
		}
	}
	for i := range reconcile.MemberCount(v.Streams[name]) {
		guards = append(guards, state.UnchangedSince(v, etcd.KeyRings+reconcile.MemberKey(name, i)))
	}
	return guards
}

// groupGuards are those of several actions of one stream, each once.
func groupGuards(v *state.View, actions []reconcile.Action) (guards []clientv3.Cmp) {
	for _, action := range actions {
		for _, guard := range actionGuards(v, action) {
			isSame := func(one clientv3.Cmp) bool { return proto.Equal(one.GetCompare(), guard.GetCompare()) }
			if !slices.ContainsFunc(guards, isSame) {
				guards = append(guards, guard)
			}
		}
	}
	return guards
}

// placeGuards are the conditions under which a ring is wanted in the place of none, or of one in which nothing can be:
// it still is so, and no epoch was granted. A grant is given only for the rings that its giver has seen
// (state.RingsUnchanged), so that of a grant and this the second one fails.
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
	return []clientv3.Cmp{
		state.UnchangedSince(now, key),
		clientv3.Compare(clientv3.CreateRevision(etcd.KeyEpochs+name), "=", 0),
	}
}
