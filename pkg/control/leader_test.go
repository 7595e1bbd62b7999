package control

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
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// newLeader makes a reconciler of its own beside an instance; it goes by a mirror that the test may hold up.
func newLeader(client *clientv3.Client, m *mirror) *reconciler {
	return &reconciler{
		client: client, mirror: m, logger: slog.New(slog.NewTextHandler(io.Discard, nil)), instance: "test",
		isLeading: new(atomic.Bool), planned: new(atomic.Int64),
	}
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

func (i *instance) view() *view {
	now, _ := i.server.mirror.load()
	return now
}

// wanted is what etcd has of what is wanted, by key: the revisions.
func (i *instance) wanted() map[string]int64 {
	i.t.Helper()
	got, err := i.etcd.Client().Get(i.context(), keyRoot+"spec/", clientv3.WithPrefix())
	if err != nil {
		i.t.Fatal(err)
	}
	keys := map[string]int64{}
	for _, kv := range got.Kvs {
		keys[string(kv.Key)] = kv.ModRevision
	}
	return keys
}

// holdBack lets a mirror publish nothing until release is called.
func holdBack(m *mirror) (release func()) {
	held, done := make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		m.show(func(_, _ *view) bool {
			close(held)
			<-done
			return false
		})
	})
	<-held
	return sync.OnceFunc(func() { close(done); holding.Wait() })
}

// What a leader plans by a view that is behind does nothing to a stream that was deleted since and made again under its
// name: whatever the action, and whoever leads.
func TestLeader_PlanOfTheStreamBefore(t *testing.T) {
	t.Parallel()
	one := startInstance(t, openEtcd(t, t.TempDir()), true)
	leader := newLeader(one.etcd.Client(), one.server.mirror)
	const name = "desk7/orders"
	stream := one.create(name)
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.reportDrain("d1")
	one.until("it is drained", func() bool { return one.status(name).Assignment != nil })
	old := map[string]*view{"drained": one.view()}
	spec, given := one.view().rings[name], one.view().assignments[name]
	if err := one.delete(name); err != nil {
		t.Fatal(err)
	}
	old["being deleted"] = one.view()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.IsClosed, r.EpochMin = true, 2 }))
	one.until("nobody drains it", func() bool { return one.status(name).Assignment == nil })
	old["retired"] = one.view()
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.RingUuid, r.IsClosed, r.IsRemoved = nil, true, true }))
	one.until("it is gone", func() bool { return one.view().streams[name] == nil })
	try := func(now string) {
		before := one.wanted()
		for was, planned := range old {
			for _, action := range []reconcile.Action{{Place: spec}, {Renew: spec}, {Bind: spec}, {Assign: given},
				{Keep: &reconcile.Writer{Stream: name, Epoch: 1}}, {Retire: name}, {Forget: name}} {
				if action.IsEnd() && planned.deletions[name] == nil {
					continue
				}
				err := leader.performAll(one.context(), planned, []reconcile.Action{action}, nil)
				if after := one.wanted(); !maps.Equal(before, after) {
					t.Fatalf("%s of the stream that was %s, now %s: %v; it changed\n%v\nto\n%v", action.Verb(), was, now, err, before, after)
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

// A new leader whose mirror is behind does nothing before it shows what the leader before has done.
func TestLeader_WaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	late := newMirror(etcd.Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	background(t, late.run)
	if _, err := late.wait(t.Context(), func(v *view) bool { return v.revision > 0 }); err != nil {
		t.Fatal(err)
	}
	session, err := concurrency.NewSession(etcd.Client(), concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	predecessor := concurrency.NewElection(session, keyLeader)
	if err := predecessor.Campaign(t.Context(), "predecessor"); err != nil {
		t.Fatal(err)
	}
	next := newLeader(etcd.Client(), late)
	background(t, next.run)
	release := holdBack(late) // from here on the next leader's watch is behind
	defer release()
	if _, err := etcd.Client().Put(t.Context(), keyEpochs+"last", "7"); err != nil {
		t.Fatal(err)
	}
	if err := predecessor.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It has won when its key is the only one, and then writes it once more.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, err := etcd.Client().Get(t.Context(), keyLeader+"/", clientv3.WithPrefix())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the election: %v, %v", got, err)
		}
		if len(got.Kvs) == 1 && string(got.Kvs[0].Value) == "test" && got.Kvs[0].Version > 1 {
			break
		}
		if next.isLeading.Load() {
			break
		}
	}
	if next.isLeading.Load() {
		t.Error("it leads by a view that does not show what its predecessor wrote")
	}
	release()
	for deadline := time.Now().Add(30 * time.Second); !next.isLeading.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never leads")
		}
	}
	if now, _ := late.load(); now.epochs["last"] != 7 {
		t.Error("it leads by a view that does not show what its predecessor wrote")
	}
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
		case strings.HasPrefix(key, keyLeader): // the election itself
		case op.IsPut():
			verb = "put "
		case op.IsDelete():
			verb = "delete "
		case op.IsTxn():
			verb = "txn "
		}
		if prefix, _ := cutKey(key); verb != "" && !strings.Contains(x.kind, verb+prefix) {
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
	if _, err := x.of.KV.Delete(x.ctx, keyLeader+"/", clientv3.WithPrefix()); err != nil {
		return nil, err
	}
	done, err := x.Txn.Commit()
	if err == nil && done.Succeeded {
		x.of.t.Errorf("a leader that was deposed wrote: %s", x.kind)
	}
	return done, err
}

// Whatever a leader writes is refused once it is none: in the whole life of a stream, and of the acts that are recorded.
func TestLeader_DeposedWritesNothing(t *testing.T) {
	t.Parallel()
	etcd := openEtcd(t, t.TempDir())
	kv := &deposing{KV: etcd.Client().KV, t: t, deposed: map[string]bool{}}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease, client.Watcher = kv, etcd.Client().Lease, etcd.Client().Watcher
	var recorded atomic.Bool
	server := New(Config{Client: etcd.Client(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Lease: stepTimeout,
		Audit: func(context.Context, [][]byte) error { recorded.Store(true); return nil }})
	server.leads = client
	one := startServer(t, etcd, server)
	const name = "desk7/orders"
	stream := one.create(name)
	one.reportTarget("t1", shown(stream, func(*api.RingState) {}))
	one.reportDrain("d1")
	one.until("it is drained", func() bool { return one.status(name).Assignment != nil })
	if err := one.delete(name); err != nil {
		t.Fatal(err)
	}
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.IsClosed, r.EpochMin = true, 2 }))
	one.until("nobody drains it", func() bool { return one.status(name).Assignment == nil })
	one.reportTarget("t1", shown(stream, func(r *api.RingState) { r.RingUuid, r.IsClosed, r.IsRemoved = nil, true, true }))
	one.until("it is gone", func() bool { return one.view().streams[name] == nil })
	one.until("the acts are recorded and gone", func() bool {
		got, err := etcd.Client().Get(one.context(), keyActs, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && got.Count == 0 && recorded.Load()
	})
	kv.mutex.Lock()
	defer kv.mutex.Unlock()
	if kinds := slices.Sorted(maps.Keys(kv.deposed)); len(kinds) < 5 {
		t.Errorf("deposed before %q: expected a place, a bind or assignment, a retirement, an end and the acts", kinds)
	}
}
