package report

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
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
	recorded map[string]string // SHA-256 of the base as etcd has it, by stream, as far as this instance knows
}

// BaseNews is a base that is to be recorded.
type BaseNews struct {
	Stream string
	Base   *api.StoreBase
}

// digest is the SHA-256 as etcd has it.
func (n BaseNews) digest() string { return hex.EncodeToString(n.Base.Sha256) }

// NewBases makes a Bases.
func NewBases(client *clientv3.Client, mirror *state.Mirror) *Bases {
	return &Bases{client: client, mirror: mirror, recorded: map[string]string{}}
}

// Take takes the bases out of the report of a drain, and gives those of the streams that it is assigned. It calls
// nobody.
func (b *Bases) Take(report *api.DrainState) (bases []BaseNews) {
	now, _ := b.mirror.Load()
	for _, progress := range report.Progress {
		base, assignment := progress.Base, now.Assignments[progress.Stream]
		progress.Base = nil // it is not kept
		if base != nil && assignment.GetDrain() == report.GetAgent().GetId() {
			bases = append(bases, BaseNews{progress.Stream, base})
		}
	}
	return bases
}

// Unrecorded gives the first of the bases that are to be recorded, at most so many. isRest: there may be more.
func (b *Bases) Unrecorded(ctx context.Context, bases []BaseNews, most int) (news []BaseNews, isRest bool, err error) {
	bases = b.withoutRecorded(bases)
	for batch := range slices.Chunk(bases, etcd.BatchMax) {
		if len(news) >= most {
			return news[:most], true, nil
		}
		if err := b.load(ctx, batch); err != nil {
			return nil, true, err
		}
		news = append(news, b.withoutRecorded(batch)...)
	}
	return news[:min(most, len(news))], len(news) > most, nil
}

func (b *Bases) withoutRecorded(bases []BaseNews) (news []BaseNews) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, one := range bases {
		if b.recorded[one.Stream] != one.digest() {
			news = append(news, one)
		}
	}
	return news
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
			b.recorded[one.Stream] = string(kv.Value)
		}
	}
	return nil
}

// Record makes the events of some bases durable, and that they are recorded, at once. Of a stream that is deleted
// meanwhile only the event stays.
func (b *Bases) Record(ctx context.Context, batch []BaseNews, events []clientv3.Op) error {
	writes := slices.Clone(events)
	for _, one := range batch {
		isThere := clientv3.Compare(clientv3.CreateRevision(etcd.KeyStreams+one.Stream), ">", 0)
		note := clientv3.OpPut(etcd.KeyPastBases+one.Stream, one.digest())
		writes = append(writes, clientv3.OpTxn([]clientv3.Cmp{isThere}, []clientv3.Op{note}, nil))
	}
	if _, err := b.client.Txn(ctx).Then(writes...).Commit(); err != nil {
		return fmt.Errorf("record the bases of stores: %w", err)
	}
	now, _ := b.mirror.Load()
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, one := range batch {
		b.recorded[one.Stream] = one.digest()
	}
	if len(b.recorded) > len(now.Streams) { // some are of streams that were deleted
		maps.DeleteFunc(b.recorded, func(stream, _ string) bool { return now.Streams[stream] == nil })
	}
	return nil
}
