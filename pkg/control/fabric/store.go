package fabric

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Store writes what is declared: single streams where there is space, and plans of many things.
type Store struct {
	client   *clientv3.Client
	mirror   *state.Mirror
	fresh    func() (*state.View, error) // the present view, unless it is known to be old
	creating chan struct{}               // holds one value while a stream is created
}

// NewStore makes a Store. fresh gives the present view, or an error while etcd cannot be followed.
func NewStore(client *clientv3.Client, mirror *state.Mirror, fresh func() (*state.View, error)) *Store {
	return &Store{client: client, mirror: mirror, fresh: fresh, creating: make(chan struct{}, 1)}
}

// StreamWith is a stream with another spec.
func StreamWith(have *api.Stream, spec *api.StreamSpec) *api.Stream {
	stream := proto.Clone(have).(*api.Stream)
	stream.Spec = spec
	return stream
}

// encodeStream leaves out the revision, which is etcd's to say.
func encodeStream(stream *api.Stream) (string, error) {
	stream = proto.Clone(stream).(*api.Stream)
	stream.Revision = 0
	return etcd.Encode(stream)
}

// Quota makes a transaction that takes of a quota without creating a stream one that others see as such: it writes the
// last id again, as it is.
type Quota struct {
	guards []clientv3.Cmp
	write  clientv3.Op
}

// AcquireQuota is for a transaction that was judged by what there was at a revision.
func AcquireQuota(ctx context.Context, client *clientv3.Client, since int64) (*Quota, error) {
	got, err := client.Get(ctx, etcd.KeyStreamID)
	if err != nil {
		return nil, fmt.Errorf("read the last stream id: %w", err)
	}
	last, guard, err := etcd.Counter(etcd.KeyStreamID, got.Kvs)
	if err != nil {
		return nil, err
	}
	return &Quota{
		append(spaceGuards(since, since), guard),
		clientv3.OpPut(etcd.KeyStreamID, strconv.FormatUint(uint64(last), 10)),
	}, nil
}

// UpdateStream writes a spec unless somebody else has since have was read, or has taken of a quota what this one takes.
func UpdateStream(ctx context.Context, client *clientv3.Client, have *api.Stream, spec *api.StreamSpec, taking *Quota,
) (revision int64, err error) {
	key := etcd.KeyStreams + spec.Name
	value, err := encodeStream(StreamWith(have, spec))
	if err != nil {
		return 0, err
	}
	guards, writes := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", have.Revision)},
		[]clientv3.Op{clientv3.OpPut(key, value)}
	if taking != nil {
		guards, writes = append(guards, taking.guards...), append(writes, taking.write)
	}
	return state.Commit(ctx, client, fmt.Sprintf("change stream %q", spec.Name),
		fmt.Sprintf("stream %q, or what its tenant has,", spec.Name), guards, writes)
}

// ApplyPlan writes a plan that was made of a view, batch by batch. Whatever somebody else has changed since the view
// ends it: what was written by then is as declared, and the same again goes on from there. Streams that somebody else
// creates meanwhile do not, as long as there is space for all.
func (s *Store) ApplyPlan(ctx context.Context, v *state.View, plan *Plan) (int64, error) {
	specs, err := applySpecs(ctx, s.client, v, plan)
	if err != nil {
		return 0, err
	}
	created, err := s.applyCreated(ctx, v, plan, specs)
	if err != nil {
		return 0, err
	}
	routed, err := applyRoutes(ctx, s.client, v, plan.routes, plan.ended)
	if err != nil {
		return 0, err
	}
	ended, err := endPruned(ctx, s.client, v, plan, max(v.Revision, routed))
	return max(specs, created, routed, ended), err
}

// applyCreated makes the streams that are new. written is the revision of what else of the plan has been written.
func (s *Store) applyCreated(ctx context.Context, v *state.View, plan *Plan, written int64) (revision int64, err error,
) {
	since := v.Revision // of the creations that space was judged by; a batch of our own takes none that was not
	if plan.IsRaised {
		since = max(since, written)
	}
	for rest := plan.Created; len(rest) > 0; {
		count := min(len(rest), etcd.BatchMax)
		var unused []clientv3.Cmp
		if plan.IsLimited { // a stream of somebody else may have taken what was left of a target or of a quota
			unused = spaceGuards(since, max(since, written))
		}
		revision, err = createBatch(ctx, s.client, rest[:count], unused)
		if errors.Is(err, ErrUsedMeanwhile) {
			now, err := s.judgeAgain(ctx, plan, rest, revision)
			if err != nil {
				return 0, err
			}
			since = now.Revision
			continue
		}
		if err != nil {
			return 0, err
		}
		since, rest = revision, rest[count:]
	}
	return revision, nil
}

// applySpecs writes what is declared of hosts and tenants, and streams that are there and declared otherwise.
func applySpecs(ctx context.Context, client *clientv3.Client, v *state.View, plan *Plan) (revision int64, err error) {
	var guards []clientv3.Cmp
	var writes []clientv3.Op
	put := func(key string, message proto.Message) error {
		value, err := etcd.Encode(message)
		guards, writes = append(guards, state.UnchangedSince(v, key)), append(writes, clientv3.OpPut(key, value))
		return err
	}
	for _, target := range plan.targets {
		if err := put(etcd.KeyTargetSpecs+target.Host, target); err != nil {
			return 0, err
		}
	}
	for _, drain := range plan.drains {
		if err := put(etcd.KeyDrainSpecs+drain.Host, drain); err != nil {
			return 0, err
		}
	}
	for _, tenant := range plan.tenants {
		value, err := etcd.Encode(tenant)
		if err != nil {
			return 0, err
		}
		guards, writes = append(guards, state.UnchangedSince(v, etcd.KeyTenants+tenant.Name)),
			append(writes, clientv3.OpPut(etcd.KeyTenants+tenant.Name, value))
	}
	for _, spec := range plan.updated {
		value, err := encodeStream(StreamWith(v.Streams[spec.Name], spec))
		if err != nil {
			return 0, err
		}
		guards, writes = append(guards, state.UnchangedSince(v, etcd.KeyStreams+spec.Name)),
			append(writes, clientv3.OpPut(etcd.KeyStreams+spec.Name, value))
	}
	for since := v.Revision; len(writes) > 0; since = revision {
		count := min(len(writes), etcd.BatchMax)
		batchGuards, batch := guards[:count:count], writes[:count:count]
		guards, writes = guards[count:], writes[count:]
		if plan.IsRaised {
			taking, err := AcquireQuota(ctx, client, since)
			if err != nil {
				return 0, err
			}
			batchGuards, batch = append(batchGuards, taking.guards...), append(batch, taking.write)
		}
		if revision, err = commitDeclared(ctx, client, batchGuards, batch); err != nil {
			return 0, err
		}
	}
	return revision, nil
}

// createBatch makes streams and gives them the next ids, in one transaction. Where that does not hold any more it is
// ErrUsedMeanwhile, and the revision that to look at.
func createBatch(ctx context.Context, client *clientv3.Client, specs []*api.StreamSpec, guards []clientv3.Cmp) (int64,
	error,
) {
	got, err := client.Get(ctx, etcd.KeyStreamID)
	if err != nil {
		return 0, fmt.Errorf("read the last stream id: %w", err)
	}
	last, guard, err := etcd.Counter(etcd.KeyStreamID, got.Kvs)
	if err != nil {
		return 0, err
	}
	guards = append(guards, guard)
	writes := []clientv3.Op{clientv3.OpPut(etcd.KeyStreamID, strconv.FormatUint(uint64(last)+uint64(len(specs)), 10))}
	for i, spec := range specs {
		_, value, err := newStream(spec, last+1+uint32(i))
		if err != nil {
			return 0, err
		}
		key := etcd.KeyStreams + spec.Name
		guards, writes = append(guards, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)),
			append(writes, clientv3.OpPut(key, value))
	}
	put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("create streams: %w", err)
	}
	if !put.Succeeded {
		return put.Header.Revision, ErrUsedMeanwhile
	}
	return put.Header.Revision, nil
}

func commitDeclared(ctx context.Context, client *clientv3.Client, guards []clientv3.Cmp, writes []clientv3.Op) (int64,
	error,
) {
	return state.Commit(ctx, client, "write what is declared", "the fabric", guards, writes)
}
