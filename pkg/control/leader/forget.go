package leader

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Agents come and go: hosts are renamed, daemons get other directories, and each leaves a line behind. What the last
// one of such said is forgotten when it holds nothing.
const (
	// since its last report that is kept: who looks into what ended in the night still finds it
	AgentKept = 24 * time.Hour
	// AgentGoneLeast is how long the leader itself has seen nobody live there. A report with nothing new is not kept,
	// and may so be old while its agent lives.
	AgentGoneLeast = 10 * time.Minute
)

// Forget drops what agents told that have ended and hold nothing, and hosts that are silent. gone is since when each
// was seen to be gone, by key.
func (r *Reconciler) Forget(ctx context.Context, gone map[string]time.Time, now time.Time, guards []clientv3.Cmp,
) error {
	seen, _ := r.Mirror.Load()
	for key, alive := range forgettable(seen, gone, now) {
		holds := append(guards[:len(guards):len(guards)], state.UnchangedSince(seen, key))
		if alive != "" {
			holds = append(holds, clientv3.Compare(clientv3.CreateRevision(alive), "=", 0))
		}
		gone := []clientv3.Op{clientv3.OpDelete(key)}
		switch prefix, id := etcd.CutKey(key); prefix {
		case etcd.KeyTargets:
			gone = append(gone, clientv3.OpDelete(etcd.KeyTargetRings+id+"/", clientv3.WithPrefix()))
		case etcd.KeyDrains:
			gone = append(gone, clientv3.OpDelete(etcd.KeyDrainStreams+id+"/", clientv3.WithPrefix()))
		}
		put, err := r.Client.Txn(ctx).If(holds...).Then(gone...).Commit()
		if err != nil {
			return fmt.Errorf("forget %s: %w", key, err)
		}
		if put.Succeeded {
			r.Logger.Info("removed an agent that ended long ago and holds nothing", "key", key)
		}
	}
	return nil
}

// forgettable are the keys of what may be forgotten, and of the lives that must not be there then.
func forgettable(v *state.View, gone map[string]time.Time, now time.Time) map[string]string {
	keys := map[string]string{}
	look := func(key, alive string, isHeld bool, reported time.Time) {
		if isHeld {
			delete(gone, key)
			return
		}
		if _, isKnown := gone[key]; !isKnown {
			gone[key] = now
		}
		if now.Sub(gone[key]) >= AgentGoneLeast && now.Sub(reported) >= AgentKept {
			keys[key] = alive
			delete(gone, key)
		}
	}
	holders := ringHolders(v)
	for id, state := range v.Targets {
		look(etcd.KeyTargets+id, etcd.KeyLiveTargets+id, v.LiveTargets[id] != nil || holders[id] ||
			len(state.Rings) > 0, state.GetReportTime().AsTime())
	}
	for id, state := range v.Drains {
		look(etcd.KeyDrains+id, etcd.KeyLiveDrains+id, v.LiveDrains[id] != nil || len(v.GivenTo.ByAgent[id]) > 0,
			state.GetReportTime().AsTime())
	}
	for host, state := range v.Hosts {
		look(etcd.KeyHosts+host, "", now.Sub(state.GetReportTime().AsTime()) < AgentKept,
			state.GetReportTime().AsTime())
	}
	return keys
}

// ringHolders are the targets that have a ring, or had one whose place another has taken: what that one last told says
// what may be lost.
func ringHolders(v *state.View) map[string]bool {
	holders := map[string]bool{}
	for _, ring := range v.Rings {
		holders[ring.Target] = true
		if former := ring.GetReplacement().GetFormerTarget(); former != "" {
			holders[former] = true
		}
	}
	return holders
}
