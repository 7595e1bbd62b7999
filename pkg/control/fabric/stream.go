package fabric

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
)

// The functions with a client of etcd change the wanted state. Every change is one transaction that holds only if what
// it was decided on is still so; a lost race reads again. Nothing is answered before etcd has committed it.

// CreateStream returns the stream of that name, made now (isNew) or earlier, and the revision it can be seen at.
// With guards that do not hold it is ErrUsedMeanwhile, and the revision that to look at.
func CreateStream(ctx context.Context, client *clientv3.Client, spec *api.StreamSpec, guards ...clientv3.Cmp,
) (stream *api.Stream, isNew bool, revision int64, err error) {
	key := etcd.KeyStreams + spec.Name
	for {
		got, err := client.Txn(ctx).Then(clientv3.OpGet(key), clientv3.OpGet(etcd.KeyStreamID)).Commit()
		if err != nil {
			return nil, false, 0, fmt.Errorf("read stream %q: %w", spec.Name, err)
		}
		if kvs := got.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			stream := new(api.Stream)
			err := etcd.Decode(key, kvs[0].Value, stream)
			stream.Revision = kvs[0].ModRevision
			return stream, false, got.Header.Revision, err
		}
		last, guard, err := etcd.Counter(etcd.KeyStreamID, got.Responses[1].GetResponseRange().Kvs)
		if err != nil {
			return nil, false, 0, err
		}
		stream, value, err := newStream(spec, last+1)
		if err != nil {
			return nil, false, 0, err
		}
		put, err := client.Txn(ctx).
			If(append(guards, guard, clientv3.Compare(clientv3.CreateRevision(key), "=", 0))...).
			Then(clientv3.OpPut(key, value), clientv3.OpPut(etcd.KeyStreamID, strconv.FormatUint(uint64(last+1), 10))).
			Commit()
		if err != nil {
			return nil, false, 0, fmt.Errorf("create stream %q: %w", spec.Name, err)
		}
		if put.Succeeded {
			stream.Revision = put.Header.Revision
			return stream, true, put.Header.Revision, nil
		}
		if len(guards) > 0 {
			return nil, false, put.Header.Revision, ErrUsedMeanwhile
		}
	}
}

func newStream(spec *api.StreamSpec, id uint32) (*api.Stream, string, error) {
	salt, err := newSalt()
	if err != nil {
		return nil, "", err
	}
	stream := &api.Stream{Spec: spec, StreamId: id, Salt: salt, K: spec.Needed, CreateTime: timestamppb.New(time.Now())}
	value, err := etcd.Encode(stream)
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
