package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// liveness keeps one etcd lease an agent. An agent that stops reporting disappears from state/live when its lease
// runs out; everything else that is known about it stays.
type liveness struct {
	client *clientv3.Client
	ttl    time.Duration

	mutex sync.Mutex
	known map[string]lease // by key
}

type lease struct {
	id    clientv3.LeaseID
	agent *api.Agent
}

func newLiveness(client *clientv3.Client, ttl time.Duration) *liveness {
	return &liveness{client: client, ttl: ttl, known: make(map[string]lease)}
}

// touch says that an agent lives. A lease made by an earlier control process is taken over from etcd, so that a restart
// of the control plane costs no agent its life.
func (l *liveness) touch(ctx context.Context, key string, agent *api.Agent) error {
	held, err := l.find(ctx, key)
	if err != nil {
		return err
	}
	if held.id != clientv3.NoLease && proto.Equal(held.agent, agent) {
		_, err := l.client.KeepAliveOnce(ctx, held.id)
		if err == nil {
			return nil
		}
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return fmt.Errorf("keep %s alive: %w", key, err)
		}
	}
	return l.grant(ctx, key, agent)
}

func (l *liveness) find(ctx context.Context, key string) (lease, error) {
	l.mutex.Lock()
	held, ok := l.known[key]
	l.mutex.Unlock()
	if ok {
		return held, nil
	}
	got, err := l.client.Get(ctx, key)
	if err != nil || len(got.Kvs) == 0 {
		return lease{}, err
	}
	agent := new(api.Agent)
	if err := decode(key, got.Kvs[0].Value, agent); err != nil {
		return lease{}, err
	}
	return lease{id: clientv3.LeaseID(got.Kvs[0].Lease), agent: agent}, nil
}

func (l *liveness) grant(ctx context.Context, key string, agent *api.Agent) error {
	value, err := encode(agent)
	if err != nil {
		return err
	}
	granted, err := l.client.Grant(ctx, int64((l.ttl+time.Second-1)/time.Second))
	if err != nil {
		return fmt.Errorf("grant lease for %s: %w", key, err)
	}
	if _, err := l.client.Put(ctx, key, value, clientv3.WithLease(granted.ID)); err != nil {
		return fmt.Errorf("register %s: %w", key, err)
	}
	l.mutex.Lock()
	l.known[key] = lease{id: granted.ID, agent: proto.Clone(agent).(*api.Agent)}
	l.mutex.Unlock()
	return nil
}
