package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/control/tracing"
)

// lostBatchesMost is how many plans in a row may come too late before the leader asks whether it still leads.
const lostBatchesMost = 3

// PerformAll writes what was planned of a view and waits until the mirror shows it, so that the next plan knows of it.
// etcd.ErrLost: some of it did not hold any more.
func (r *Reconciler) PerformAll(ctx context.Context, planned *state.View, actions []reconcile.Action,
	guards []clientv3.Cmp,
) error {
	var together []reconcile.Action
	var ends []reconcile.Action
	for _, action := range actions {
		if action.IsEnd() {
			ends = append(ends, action)
		} else {
			together = append(together, action)
		}
	}
	err := r.performTogether(ctx, planned, inBatches(planned, together), guards)
	for _, action := range ends {
		if err != nil {
			return err
		}
		err = r.perform(ctx, planned, action, guards)
	}
	return err
}

func (r *Reconciler) performTogether(ctx context.Context, planned *state.View, batches []batch, guards []clientv3.Cmp,
) error {
	var mutex sync.Mutex
	var newest int64
	var failed error
	var workers sync.WaitGroup
	free := make(chan struct{}, etcd.BatchesAtOnce)
	for _, batch := range batches {
		free <- struct{}{}
		workers.Go(func() {
			defer func() { <-free }()
			revision, err := r.performBatch(ctx, planned, batch, guards)
			mutex.Lock()
			defer mutex.Unlock()
			newest = max(newest, revision)
			if failed == nil || errors.Is(failed, etcd.ErrLost) {
				failed = errors.Join(err, failed)
			}
		})
	}
	workers.Wait()
	return errors.Join(failed, r.Mirror.WaitRevision(ctx, newest))
}

// batch is what is written in one transaction, and what of the view it rests on.
type batch struct {
	actions []reconcile.Action
	guards  []clientv3.Cmp
}

// inBatches keeps the actions of a stream together, and each batch within what etcd takes.
func inBatches(planned *state.View, actions []reconcile.Action) (batches []batch) {
	free := 0
	for len(actions) > 0 {
		stream, count, listeners := actions[0].Stream(), 0, 0
		for count < len(actions) && actions[count].Stream() == stream {
			listeners += len(grant.AdmissionsOf(actions[count]))
			count++
		}
		guards := groupGuards(planned, actions[:count])
		weight := max(len(guards), count) + listeners
		if weight > free {
			batches, free = append(batches, batch{}), etcd.BatchMax
		}
		last := &batches[len(batches)-1]
		last.actions, last.guards = append(last.actions, actions[:count]...), append(last.guards, guards...)
		actions, free = actions[count:], free-weight
	}
	return batches
}

// performBatch writes some actions in one transaction.
func (r *Reconciler) performBatch(ctx context.Context, planned *state.View, batch batch, guards []clientv3.Cmp,
) (revision int64, err error) {
	for _, action := range batch.actions {
		_, span := tracing.Tracer.Start(ctx, "reconcile "+action.Verb(),
			trace.WithAttributes(attribute.String("farlog.stream", action.Stream())))
		defer func() { tracing.EndSpan(span, err) }()
	}
	guards, listeners, taken := slices.Concat(guards, batch.guards), grant.AdmissionChanges{}, map[string]bool{}
	var writes []clientv3.Op
	for _, action := range batch.actions {
		key, puts, err := actionWrites(planned, action)
		if err != nil {
			return 0, err
		}
		if len(puts) > 0 && taken[key] {
			continue // what is written of it now makes it planned again
		}
		taken[key] = true
		writes = append(writes, puts...)
		for member, change := range grant.AdmissionsOf(action) {
			listeners.Add(reconcile.MemberKey(action.Stream(), member), change)
		}
	}
	unchanged, puts, err := grant.AdmissionWrites(ctx, r.Client, listeners)
	if err != nil {
		return 0, err
	}
	writes = append(writes, puts...)
	if len(writes) == 0 {
		return 0, nil
	}
	done, err := r.Client.Txn(ctx).If(append(guards, unchanged...)...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("write %d actions: %w", len(batch.actions), err)
	}
	if !done.Succeeded {
		return done.Header.Revision, fmt.Errorf("write %d actions: %w", len(batch.actions), etcd.ErrLost)
	}
	for _, action := range batch.actions {
		r.logDecision(action)
	}
	return done.Header.Revision, nil
}
