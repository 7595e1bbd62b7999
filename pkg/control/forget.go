package control

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/farlog/farlog/pkg/control/etcd"
)

// Agents come and go: hosts are renamed, daemons get other directories, and each leaves a line behind. What the last one of such said is forgotten when it holds nothing.
const (
	agentKept = 24 * time.Hour // since its last report that is kept: who looks into what ended in the night still finds it
	// agentGoneLeast is how long the leader itself has seen nobody live there. A report with nothing new is not kept, and may so be old while its agent lives.
	agentGoneLeast = 10 * time.Minute
)

// forget drops what agents told that have ended and hold nothing, and hosts that are silent. gone is since when each was seen to be gone, by key.
func (r *reconciler) forget(ctx context.Context, gone map[string]time.Time, now time.Time, guards []clientv3.Cmp) error {
	seen, _ := r.mirror.load()
	for key, alive := range seen.forgettable(gone, now) {
		holds := append(guards[:len(guards):len(guards)], unchangedSince(seen, key))
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
		put, err := r.client.Txn(ctx).If(holds...).Then(gone...).Commit()
		if err != nil {
			return fmt.Errorf("forget %s: %w", key, err)
		}
		if put.Succeeded {
			r.logger.Info("forgot who has long ended and holds nothing", "key", key)
		}
	}
	return nil
}

// forgettable are the keys of what may be forgotten, and of the lives that must not be there then.
func (v *view) forgettable(gone map[string]time.Time, now time.Time) map[string]string {
	keys := map[string]string{}
	look := func(key, alive string, isHeld bool, reported time.Time) {
		if isHeld {
			delete(gone, key)
			return
		}
		if _, isKnown := gone[key]; !isKnown {
			gone[key] = now
		}
		if now.Sub(gone[key]) >= agentGoneLeast && now.Sub(reported) >= agentKept {
			keys[key] = alive
			delete(gone, key)
		}
	}
	holders := v.ringHolders()
	for id, state := range v.targets {
		look(etcd.KeyTargets+id, etcd.KeyLiveTargets+id, v.liveTargets[id] != nil || holders[id] || len(state.Rings) > 0, state.GetReported().AsTime())
	}
	for id, state := range v.drains {
		look(etcd.KeyDrains+id, etcd.KeyLiveDrains+id, v.liveDrains[id] != nil || len(v.givenTo.of[id]) > 0, state.GetReported().AsTime())
	}
	for host, state := range v.hosts {
		look(etcd.KeyHosts+host, "", now.Sub(state.GetReported().AsTime()) < agentKept, state.GetReported().AsTime())
	}
	return keys
}

// ringHolders are the targets that have a ring, or had one whose place another has taken: what that one last told says what may be lost.
func (v *view) ringHolders() map[string]bool {
	holders := map[string]bool{}
	for _, ring := range v.rings {
		holders[ring.Target] = true
		if former := ring.GetReplacement().GetFormerTarget(); former != "" {
			holders[former] = true
		}
	}
	return holders
}
