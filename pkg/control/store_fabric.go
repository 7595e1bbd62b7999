package control

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// applyBatch is how many things are written at once: etcd takes 128 operations a transaction unless it was told otherwise.
const applyBatch = 100

// streamWith is a stream with another spec.
func streamWith(have *api.Stream, spec *api.StreamSpec) *api.Stream {
	stream := proto.Clone(have).(*api.Stream)
	stream.Spec = spec
	return stream
}

// encodeStream leaves out the revision, which is etcd's to say.
func encodeStream(stream *api.Stream) (string, error) {
	stream = proto.Clone(stream).(*api.Stream)
	stream.Revision = 0
	return encode(stream)
}

// updateStream writes a spec unless somebody else has since have was read.
func (s specStore) updateStream(ctx context.Context, have *api.Stream, spec *api.StreamSpec) (revision int64, err error) {
	key := keyStreams + spec.Name
	value, err := encodeStream(streamWith(have, spec))
	if err != nil {
		return 0, err
	}
	put, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", have.Revision)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil {
		return 0, fmt.Errorf("change stream %q: %w", spec.Name, err)
	}
	if !put.Succeeded {
		return 0, changedMeanwhile(fmt.Sprintf("stream %q", spec.Name))
	}
	return put.Header.Revision, nil
}

// apply writes a plan that was made of a view, batch by batch. Whatever somebody else has changed since the view ends it: what was written by then is as
// declared, and the same again goes on from there.
func (s specStore) apply(ctx context.Context, v *view, plan *fabricPlan) (revision int64, err error) {
	var guards []clientv3.Cmp
	var writes []clientv3.Op
	put := func(key string, message proto.Message) error {
		value, err := encode(message)
		guards, writes = append(guards, unchangedSince(v, key)), append(writes, clientv3.OpPut(key, value))
		return err
	}
	for _, target := range plan.targets {
		if err := put(keyTargetSpecs+target.Host, target); err != nil {
			return 0, err
		}
	}
	for _, drain := range plan.drains {
		if err := put(keyDrainSpecs+drain.Host, drain); err != nil {
			return 0, err
		}
	}
	for _, tenant := range plan.tenants {
		value, err := encode(tenant)
		if err != nil {
			return 0, err
		}
		guards, writes = append(guards, unchangedSince(v, keyTenants+tenant.Name)), append(writes, clientv3.OpPut(keyTenants+tenant.Name, value))
	}
	for _, spec := range plan.updated {
		value, err := encodeStream(streamWith(v.streams[spec.Name], spec))
		if err != nil {
			return 0, err
		}
		guards, writes = append(guards, unchangedSince(v, keyStreams+spec.Name)), append(writes, clientv3.OpPut(keyStreams+spec.Name, value))
	}
	for len(writes) > 0 {
		count := min(len(writes), applyBatch)
		if revision, err = s.commit(ctx, guards[:count], writes[:count]); err != nil {
			return 0, err
		}
		guards, writes = guards[count:], writes[count:]
	}
	since := v.revision
	for batch := range slices.Chunk(plan.created, applyBatch) {
		var unused []clientv3.Cmp
		if plan.isLimited { // a stream of somebody else may have taken what was left of a quota
			unused = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(keyStreamID), "<", since+1)}
		}
		if revision, err = s.createBatch(ctx, batch, unused); err != nil {
			return 0, err
		}
		since = revision
	}
	routed, err := s.applyRoutes(ctx, v, plan.routes, plan.ended)
	if err != nil {
		return 0, err
	}
	ended, err := s.endPruned(ctx, v, plan, max(v.revision, routed))
	return max(revision, routed, ended), err
}

// createBatch makes streams and gives them the next ids, in one transaction.
func (s specStore) createBatch(ctx context.Context, specs []*api.StreamSpec, guards []clientv3.Cmp) (int64, error) {
	got, err := s.client.Get(ctx, keyStreamID)
	if err != nil {
		return 0, fmt.Errorf("read the last stream id: %w", err)
	}
	last, guard, err := counter(keyStreamID, got.Kvs)
	if err != nil {
		return 0, err
	}
	guards = append(guards, guard)
	writes := []clientv3.Op{clientv3.OpPut(keyStreamID, strconv.FormatUint(uint64(last)+uint64(len(specs)), 10))}
	for i, spec := range specs {
		_, value, err := newStream(spec, last+1+uint32(i))
		if err != nil {
			return 0, err
		}
		key := keyStreams + spec.Name
		guards, writes = append(guards, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)), append(writes, clientv3.OpPut(key, value))
	}
	return s.commit(ctx, guards, writes)
}

func (s specStore) commit(ctx context.Context, guards []clientv3.Cmp, writes []clientv3.Op) (int64, error) {
	put, err := s.client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("write what is declared: %w", err)
	}
	if !put.Succeeded {
		return 0, changedMeanwhile("the fabric")
	}
	return put.Header.Revision, nil
}

func unchangedSince(v *view, key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "<", v.revision+1)
}
