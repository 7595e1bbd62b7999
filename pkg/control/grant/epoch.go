package grant

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// areRingsChanged tells it beforehand: then who decides on them has to look again.
func areRingsChanged(ctx context.Context, client *clientv3.Client, v *state.View, name string) (bool, error) {
	done, err := client.Txn(ctx).If(state.RingsUnchanged(v, name)...).Commit()
	if err != nil {
		return false, fmt.Errorf("read rings of stream %q: %w", name, err)
	}
	return !done.Succeeded, nil
}

// NextEpoch persists and returns an epoch above every one granted before and above least. The grant that names it is
// written in the same transaction, so that what is known about a holder is never newer or older than its epoch; and so
// is what admit makes of the admissions of its rings with that epoch. The rings are those of the view: ErrRingsChanged
// when they no longer are, so that no epoch is granted for rings that others have taken the place of. What is known of
// the epoch before goes to the past ones; taken says why, when it is an operator who takes the stream. Without a holder
// it is an epoch for nobody: nothing is known of it but its number. It can be seen at the revision.
func NextEpoch(ctx context.Context, client *clientv3.Client, v *state.View, grant *api.Grant, least uint32, members int,
	admit func(member int, admission *api.Admission, epoch uint32) error, taken *Takeover,
) (granted *api.Grant, revision int64, err error) {
	key := etcd.KeyEpochs + grant.Stream
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(etcd.KeyDeletions+grant.Stream),
			clientv3.OpGet(etcd.KeyStreams+grant.Stream, clientv3.WithCountOnly()),
			clientv3.OpGet(etcd.KeyGrants+grant.Stream), clientv3.OpGet(etcd.KeyPastEpochs+grant.Stream)).Commit()
		if err != nil {
			return nil, 0, fmt.Errorf("read epoch of stream %q: %w", grant.Stream, err)
		}
		isStaying, err := state.NotDeleted(grant.Stream, got.Responses[1].GetResponseRange(),
			got.Responses[2].GetResponseRange())
		if err != nil {
			return nil, 0, err
		}
		last, guard, err := etcd.Counter(key, got.Responses[0].GetResponseRange().Kvs)
		if err != nil {
			return nil, 0, err
		}
		ended := last
		if last = max(last, least); last == math.MaxUint32 {
			return nil, 0, fmt.Errorf("stream %q: epochs are used up (%d)", grant.Stream, last)
		}
		granted = proto.Clone(grant).(*api.Grant)
		granted.Epoch = last + 1
		granted.GrantTime = timestamppb.New(time.Now())
		value, err := etcd.Encode(granted)
		if err != nil {
			return nil, 0, err
		}
		guards := append(state.RingsUnchanged(v, grant.Stream), guard, isStaying)
		writes := []clientv3.Op{clientv3.OpPut(key, strconv.FormatUint(uint64(granted.Epoch), 10))}
		if grant.Holder != nil {
			writes = append(writes, clientv3.OpPut(etcd.KeyGrants+grant.Stream, value))
		}
		if ended > 0 {
			past, err := withPast(got.Responses[4].GetResponseRange(),
				pastEpoch(v, ended, got.Responses[3].GetResponseRange(), granted, taken), granted.Stream)
			if err != nil {
				return nil, 0, err
			}
			writes = append(writes, past)
		}
		for i := range members {
			unchanged, write, err := AdmissionWrite(ctx, client, reconcile.MemberKey(grant.Stream, i),
				func(admission *api.Admission) error { return admit(i, admission, granted.Epoch) })
			if err != nil {
				return nil, 0, err
			}
			if write != nil {
				guards, writes = append(guards, unchanged), append(writes, *write)
			}
		}
		put, err := client.Txn(ctx).If(guards...).Then(writes...).Commit()
		if err != nil {
			return nil, 0, fmt.Errorf("persist epoch %d of stream %q: %w", granted.Epoch, grant.Stream, err)
		}
		if put.Succeeded {
			return granted, put.Header.Revision, nil
		}
		if isChanged, err := areRingsChanged(ctx, client, v, grant.Stream); err != nil || isChanged {
			return nil, 0, cmp.Or(err, ErrRingsChanged)
		}
	}
}

// ErrRingsChanged says that the rings of a stream are no longer those of the view by which was decided.
var ErrRingsChanged = refusal.ChangedMeanwhile("the stream, or one of its members,")
