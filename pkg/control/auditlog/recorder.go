package auditlog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// Recorder writes events to etcd. Without a sink nothing is recorded.
type Recorder struct {
	client   *clientv3.Client
	instance string
	isOn     bool

	mutex   sync.Mutex
	pending int64 // as the leader, or this instance, last counted
	counted time.Time
}

// NewRecorder makes a Recorder of a control plane; isOn says that there is an audit stream.
func NewRecorder(client *clientv3.Client, instance string, isOn bool) *Recorder {
	return &Recorder{client: client, instance: instance, isOn: isOn}
}

// dryRunner is a request that may only ask what would come of it.
type dryRunner interface{ GetDryRun() bool }

var _ dryRunner = (*api.CreateStreamRequest)(nil) // does not compile when the field gets another name

// Do does something for a caller and records it.
func (r *Recorder) Do(ctx context.Context, caller access.Caller, method string, request any, do func() (any, error),
) (any, error) {
	dry, _ := request.(dryRunner)
	if !r.isOn || !IsRecorded(method) || dry != nil && dry.GetDryRun() {
		return do()
	}
	event := r.NewEvent(ctx, caller, method, request)
	isGrant := slices.Contains([]string{
		api.ControlService_AcquireWriter_FullMethodName,
		api.ControlService_AcquireRoute_FullMethodName,
		api.ControlService_AcquireReader_FullMethodName, api.ControlService_ExtendWriter_FullMethodName,
	}, method)
	if r.isFull(ctx, PendingMax) {
		if !isGrant { // who trades is not stopped by what is about administration
			return nil, refusal.Exhausted(refusal.ReasonAuditEvents, "method", refusal.Quote(method),
				"expected fewer than %d audit events that wait for the audit stream", PendingMax).
				Errorf("%d audit events wait for the audit stream to take them, no further call is done: farlog "+
					"status says why it does not", PendingMax)
		}
		return do()
	}
	if err := r.Put(ctx, event); err != nil {
		return nil, status.Errorf(codes.Unavailable, "the call cannot be recorded, so it is not done: %s", err)
	}
	response, err := do()
	event.setOutcome(response, err)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	_ = r.Put(ending, event) // the one without an outcome is there, and will be recorded
	return response, err
}

// RecordRefusal records a call that its caller may not make. A flood of them is left to the log.
func (r *Recorder) RecordRefusal(ctx context.Context, caller access.Caller, method string, request any, err error) {
	if !r.isOn || !IsRecorded(method) || r.isFull(ctx, PendingMax/2) {
		return
	}
	event := r.NewEvent(ctx, caller, method, request)
	event.setOutcome(nil, err)
	_ = r.Put(ctx, event)
}

// NewEvent is a call as it begins; its outcome is pending.
func (r *Recorder) NewEvent(ctx context.Context, caller access.Caller, method string, request any) *Event {
	now := time.Now().UTC()
	unique := make([]byte, 6) // a time alone may come twice; no secret
	_, _ = rand.Read(unique)  // it never fails
	event := &Event{
		ID: fmt.Sprintf("%019d-%x", now.UnixNano(), unique), Time: now, Who: string(caller.ID),
		What:    method[strings.LastIndexByte(method, '/')+1:],
		Outcome: outcomePending, Instance: r.instance,
	}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		event.From = from.Addr.String()
	}
	event.Stream, _ = access.StreamOf(request)
	if message, ok := request.(proto.Message); ok {
		if raw, err := protojson.Marshal(message); err == nil && len(raw) <= textMax {
			event.Request = raw
		}
	}
	return event
}

// Put writes an event's parts, the first last: it takes the place of the event without an outcome.
func (r *Recorder) Put(ctx context.Context, event *Event) error {
	writes, err := event.writes()
	if err != nil {
		return err
	}
	for _, write := range writes {
		if _, err := r.client.Do(ctx, write); err != nil {
			return err
		}
	}
	return nil
}

// writes are those of an event's parts, the first part last.
func (a *Event) writes() (writes []clientv3.Op, err error) {
	parts := a.split()
	for _, part := range append(parts[1:], parts[0]) {
		raw, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		key := etcd.KeyAuditEvents + part.ID
		if part.Part > 1 {
			key += fmt.Sprintf("-%d", part.Part)
		}
		writes = append(writes, clientv3.OpPut(key, string(raw)))
	}
	return writes, nil
}

// isFull reports whether so many events wait; they are counted now and then.
func (r *Recorder) isFull(ctx context.Context, most int64) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if time.Since(r.counted) > pause {
		if got, err := r.client.Get(ctx, etcd.KeyAuditEvents, clientv3.WithPrefix(),
			clientv3.WithCountOnly()); err == nil {
			r.pending, r.counted = got.Count, time.Now()
		}
	}
	return r.pending >= most
}
