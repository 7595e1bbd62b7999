package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/internal/sweep"
)

// TestSweep_*: every call of the control plane into etcd is made to fail once, in turn, in the life of a stream:
// created, placed, bound, drained, granted, taken over, refused to be deleted while it has records, deleted. A call is
// not sent, or it is carried out and its answer lost, or the watch ends at it. Whatever fails: no writer is granted
// before the target has confirmed the fence, no epoch is granted twice, nothing goes that has undrained records, and
// what failed works when it is asked for again.

// failure is how a call fails.
type failure int

const (
	failsNot failure = iota
	failsBefore
	failsAfter
	failsWatch
)

func (f failure) String() string {
	return [...]string{
		"does not fail", "is not sent", "is carried out, and its answer lost",
		"comes when the watch ends",
	}[f]
}

// faultyEtcd is etcd, of which one call fails. The etcd below is real.
type faultyEtcd struct {
	clientv3.KV
	clientv3.Lease
	clientv3.Watcher

	mutex   sync.Mutex
	at      int
	how     failure
	calls   []string
	watches []context.CancelFunc
}

func (f *faultyEtcd) plan(at int, how failure) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.at, f.how, f.calls = at, how, nil
}

func (f *faultyEtcd) made() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.calls
}

// call lets one through, or not.
func (f *faultyEtcd) call(name string, do func() error) error {
	f.mutex.Lock()
	how := failsNot
	if len(f.calls) == f.at {
		how = f.how
	}
	f.calls = append(f.calls, name)
	if how == failsWatch {
		for _, end := range f.watches {
			end()
		}
		f.watches = nil
	}
	f.mutex.Unlock()
	if how == failsBefore {
		return rpctypes.ErrNoLeader
	}
	err := do()
	if how == failsAfter && err == nil {
		return rpctypes.ErrTimeout
	}
	return err
}

func (f *faultyEtcd) Get(ctx context.Context, key string, options ...clientv3.OpOption) (got *clientv3.GetResponse,
	err error,
) {
	return got, f.call("get "+key, func() (err error) { got, err = f.KV.Get(ctx, key, options...); return err })
}

func (f *faultyEtcd) Put(ctx context.Context, key, value string,
	options ...clientv3.OpOption,
) (put *clientv3.PutResponse, err error) {
	return put, f.call("put "+key, func() (err error) { put, err = f.KV.Put(ctx, key, value, options...); return err })
}

func (f *faultyEtcd) Delete(ctx context.Context, key string,
	options ...clientv3.OpOption,
) (done *clientv3.DeleteResponse, err error) {
	return done, f.call("delete "+key, func() (err error) { done, err = f.KV.Delete(ctx, key, options...); return err })
}

func (f *faultyEtcd) Txn(ctx context.Context) clientv3.Txn {
	return &faultyTxn{Txn: f.KV.Txn(ctx), of: f}
}

type faultyTxn struct {
	clientv3.Txn
	of   *faultyEtcd
	keys string
}

func (x *faultyTxn) If(cmps ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(cmps...); return x }
func (x *faultyTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *faultyTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	for _, op := range ops {
		x.keys += " " + string(op.KeyBytes())
	}
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *faultyTxn) Commit() (done *clientv3.TxnResponse, err error) {
	return done, x.of.call("txn"+x.keys, func() (err error) { done, err = x.Txn.Commit(); return err })
}

func (f *faultyEtcd) Grant(ctx context.Context, ttl int64) (lease *clientv3.LeaseGrantResponse, err error) {
	return lease, f.call("grant lease", func() (err error) { lease, err = f.Lease.Grant(ctx, ttl); return err })
}

func (f *faultyEtcd) Revoke(ctx context.Context, id clientv3.LeaseID) (done *clientv3.LeaseRevokeResponse, err error) {
	return done, f.call("revoke lease", func() (err error) { done, err = f.Lease.Revoke(ctx, id); return err })
}

func (f *faultyEtcd) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (done *clientv3.LeaseKeepAliveResponse,
	err error,
) {
	return done, f.call("keep alive", func() (err error) { done, err = f.Lease.KeepAliveOnce(ctx, id); return err })
}

func (f *faultyEtcd) Watch(ctx context.Context, key string, options ...clientv3.OpOption) clientv3.WatchChan {
	ctx, end := context.WithCancel(ctx)
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.watches = append(f.watches, end)
	return f.Watcher.Watch(ctx, key, options...)
}

func (f *faultyEtcd) Close() error { return nil }

// sweepWorld is a control plane on such an etcd.
type sweepWorld struct {
	*instance
	etcd *faultyEtcd
}

func startSweep(t *testing.T) *sweepWorld {
	etcd := etcdtest.Open(t, t.TempDir())
	faulty := &faultyEtcd{KV: etcd.Client().KV, Lease: etcd.Client().Lease, Watcher: etcd.Client().Watcher, at: -1}
	client := clientv3.NewCtxClient(context.Background())
	client.KV, client.Lease, client.Watcher = faulty, faulty, faulty
	server := New(Config{Client: client, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Lease: stepTimeout})
	return &sweepWorld{startServer(t, etcd, server), faulty}
}

// insist asks until it is done. What failed for want of etcd is asked for again, and nothing else.
func (w *sweepWorld) insist(what string, ask func() error) {
	w.t.Helper()
	w.until(what, func() bool {
		err := ask()
		if err != nil && status.Code(err) != codes.Unavailable && status.Code(err) != codes.Aborted {
			w.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

// take asks for a grant from a host, plays the target, and gives the epoch. The target confirms nothing before it was
// told.
func (w *sweepWorld) take(name, host string, shown func(*api.RingState)) uint32 {
	w.t.Helper()
	granted := make(chan *api.Grant, 1)
	ctx := w.context()
	go func() {
		for {
			got, err := w.control.AcquireWriter(ctx, &api.AcquireWriterRequest{
				Stream: name,
				Holder: &api.Holder{Host: host},
			})
			if err == nil || ctx.Err() != nil || status.Code(err) != codes.Unavailable &&
				status.Code(err) != codes.Aborted {
				if err != nil {
					w.t.Errorf("acquire %s: %v", name, err)
				}
				granted <- got.GetGrant()
				return
			}
		}
	}()
	confirmed := map[uint32]bool{}
	for {
		select {
		case grant := <-granted:
			if !confirmed[grant.GetEpoch()] {
				w.t.Fatalf("granted epoch %d, the target has confirmed %v", grant.GetEpoch(), confirmed)
			}
			return grant.Epoch
		default:
		}
		if epoch := w.view().Admissions[name].GetEpochMin(); epoch > 0 && !confirmed[epoch] &&
			len(w.view().Admissions[name].Grants) > 0 {
			confirmed[epoch] = true
			w.show(name, func(r *api.RingState) { shown(r); r.EpochFenced, r.EpochAdmitted = epoch, epoch })
		}
		time.Sleep(pollPause)
	}
}

// show reports the ring as the target has it.
func (w *sweepWorld) show(name string, change func(*api.RingState)) {
	w.t.Helper()
	state := remoteRing(name, "t1")
	state.StreamId = w.view().Streams[name].GetStreamId()
	change(state)
	w.reportTarget("t1", state)
}

// life is a stream's, from its creation to its end.
func (w *sweepWorld) life(name string) {
	w.t.Helper()
	as := func(*api.RingState) {}
	w.insist("it is created", func() error {
		_, err := w.control.CreateStream(w.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
		return err
	})
	w.reportTarget("t1")
	w.until("it is placed", func() bool { return w.view().Rings[name] != nil })
	w.show(name, as)
	w.reportDrain("d1")
	w.until("it is drained", func() bool { return w.view().Assignments[name] != nil })
	first := w.take(name, "beta", as)
	second := w.take(name, "gamma", as)
	if second <= first {
		w.t.Fatalf("epoch %d is granted after %d", second, first)
	}
	w.show(name, func(r *api.RingState) {
		r.EpochFenced, r.EpochAdmitted, r.LagRecords, r.LagBytes, r.AppendedLsn = second, second, 3, 4096, 4096
	})
	w.until("the deletion is refused", func() bool {
		err := w.delete(name)
		if err == nil {
			w.t.Fatal("a stream with undrained records is deleted")
		}
		return status.Code(err) == codes.FailedPrecondition
	})
	w.show(name, func(r *api.RingState) { r.EpochFenced, r.EpochAdmitted = second, second })
	w.insist("it is deleted", func() error {
		if err := w.delete(name); status.Code(err) != codes.NotFound {
			return err
		}
		return nil
	})
	w.show(name, func(r *api.RingState) { r.Closed, r.EpochMin, r.LagRecords, r.LagBytes = true, second+1, 3, 4096 })
	w.insist("a stream is created beside it", func() error {
		_, err := w.control.CreateStream(w.context(), &api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name +
			"-beside"}})
		return err
	})
	w.until("the leader has planned", func() bool { return w.view().Rings[name+"-beside"] != nil })
	if now := w.view(); now.Assignments[name] == nil || now.Rings[name] == nil {
		w.t.Fatal("a stream with undrained records is retired")
	}
	w.show(name, func(r *api.RingState) { r.Closed, r.EpochMin = true, second+1 })
	w.until("nobody drains it", func() bool { return w.view().Assignments[name] == nil })
	w.show(name, func(r *api.RingState) { r.RingUuid, r.Closed, r.Removed = nil, true, true })
	w.until("it is gone", func() bool { return w.view().Streams[name] == nil })
}

func TestSweep_EachCallIntoEtcdFailsOnce(t *testing.T) {
	sweepEtcd(t, (*sweepWorld).life, func(string) bool { return true })
}

// A leader that is deposed campaigns again, and each call of that fails once.
func TestSweep_EachCallOfAnElectionFailsOnce(t *testing.T) {
	deposed := func(w *sweepWorld, name string) {
		w.t.Helper()
		if _, err := w.etcd.KV.Delete(w.context(), etcd.KeyLeader+"/", clientv3.WithPrefix()); err != nil {
			w.t.Fatal(err)
		}
		w.life(name)
	}
	sweepEtcd(t, deposed, func(call string) bool {
		return strings.Contains(call, etcd.KeyLeader) || strings.HasSuffix(call, " lease")
	})
}

func sweepEtcd(t *testing.T, run func(w *sweepWorld, name string), isSwept func(call string) bool) {
	t.Helper()
	sample := sweep.New(t, 3)
	w := startSweep(t)
	w.life("sweep/first") // the first leader, and the agents' leases
	w.etcd.plan(-1, failsNot)
	run(w, "sweep/none")
	calls, swept, runs := w.etcd.made(), 0, 0
	for at, call := range calls {
		if !isSwept(call) {
			continue
		}
		swept++
		for _, how := range []failure{failsBefore, failsAfter, failsWatch} {
			if !sample.Includes() {
				continue
			}
			runs++
			w.etcd.plan(at, how)
			run(w, fmt.Sprintf("sweep/%d-%d", how, at))
			if t.Failed() {
				made := w.etcd.made()
				t.Fatalf("call %d (%s; without a fault it is %s) %s", at, made[min(at, len(made)-1)], call, how)
			}
			w.etcd.plan(-1, failsNot)
		}
	}
	if swept == 0 {
		t.Fatalf("none of %d calls is swept: %q", len(calls), calls)
	}
	t.Logf("%d runs of %d calls", runs, swept)
}

// What etcd says for want of a leader, or on a slow disk, is worth asking again; what it says of the request is not.
func TestSweep_WhatEtcdSaysIsAskedAgainOrNot(t *testing.T) {
	for err, want := range map[error]codes.Code{
		rpctypes.ErrNoLeader: codes.Unavailable, rpctypes.ErrLeaderChanged: codes.Unavailable,
		rpctypes.ErrTimeout:      codes.Unavailable,
		context.DeadlineExceeded: codes.Unavailable, rpctypes.ErrNoSpace: codes.Internal,
		rpctypes.ErrDuplicateKey: codes.Internal,
	} {
		got := refusal.AsStatus(fmt.Errorf("persist epoch 2: %w", err))
		if status.Code(got) != want || !strings.Contains(got.Error(), "persist epoch 2") {
			t.Errorf("%v: got %v, want %s", err, got, want)
		}
	}
}
