package report

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Bases come with the reports of drains: they say that segments of a stream were removed from its store. Each goes into
// the audit stream; etcd has the last one that did, so that no other instance, and no restart, records it again.

// Bases finds the bases that the audit stream has not got.
type Bases struct {
	client *clientv3.Client
	mirror *state.Mirror

	mutex    sync.Mutex
	recorded map[string][]byte // SHA-256 of the base, by stream, as far as this instance knows
}

// BaseNews is a base that is to be recorded.
type BaseNews struct {
	Stream string
	Base   *api.StoreBase
}

// NewBases makes a Bases.
func NewBases(client *clientv3.Client, mirror *state.Mirror) *Bases {
	return &Bases{client: client, mirror: mirror, recorded: map[string][]byte{}}
}

// News takes the bases out of the report of a drain, and gives those that are to be recorded, of the streams that it is
// assigned.
func (b *Bases) News(ctx context.Context, report *api.DrainState) (news []BaseNews, err error) {
	now, _ := b.mirror.Load()
	for _, progress := range report.Progress {
		base, assignment := progress.Base, now.Assignments[progress.Stream]
		progress.Base = nil // it is not kept
		if base == nil || assignment.GetDrain() != report.GetAgent().GetId() || b.isRecorded(progress.Stream, base) {
			continue
		}
		news = append(news, BaseNews{progress.Stream, base})
	}
	for batch := range slices.Chunk(news, etcd.BatchMax) {
		if err := b.load(ctx, batch); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(news, func(one BaseNews) bool { return b.isRecorded(one.Stream, one.Base) }), nil
}

func (b *Bases) isRecorded(stream string, base *api.StoreBase) bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return bytes.Equal(b.recorded[stream], base.Sha256)
}

// load learns what any instance has recorded.
func (b *Bases) load(ctx context.Context, batch []BaseNews) error {
	reads := make([]clientv3.Op, len(batch))
	for i, one := range batch {
		reads[i] = clientv3.OpGet(etcd.KeyPastBases + one.Stream)
	}
	got, err := b.client.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return fmt.Errorf("read which bases of stores are recorded: %w", err)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for i, one := range batch {
		for _, kv := range got.Responses[i].GetResponseRange().Kvs {
			b.recorded[one.Stream] = kv.Value
		}
	}
	return nil
}

// NoteRecorded is called when the audit stream will have a base, whatever happens.
func (b *Bases) NoteRecorded(ctx context.Context, one BaseNews) error {
	if _, err := b.client.Put(ctx, etcd.KeyPastBases+one.Stream, string(one.Base.Sha256)); err != nil {
		return fmt.Errorf("note that a base of a store is recorded: %w", err)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.recorded[one.Stream] = one.Base.Sha256
	return nil
}
