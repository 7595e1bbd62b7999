package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// batchesAtOnce is how many transactions the leader lets etcd work on: one write to the disk is several's.
const batchesAtOnce = 4

// lostBatchesMost is how many plans in a row may come too late before the leader asks whether it still leads.
const lostBatchesMost = 3

var errLost = errors.New("another instance leads, or was first")

// performAll writes what was planned of a view and waits until the mirror shows it, so that the next plan knows of it. errLost: some of it did not hold any more.
func (r *reconciler) performAll(ctx context.Context, planned *view, actions []reconcile.Action, guards []clientv3.Cmp) error {
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

func (r *reconciler) performTogether(ctx context.Context, planned *view, batches []batch, guards []clientv3.Cmp) error {
	var mutex sync.Mutex
	var newest int64
	var failed error
	var workers sync.WaitGroup
	free := make(chan struct{}, batchesAtOnce)
	for _, batch := range batches {
		free <- struct{}{}
		workers.Go(func() {
			defer func() { <-free }()
			revision, err := r.performBatch(ctx, planned, batch, guards)
			mutex.Lock()
			defer mutex.Unlock()
			newest = max(newest, revision)
			if failed == nil || errors.Is(failed, errLost) {
				failed = errors.Join(err, failed)
			}
		})
	}
	workers.Wait()
	return errors.Join(failed, r.mirror.waitRevision(ctx, newest))
}

// batch is what is written in one transaction, and what of the view it rests on.
type batch struct {
	actions []reconcile.Action
	guards  []clientv3.Cmp
}

// inBatches keeps the actions of a stream together, and each batch within what etcd takes.
func inBatches(planned *view, actions []reconcile.Action) (batches []batch) {
	free := 0
	for len(actions) > 0 {
		stream, count, doors := actions[0].Stream(), 0, 0
		for count < len(actions) && actions[count].Stream() == stream {
			doors += len(admissionsOf(actions[count]))
			count++
		}
		guards := groupGuards(planned, actions[:count])
		weight := max(len(guards), count) + doors
		if weight > free {
			batches, free = append(batches, batch{}), applyBatch
		}
		last := &batches[len(batches)-1]
		last.actions, last.guards = append(last.actions, actions[:count]...), append(last.guards, guards...)
		actions, free = actions[count:], free-weight
	}
	return batches
}

// performBatch writes some actions in one transaction.
func (r *reconciler) performBatch(ctx context.Context, planned *view, batch batch, guards []clientv3.Cmp) (revision int64, err error) {
	for _, action := range batch.actions {
		_, span := tracer.Start(ctx, "reconcile "+action.Verb(), trace.WithAttributes(attribute.String("farlog.stream", action.Stream())))
		defer func() { endSpan(span, err) }()
	}
	guards, doors, taken := slices.Concat(guards, batch.guards), doorChanges{}, map[string]bool{}
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
		for member, change := range admissionsOf(action) {
			doors.add(reconcile.MemberKey(action.Stream(), member), change)
		}
	}
	unchanged, puts, err := admissionWrites(ctx, r.client, doors)
	if err != nil {
		return 0, err
	}
	writes = append(writes, puts...)
	if len(writes) == 0 {
		return 0, nil
	}
	done, err := r.client.Txn(ctx).If(append(guards, unchanged...)...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("write %d actions: %w", len(batch.actions), err)
	}
	if !done.Succeeded {
		return done.Header.Revision, fmt.Errorf("write %d actions: %w", len(batch.actions), errLost)
	}
	for _, action := range batch.actions {
		r.logDecision(action)
	}
	return done.Header.Revision, nil
}

// doorChanges are what is to be changed at the doors of rings, by their MemberKey, one after the other.
type doorChanges map[string][]func(*api.Admission) error

func (d doorChanges) add(name string, change func(*api.Admission) error) {
	d[name] = append(d[name], change)
}

// admissionWrites is admissionWrite for many rings, read in one transaction.
func admissionWrites(ctx context.Context, client *clientv3.Client, doors doorChanges) (unchanged []clientv3.Cmp, writes []clientv3.Op, err error) {
	names := slices.Sorted(maps.Keys(doors))
	var reads []clientv3.Op
	for _, name := range names {
		reads = append(reads, clientv3.OpGet(keyAdmissions+name))
	}
	if len(reads) == 0 {
		return nil, nil, nil
	}
	got, err := client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, nil, fmt.Errorf("read %d admissions: %w", len(reads), err)
	}
	for i, name := range names {
		guard, write, err := changeAdmission(name, got.Responses[i].GetResponseRange().Kvs, func(admission *api.Admission) error {
			for _, change := range doors[name] {
				if err := change(admission); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if write != nil {
			unchanged, writes = append(unchanged, guard), append(writes, *write)
		}
	}
	return unchanged, writes, nil
}
