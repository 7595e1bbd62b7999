package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// The functions with a client of etcd change the wanted state. Every change is one transaction that holds only if what it
// was decided on is still so; a lost race reads again. Nothing is answered before etcd has committed it.

// createStream returns the stream of that name, made now (isNew) or earlier, and the revision it can be seen at.
// With guards that do not hold it is errUsedMeanwhile, and the revision that to look at.
func createStream(ctx context.Context, client *clientv3.Client, spec *api.StreamSpec, guards ...clientv3.Cmp) (stream *api.Stream, isNew bool, revision int64, err error) {
	key := keyStreams + spec.Name
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(keyStreamID)).Commit()
		if err != nil {
			return nil, false, 0, fmt.Errorf("read stream %q: %w", spec.Name, err)
		}
		if kvs := got.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			stream := new(api.Stream)
			err := decode(key, kvs[0].Value, stream)
			stream.Revision = kvs[0].ModRevision
			return stream, false, got.Header.Revision, err
		}
		last, guard, err := counter(keyStreamID, got.Responses[1].GetResponseRange().Kvs)
		if err != nil {
			return nil, false, 0, err
		}
		stream, value, err := newStream(spec, last+1)
		if err != nil {
			return nil, false, 0, err
		}
		put, err := client.Txn(ctx).
			If(append(guards, guard, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))...).
			Then(clientv3.OpPut(key, value), clientv3.OpPut(keyStreamID, strconv.FormatUint(uint64(last+1), 10))).
			Commit()
		if err != nil {
			return nil, false, 0, fmt.Errorf("create stream %q: %w", spec.Name, err)
		}
		if put.Succeeded {
			stream.Revision = put.Header.Revision
			return stream, true, put.Header.Revision, nil
		}
		if len(guards) > 0 {
			return nil, false, put.Header.Revision, errUsedMeanwhile
		}
	}
}

// nextEpoch persists and returns an epoch above every one granted before and above least. The grant that names it is
// written in the same transaction, so that what is known about a holder is never newer or older than its epoch; and so is what admit
// makes of the admissions of its rings with that epoch. The rings are those of the view: errRingsChanged when they no longer are, so that no epoch is granted for rings that others
// have taken the place of. What is known of the epoch before goes to the past ones; taken says why, when it is an operator who takes the stream. Without a holder it is an epoch for nobody: nothing is known of it but its number. It can be seen at the revision.
func nextEpoch(ctx context.Context, client *clientv3.Client, v *view, grant *api.Grant, least uint32, members int, admit func(member int, admission *api.Admission, epoch uint32) error,
	taken *succession) (granted *api.Grant, revision int64, err error) {
	key := keyEpochs + grant.Stream
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(keyDeletions+grant.Stream), clientv3.OpGet(keyStreams+grant.Stream, clientv3.WithCountOnly()),
			clientv3.OpGet(keyGrants+grant.Stream), clientv3.OpGet(keyPast+grant.Stream)).Commit()
		if err != nil {
			return nil, 0, fmt.Errorf("read epoch of stream %q: %w", grant.Stream, err)
		}
		isStaying, err := stays(grant.Stream, got.Responses[1].GetResponseRange(), got.Responses[2].GetResponseRange())
		if err != nil {
			return nil, 0, err
		}
		last, guard, err := counter(key, got.Responses[0].GetResponseRange().Kvs)
		if err != nil {
			return nil, 0, err
		}
		ended := last
		if last = max(last, least); last == math.MaxUint32 {
			return nil, 0, fmt.Errorf("stream %q: epochs are used up (%d)", grant.Stream, last)
		}
		granted = proto.Clone(grant).(*api.Grant)
		granted.Epoch = last + 1
		granted.Granted = timestamppb.New(time.Now())
		value, err := encode(granted)
		if err != nil {
			return nil, 0, err
		}
		guards := append(ringsUnchanged(v, grant.Stream), guard, isStaying)
		writes := []clientv3.Op{clientv3.OpPut(key, strconv.FormatUint(uint64(granted.Epoch), 10))}
		if grant.Holder != nil {
			writes = append(writes, clientv3.OpPut(keyGrants+grant.Stream, value))
		}
		if ended > 0 {
			past, err := withPast(got.Responses[4].GetResponseRange(), v.pastEpoch(ended, got.Responses[3].GetResponseRange(), granted, taken), granted.Stream)
			if err != nil {
				return nil, 0, err
			}
			writes = append(writes, past)
		}
		for i := range members {
			unchanged, write, err := admissionWrite(ctx, client, reconcile.MemberKey(grant.Stream, i), func(admission *api.Admission) error { return admit(i, admission, granted.Epoch) })
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
			return nil, 0, cmp.Or(err, errRingsChanged)
		}
	}
}

var errRingsChanged = changedMeanwhile("the stream, or one of its members,")

func newStream(spec *api.StreamSpec, id uint32) (*api.Stream, string, error) {
	salt, err := newSalt()
	if err != nil {
		return nil, "", err
	}
	stream := &api.Stream{Spec: spec, StreamId: id, Salt: salt, K: spec.Needed, Created: timestamppb.New(time.Now())}
	value, err := encode(stream)
	return stream, value, err
}

// newSalt is 64 random bits, not zero in the low half (docs/reference/format.md §1).
func newSalt() (uint64, error) {
	var raw [8]byte
	for {
		if _, err := rand.Read(raw[:]); err != nil {
			return 0, fmt.Errorf("draw salt: %w", err)
		}
		if salt := binary.LittleEndian.Uint64(raw[:]); uint32(salt) != 0 {
			return salt, nil
		}
	}
}

// counter reads a decimal counter (absent = 0) and makes the condition that nobody has changed it since.
func counter(key string, kvs []*mvccpb.KeyValue) (uint32, clientv3.Cmp, error) {
	if len(kvs) == 0 {
		return 0, clientv3.Compare(clientv3.CreateRevision(key), "=", 0), nil
	}
	value, err := strconv.ParseUint(string(kvs[0].Value), 10, 32)
	if err != nil {
		return 0, clientv3.Cmp{}, fmt.Errorf("etcd key %q holds %q: expected a decimal number", key, kvs[0].Value)
	}
	return uint32(value), clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision), nil
}
