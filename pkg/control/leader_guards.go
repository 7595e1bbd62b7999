package control

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"google.golang.org/protobuf/proto"

	"github.com/farlog/farlog/pkg/control/reconcile"
)

// actionGuards are the conditions under which what was planned of a view may still be done: each key that the decision
// rests on is as the view has it. A stream that was deleted since, or made again under its name, is another one.
func actionGuards(v *view, action reconcile.Action) []clientv3.Cmp {
	name := action.Stream()
	guards := []clientv3.Cmp{sameStream(v, name)}
	switch {
	case action.Place != nil || action.Renew != nil:
		guards = append(guards, unchangedSince(v, keyDeletions+name))
		return append(guards, placeGuards(v, action)...)
	case action.Bind != nil: // its member may have been replaced since
		return append(guards, unchangedSince(v, keyRings+reconcile.MemberKey(name, int(action.Bind.Member))))
	case action.Keep != nil:
		return append(guards, unchangedSince(v, keyRings+reconcile.MemberKey(name, action.Keep.Member)))
	}
	guards = append(guards, unchangedSince(v, keyAssignments+name), unchangedSince(v, keyDeletions+name))
	if action.IsEnd() && v.deletions[name].GetIsRingLost() { // the ring may be seen again
		rings, _ := reconcile.RingSpecs(v.rings, v.streams[name])
		for _, ring := range rings {
			if ring != nil && v.liveTargets[ring.Target] == nil {
				guards = append(guards, clientv3.Compare(clientv3.CreateRevision(keyLiveTargets+ring.Target), "=", 0))
			}
		}
	}
	for i := range reconcile.MemberCount(v.streams[name]) {
		guards = append(guards, unchangedSince(v, keyRings+reconcile.MemberKey(name, i)))
	}
	return guards
}

// sameStream is the condition that a stream is the one of the view: not another of its name, and declared as it was.
func sameStream(v *view, name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(keyStreams+name), "=", v.streams[name].GetRevision())
}

// groupGuards are those of several actions of one stream, each once.
func groupGuards(v *view, actions []reconcile.Action) (guards []clientv3.Cmp) {
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
