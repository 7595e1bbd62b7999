package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/leader"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

func (i *instance) view() *state.View {
	now, _ := i.server.mirror.Load()
	return now
}

// wanted is what etcd has of what is wanted, by key: the revisions.
func (i *instance) wanted() map[string]int64 {
	i.t.Helper()
	got, err := i.etcd.Client().Get(i.context(), etcd.KeyRoot+"spec/", clientv3.WithPrefix())
	if err != nil {
		i.t.Fatal(err)
	}
	keys := map[string]int64{}
	for _, kv := range got.Kvs {
		keys[string(kv.Key)] = kv.ModRevision
	}
	return keys
}

// What a leader plans by a view that is behind does nothing to a stream that was deleted since and made again under its
// name: whatever the action, and whoever leads.
func TestLeader_PlanOfTheStreamBefore(t *testing.T) {
	t.Parallel()
	one := startInstance(t, etcdtest.Open(t, t.TempDir()), true)
	leader := &leader.Reconciler{
		Client: one.etcd.Client(), Mirror: one.server.mirror,
		Logger: slog.New(slog.DiscardHandler),
	}
	const name = "desk7/orders"
	stream := one.create(name)
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.reportDrain("d1")
	one.until("it is drained", func() bool { return one.status(name).Assignment != nil })
	old := map[string]*state.View{"drained": one.view()}
	spec, given := one.view().Rings[name], one.view().Assignments[name]
	if err := one.delete(name); err != nil {
		t.Fatal(err)
	}
	old["being deleted"] = one.view()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.Closed, r.EpochMin = true, 2 }))
	one.until("nobody drains it", func() bool { return one.status(name).Assignment == nil })
	old["retired"] = one.view()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) {
		r.RingUuid, r.Closed, r.Removed = nil, true,
			true
	}))
	one.until("it is gone", func() bool { return one.view().Streams[name] == nil })
	try := func(now string) {
		before := one.wanted()
		for was, planned := range old {
			for _, action := range []reconcile.Action{
				{Place: spec},
				{Renew: spec},
				{Bind: spec},
				{Assign: given},
				{Keep: &reconcile.Writer{Stream: name, Epoch: 1}},
				{Retire: name},
				{Forget: name},
			} {
				if action.IsEnd() && planned.Deletions[name] == nil {
					continue
				}
				err := leader.PerformAll(one.context(), planned, []reconcile.Action{action}, nil)
				if after := one.wanted(); !maps.Equal(before, after) {
					t.Fatalf("%s of the stream that was %s, now %s: %v; it changed\n%v\nto\n%v", action.Verb(), was,
						now, err, before, after)
				}
			}
		}
	}
	try("gone")
	again := one.create(name)
	one.reportTarget("t1", shown(again, func(r *api.RingState) { r.RingUuid = []byte("fedcba9876543210") }))
	one.until("the new one is drained", func() bool { return one.status(name).Assignment != nil })
	if _, err := one.acquire(name); err != nil {
		t.Fatal(err)
	}
	try("another")
}

// deposing is etcd for a leader that loses the election in the moment before it writes: the first time of each kind of
// write. Its own etcd is real.
type deposing struct {
	clientv3.KV
	t       *testing.T
	mutex   sync.Mutex
	deposed map[string]bool
}

func (d *deposing) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	d.t.Error("the leader puts a key without a condition")
	return nil, fmt.Errorf("put without a condition")
}

func (d *deposing) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	d.t.Error("the leader deletes a key without a condition")
	return nil, fmt.Errorf("delete without a condition")
}

func (d *deposing) Txn(ctx context.Context) clientv3.Txn {
	return &deposingTxn{Txn: d.KV.Txn(ctx), ctx: ctx, of: d}
}

type deposingTxn struct {
	clientv3.Txn
	ctx  context.Context
	of   *deposing
	kind string
}

func (x *deposingTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(cmps...); return x }
func (x *deposingTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *deposingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		key := string(op.KeyBytes())
		verb := ""
		switch {
		case strings.HasPrefix(key, etcd.KeyLeader): // the election itself
		case op.IsPut():
			verb = "put "
		case op.IsDelete():
			verb = "delete "
		case op.IsTxn():
			verb = "txn "
		}
		if prefix, _ := etcd.CutKey(key); verb != "" && !strings.Contains(x.kind, verb+prefix) {
			x.kind += verb + prefix + " "
		}
	}
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *deposingTxn) Commit() (*clientv3.TxnResponse, error) {
	x.of.mutex.Lock()
	isFirst := x.kind != "" && !x.of.deposed[x.kind]
	if isFirst {
		x.of.deposed[x.kind] = true
	}
	x.of.mutex.Unlock()
	if !isFirst {
		return x.Txn.Commit()
	}
	if _, err := x.of.KV.Delete(x.ctx, etcd.KeyLeader+"/", clientv3.WithPrefix()); err != nil {
		return nil, err
	}
	done, err := x.Txn.Commit()
	if err == nil && done.Succeeded {
		x.of.t.Errorf("a leader that was deposed wrote: %s", x.kind)
	}
	return done, err
}

// Whatever a leader writes is refused once it is none: in the whole life of a stream, and of the audit events that are
// recorded.
func TestLeader_DeposedWritesNothing(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	kv := &deposing{KV: cluster.Client().KV, t: t, deposed: map[string]bool{}}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease, client.Watcher = kv, cluster.Client().Lease, cluster.Client().Watcher
	var recorded atomic.Bool
	server := New(Config{
		Client: cluster.Client(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Lease: stepTimeout,
		Audit: func(context.Context, [][]byte) error { recorded.Store(true); return nil },
	})
	server.leads = client
	one := startServer(t, cluster, server)
	const name = "desk7/orders"
	stream := one.create(name)
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.reportDrain("d1")
	one.until("it is drained", func() bool { return one.status(name).Assignment != nil })
	if err := one.delete(name); err != nil {
		t.Fatal(err)
	}
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.Closed, r.EpochMin = true, 2 }))
	one.until("nobody drains it", func() bool { return one.status(name).Assignment == nil })
	one.reportTarget("t1", shown(stream, func(r *api.RingState) {
		r.RingUuid, r.Closed, r.Removed = nil, true,
			true
	}))
	one.until("it is gone", func() bool { return one.view().Streams[name] == nil })
	one.until("the audit events are recorded and gone", func() bool {
		got, err := cluster.Client().Get(one.context(), etcd.KeyAuditEvents, clientv3.WithPrefix(),
			clientv3.WithCountOnly())
		return err == nil && got.Count == 0 && recorded.Load()
	})
	kv.mutex.Lock()
	defer kv.mutex.Unlock()
	if kinds := slices.Sorted(maps.Keys(kv.deposed)); len(kinds) < 5 {
		t.Errorf(
			"deposed before %q: expected a place, a bind or assignment, a retirement, an end and the events",
			kinds,
		)
	}
}
