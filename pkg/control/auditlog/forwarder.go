package auditlog

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Forwarder moves audit events from etcd to the audit stream, on the instance that leads.
type Forwarder struct {
	Client  *clientv3.Client
	Mirror  *state.Mirror
	Logger  *slog.Logger
	Pending *atomic.Int64 // events in etcd; 0 where this instance does not lead
	Sink    func(context.Context, [][]byte) error
	Stream  string    // that the sink writes
	held    time.Time // when it was last written to, or opened again
}

// Run takes events out of etcd into the sink, in the order in which they began, until ctx is done.
func (f *Forwarder) Run(ctx context.Context, guards []clientv3.Cmp) {
	failure := ""
	defer f.Pending.Store(0)
	for ctx.Err() == nil {
		count, err := f.ForwardBatch(ctx, guards)
		if err == nil && count == 0 {
			err = f.holdStream(ctx)
		}
		if err != nil && ctx.Err() == nil && err.Error() != failure {
			failure = err.Error()
			f.Logger.Warn("audit events are pending: the audit stream does not accept them, will try "+
				"again", "error", err)
		}
		if err == nil && failure != "" {
			failure = ""
			f.Logger.Info("the audit stream takes audit events again")
		}
		if err == nil && count == batchMax {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// holdStream opens the audit stream again when it was written before and nobody holds it, as after a restart of the
// control plane or of the ring's target: else it were a stream without a writer until the next event. One that nobody
// has written yet is left alone, for it would stand in the way of a restore.
func (f *Forwarder) holdStream(ctx context.Context) error {
	now, _ := f.Mirror.Load()
	if f.Stream == "" || now.Streams[f.Stream] == nil || time.Since(f.held) < ReopenDelay ||
		now.CheckNotDeleted(f.Stream) != nil ||
		now.Status(f.Stream).Condition != api.Condition_CONDITION_WRITER_GONE {
		return nil
	}
	f.held = time.Now()
	call, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	return f.Sink(call, nil)
}

// ForwardBatch moves some events to the audit stream, and says how many there were to look at.
func (f *Forwarder) ForwardBatch(ctx context.Context, guards []clientv3.Cmp) (count int, err error) {
	got, err := f.Client.Get(ctx, etcd.KeyAuditEvents, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(batchMax))
	if err != nil {
		return 0, err
	}
	f.Pending.Store(got.Count)
	if len(got.Kvs) == 0 {
		return 0, nil
	}
	if got.Count < PendingMax/2 && f.isForRestore() {
		return 0, nil
	}
	var records [][]byte
	var done []clientv3.Op
	for _, kv := range got.Kvs {
		record, isReady := recordsOf(kv.Value, time.Now())
		if isReady {
			records, done = append(records, record...), append(done, deleteUnchanged(kv))
		}
	}
	if len(records) == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	if err := f.Sink(call, records); err != nil {
		return 0, err
	}
	f.held = time.Now()
	deleted, err := f.Client.Txn(ctx).If(guards...).Then(done...).Commit()
	if err == nil && !deleted.Succeeded {
		err = fmt.Errorf("take %d events out of etcd: %w", len(done), etcd.ErrLost)
	}
	return len(got.Kvs), err
}

// deleteUnchanged leaves an event whose outcome has come since it was read: it is recorded once more, with that.
func deleteUnchanged(kv *mvccpb.KeyValue) clientv3.Op {
	key := string(kv.Key)
	isSame := clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)
	return clientv3.OpTxn([]clientv3.Cmp{isSame}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
}

// isForRestore tells a control plane without any stream: a backup may be restored into it. Its audit stream, were it
// begun, would stand in the way of that as soon as a target that has come back makes it a ring. So events, such as the
// reading of its certificates, wait for the first stream, which is made or restored; but not so many of them that no
// further one were done.
func (f *Forwarder) isForRestore() bool {
	if f.Stream == "" {
		return false
	}
	now, _ := f.Mirror.Load()
	return len(now.Streams) == 0
}

// recordsOf is an event as it is recorded; false while its outcome may still come.
func recordsOf(raw []byte, now time.Time) (records [][]byte, isReady bool) {
	var event Event
	if err := json.Unmarshal(raw, &event); err != nil {
		return [][]byte{raw}, true
	}
	if event.Outcome == outcomePending {
		if now.Sub(event.Time) < pendingAgeMax {
			return nil, false
		}
		event.Outcome = outcomeLost
	}
	parts := []*Event{&event}
	if len(raw) > ChangesMax { // by an earlier control plane, which wrote it whole
		parts = event.split()
	}
	for _, part := range parts {
		record, err := json.Marshal(part)
		if err != nil {
			return nil, false
		}
		records = append(records, record)
	}
	return records, true
}
