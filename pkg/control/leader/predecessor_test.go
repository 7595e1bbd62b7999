package leader

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/state"
)

// newLeader makes a reconciler of its own beside an instance; it goes by a mirror that the test may hold up.
func newLeader(client *clientv3.Client, m *state.Mirror) *Reconciler {
	return &Reconciler{
		Client: client, Mirror: m, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Instance: "test",
		IsLeading: new(atomic.Bool), Planned: new(atomic.Int64),
	}
}

// background runs something until the test ends.
func background(t *testing.T, run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// holdBack lets a mirror publish nothing until release is called.
func holdBack(m *state.Mirror) (release func()) {
	held, done := make(chan struct{}), make(chan struct{})
	var holding sync.WaitGroup
	holding.Go(func() {
		m.Show(func(_, _ *state.View) bool {
			close(held)
			<-done
			return false
		})
	})
	<-held
	return sync.OnceFunc(func() { close(done); holding.Wait() })
}

// A new leader whose mirror is behind does nothing before it shows what the leader before has done.
func TestLeader_WaitsForItsPredecessor(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Open(t, t.TempDir())
	late := state.NewMirror(cluster.Client(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	background(t, late.Run)
	if _, err := late.Wait(t.Context(), func(v *state.View) bool { return v.Revision > 0 }); err != nil {
		t.Fatal(err)
	}
	session, err := concurrency.NewSession(cluster.Client(), concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	predecessor := concurrency.NewElection(session, etcd.KeyLeader)
	if err := predecessor.Campaign(t.Context(), "predecessor"); err != nil {
		t.Fatal(err)
	}
	next := newLeader(cluster.Client(), late)
	background(t, next.Run)
	release := holdBack(late) // from here on the next leader's watch is behind
	defer release()
	if _, err := cluster.Client().Put(t.Context(), etcd.KeyEpochs+"last", "7"); err != nil {
		t.Fatal(err)
	}
	if err := predecessor.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It has won when its key is the only one, and then writes it once more.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, err := cluster.Client().Get(t.Context(), etcd.KeyLeader+"/", clientv3.WithPrefix())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the election: %v, %v", got, err)
		}
		if len(got.Kvs) == 1 && string(got.Kvs[0].Value) == "test" && got.Kvs[0].Version > 1 {
			break
		}
		if next.IsLeading.Load() {
			break
		}
	}
	if next.IsLeading.Load() {
		t.Error("it leads by a view that does not show what its predecessor wrote")
	}
	release()
	for deadline := time.Now().Add(30 * time.Second); !next.IsLeading.Load(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never leads")
		}
	}
	if now, _ := late.Load(); now.Epochs["last"] != 7 {
		t.Error("it leads by a view that does not show what its predecessor wrote")
	}
}
