package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Liveness keeps one etcd lease an agent. An agent that stops reporting disappears from state/live when its lease
// runs out; everything else that is known about it stays. An agent may report through any control instance, several at
// once even, and only what etcd says of its key counts: the mirror tells it, and etcd itself where the lease is to be
// another.
type Liveness struct {
	client  *clientv3.Client
	mirror  *state.Mirror
	ttl     time.Duration
	renewed sync.Map // by key: renewal
}

// NewLiveness makes a Liveness whose leases end after ttl.
func NewLiveness(client *clientv3.Client, mirror *state.Mirror, ttl time.Duration) *Liveness {
	return &Liveness{client: client, mirror: mirror, ttl: ttl}
}

// renewal is when a lease was last renewed here.
type renewal struct {
	lease clientv3.LeaseID
	at    time.Time
}

// renewalsPerLease is how often in its time a lease is renewed at most: agents report more often than that.
const renewalsPerLease = 5

// Touch says that an agent lives: it renews the lease under its key, or makes a new one when there is none or the key
// names an earlier process.
func (l *Liveness) Touch(ctx context.Context, key string, agent *api.Agent) error {
	if isAlive, err := l.renewKnown(ctx, key, agent); isAlive || err != nil {
		return err
	}
	for {
		got, err := l.client.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("read %s: %w", key, err)
		}
		if isAlive, err := l.renew(ctx, key, got.Kvs, agent); isAlive || err != nil {
			return err
		}
		if isDone, err := l.grant(ctx, key, got.Kvs, agent); isDone || err != nil {
			return err
		}
	}
}

// renewKnown renews the lease that the mirror shows under a key; false: etcd has to be asked.
func (l *Liveness) renewKnown(ctx context.Context, key string, agent *api.Agent) (bool, error) {
	now, _ := l.mirror.Load()
	lease := clientv3.LeaseID(now.Leases[key])
	if lease == clientv3.NoLease || !proto.Equal(now.LiveAgent(key), agent) {
		return false, nil
	}
	if last, ok := l.renewed.Load(key); ok && last.(renewal).lease == lease &&
		time.Since(last.(renewal).at) < l.ttl/renewalsPerLease {
		return true, nil
	}
	began := time.Now()
	isAlive, err := l.keepAlive(ctx, key, lease)
	if isAlive {
		l.renewed.Store(key, renewal{lease, began})
	}
	return isAlive, err
}

// renew is false when the agent needs a new lease.
func (l *Liveness) renew(ctx context.Context, key string, kvs []*mvccpb.KeyValue, agent *api.Agent) (bool, error) {
	if len(kvs) == 0 || kvs[0].Lease == int64(clientv3.NoLease) {
		return false, nil
	}
	known := new(api.Agent)
	if err := etcd.Decode(key, kvs[0].Value, known); err != nil || !proto.Equal(known, agent) {
		return false, nil // an unreadable value is written again
	}
	return l.keepAlive(ctx, key, clientv3.LeaseID(kvs[0].Lease))
}

// keepAlive is false when the lease has run out.
func (l *Liveness) keepAlive(ctx context.Context, key string, lease clientv3.LeaseID) (bool, error) {
	_, err := l.client.KeepAliveOnce(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("keep %s alive: %w", key, err)
	}
	return true, nil
}

// grant writes the key under a new lease, unless somebody else has written it since it was read: two calls at the
// same time must not leave the key under one lease and renew the other. False: look again.
func (l *Liveness) grant(ctx context.Context, key string, kvs []*mvccpb.KeyValue, agent *api.Agent) (bool, error) {
	value, err := etcd.Encode(agent)
	if err != nil {
		return false, err
	}
	lease, err := l.client.Grant(ctx, int64((l.ttl+time.Second-1)/time.Second))
	if err != nil {
		return false, fmt.Errorf("grant lease for %s: %w", key, err)
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", 0)
	if len(kvs) > 0 {
		unchanged = clientv3.Compare(clientv3.ModRevision(key), "=", kvs[0].ModRevision)
	}
	put, err := l.client.Txn(ctx).If(unchanged).Then(clientv3.OpPut(key, value, clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return false, fmt.Errorf("register %s: %w", key, err)
	}
	if !put.Succeeded {
		if _, err := l.client.Revoke(ctx, lease.ID); err != nil {
			return false, fmt.Errorf("give back lease for %s: %w", key, err)
		}
	}
	return put.Succeeded, nil
}
