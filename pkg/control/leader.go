package control

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/farlog/farlog/pkg/control/reconcile"
)

// leaderRetryDelay is how long an instance waits after it lost the leadership or could not change etcd.
const leaderRetryDelay = 500 * time.Millisecond

// reconciler carries out what reconcile.Plan says, on one control instance at a time.
type reconciler struct {
	client   *clientv3.Client
	mirror   *mirror
	logger   *slog.Logger
	instance string
	ttl      time.Duration
	isSole   bool // the lock of the embedded etcd's directory is the election
}

// run reconciles until ctx is done.
func (r *reconciler) run(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		if r.isSole {
			err = r.lead(ctx, nil)
		} else {
			err = r.campaign(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.logger.Warn("reconciling stopped, will try again", "error", err)
		select {
		case <-time.After(leaderRetryDelay):
		case <-ctx.Done():
		}
	}
}

// campaign leads while the election is won. The session's lease ends a leader that cannot be reached.
func (r *reconciler) campaign(ctx context.Context) error {
	session, err := concurrency.NewSession(r.client, concurrency.WithTTL(int(r.ttl/time.Second)), concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("open election session: %w", err)
	}
	defer session.Close()
	election := concurrency.NewElection(session, keyLeader)
	if err := election.Campaign(ctx, r.instance); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	r.logger.Info("leading", "instance", r.instance)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	// A leader that was replaced without knowing it can change nothing: every transaction holds only while its
	// election key is there.
	guard := clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())
	return r.lead(ctx, []clientv3.Cmp{guard})
}

func (r *reconciler) lead(ctx context.Context, guards []clientv3.Cmp) error {
	for {
		now, changed := r.mirror.load()
		for _, action := range reconcile.Plan(now.world()) {
			if err := r.perform(ctx, action, guards); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// perform writes one action and waits until the mirror shows it, so that the next plan knows of it.
func (r *reconciler) perform(ctx context.Context, action reconcile.Action, guards []clientv3.Cmp) error {
	key, value, err := actionKey(action)
	if err != nil {
		return err
	}
	if action.Place != nil {
		guards = append(guards[:len(guards):len(guards)], clientv3.Compare(clientv3.CreateRevision(key), "=", 0))
	}
	done, err := r.client.Txn(ctx).If(guards...).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if !done.Succeeded {
		return fmt.Errorf("write %s: another instance leads or was first", key)
	}
	r.logDecision(action)
	return r.mirror.waitRevision(ctx, done.Header.Revision)
}

func (r *reconciler) logDecision(action reconcile.Action) {
	if ring := action.Place; ring != nil {
		r.logger.Info("placed ring", "stream", ring.Stream.Spec.Name, "target", ring.Target)
		return
	}
	if ring := action.Bind; ring != nil {
		r.logger.Info("bound stream to its ring", "stream", ring.Stream.Spec.Name, "ring_uuid", fmt.Sprintf("%x", ring.RingUuid))
		return
	}
	to := action.Assign
	r.logger.Info("assigned drain", "stream", to.Stream, "drain", to.Drain, "store", to.StoreDir, "generation", to.Generation)
}

func actionKey(action reconcile.Action) (key, value string, err error) {
	if action.Place != nil {
		value, err = encode(action.Place)
		return keyRings + action.Place.Stream.Spec.Name, value, err
	}
	if action.Bind != nil {
		value, err = encode(action.Bind)
		return keyRings + action.Bind.Stream.Spec.Name, value, err
	}
	value, err = encode(action.Assign)
	return keyAssignments + action.Assign.Stream, value, err
}

func (v *view) world() reconcile.World {
	return reconcile.World{
		Streams: v.streams, Epochs: v.epochs, Rings: v.rings, Assignments: v.assignments,
		LiveTargets: v.liveTargets, LiveDrains: v.liveDrains, Targets: v.targets,
	}
}
