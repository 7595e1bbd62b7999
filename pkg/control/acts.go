package control

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// Every administrative act becomes a record of the audit stream. It is written to etcd first, before the act is done, then with what came of it; whoever
// leads moves what is there into the stream and takes it away when the record is acknowledged. So no act goes unrecorded when a control plane dies, and a
// record may come twice: its id tells.

const (
	keyActs = "/farlog/acts/" // beside keyRoot: nobody has to follow it

	actsBatch     = 100
	actsPause     = 500 * time.Millisecond
	actsReopen    = 10 * time.Second // until a stream that nobody holds is opened again: its target tells of a writer long before
	actsWaitMax   = 10_000           // acts that wait to be recorded; no more are done then
	actPendingMax = time.Minute      // without an outcome: its control plane has died
	actWriteMax   = 5 * time.Second  // to write an outcome
	actsSinkMax   = 20 * time.Second // to record a batch
	actTextMax    = 4096
	actChangesMax = 24 << 10 // bytes of changes in one record: with all else far below what a record of the audit stream may have
)

// Act is one record of the audit stream.
type Act struct {
	ID       string          `json:"id"`   // the same in a record that comes twice
	Time     time.Time       `json:"time"` // when it began
	Who      string          `json:"who"`  // of the certificate
	From     string          `json:"from,omitempty"`
	What     string          `json:"what"`             // the call
	Stream   string          `json:"stream,omitempty"` // or, of a call about a route, that
	Request  json.RawMessage `json:"request,omitempty"`
	Changes  []string        `json:"changes,omitempty"` // what was created or changed
	Epoch    uint32          `json:"epoch,omitempty"`   // that was granted
	Revision int64           `json:"revision,omitempty"`
	Outcome  string          `json:"outcome"` // OK or a code of gRPC; UNRECORDED: its control plane died before it could say
	Error    string          `json:"error,omitempty"`
	Instance string          `json:"instance"`       // which control plane
	Part     int             `json:"part,omitempty"` // of an act with more changes than a record holds: 1, 2, ... of one id, each with some of them
	Parts    int             `json:"parts,omitempty"`
}

const (
	outcomePending = "PENDING"
	outcomeLost    = "UNRECORDED"
)

// isAct tells the calls that are recorded.
func isAct(method string) bool {
	switch method {
	case api.ControlService_CreateStream_FullMethodName, api.ControlService_UpdateStream_FullMethodName, api.ControlService_DeleteStream_FullMethodName,
		api.ControlService_ApplyFabric_FullMethodName, api.ControlService_AcquireWriter_FullMethodName, api.ControlService_TakeOverStream_FullMethodName,
		api.ControlService_ExtendWriter_FullMethodName, api.ControlService_ReplaceMember_FullMethodName, api.ControlService_AcceptLoss_FullMethodName, api.ControlService_RebindStream_FullMethodName,
		api.ControlService_CreateRoute_FullMethodName, api.ControlService_UpdateRoute_FullMethodName, api.ControlService_DeleteRoute_FullMethodName,
		api.ControlService_AcquireRoute_FullMethodName, api.ControlService_AcquireReader_FullMethodName, api.ControlService_Backup_FullMethodName, api.ControlService_Restore_FullMethodName,
		api.FabricService_CreateTarget_FullMethodName, api.FabricService_UpdateTarget_FullMethodName, api.FabricService_DeleteTarget_FullMethodName,
		api.FabricService_CreateDrain_FullMethodName, api.FabricService_UpdateDrain_FullMethodName, api.FabricService_DeleteDrain_FullMethodName:
		return true
	}
	return false
}

// recorder writes acts to etcd. Without a sink nothing is recorded.
type recorder struct {
	client   *clientv3.Client
	instance string
	isOn     bool

	mutex   sync.Mutex
	waiting int64 // as the leader, or this instance, last counted
	counted time.Time
}

func newRecorder(client *clientv3.Client, instance string, isOn bool) *recorder {
	return &recorder{client: client, instance: instance, isOn: isOn}
}

// act does something for a caller and records it.
func (r *recorder) act(ctx context.Context, caller access.Caller, method string, request any, do func() (any, error)) (any, error) {
	dry, _ := request.(interface{ GetIsDryRun() bool })
	if !r.isOn || !isAct(method) || dry != nil && dry.GetIsDryRun() {
		return do()
	}
	act := r.begin(ctx, caller, method, request)
	isGrant := slices.Contains([]string{api.ControlService_AcquireWriter_FullMethodName, api.ControlService_AcquireRoute_FullMethodName,
		api.ControlService_AcquireReader_FullMethodName, api.ControlService_ExtendWriter_FullMethodName}, method)
	if r.isFull(ctx, actsWaitMax) {
		if !isGrant { // who trades is not stopped by what is about administration
			return nil, overQuota(reasonActs, "method", quoted(method), "expected fewer than %d acts that wait for the audit stream", actsWaitMax).
				errorf("%d acts wait for the audit stream to take them, no further one is done: farlog status says why it does not", actsWaitMax)
		}
		return do()
	}
	if err := r.put(ctx, act); err != nil {
		return nil, status.Errorf(codes.Unavailable, "the act cannot be recorded, so it is not done: %s", err)
	}
	response, err := do()
	act.take(response, err)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), actWriteMax)
	defer cancel()
	_ = r.put(ending, act) // the one without an outcome is there, and will be recorded
	return response, err
}

// refuse records an act that its caller may not do. A flood of them is left to the log.
func (r *recorder) refuse(ctx context.Context, caller access.Caller, method string, request any, err error) {
	if !r.isOn || !isAct(method) || r.isFull(ctx, actsWaitMax/2) {
		return
	}
	act := r.begin(ctx, caller, method, request)
	act.take(nil, err)
	_ = r.put(ctx, act)
}

func (r *recorder) begin(ctx context.Context, caller access.Caller, method string, request any) *Act {
	now := time.Now().UTC()
	unique, _ := newToken() // a time alone may come twice; no secret
	act := &Act{
		ID: fmt.Sprintf("%019d-%x", now.UnixNano(), unique[:min(len(unique), 6)]), Time: now, Who: string(caller.ID), What: method[strings.LastIndexByte(method, '/')+1:],
		Outcome: outcomePending, Instance: r.instance,
	}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		act.From = from.Addr.String()
	}
	act.Stream, _ = streamNamed(request)
	if message, ok := request.(proto.Message); ok {
		if raw, err := protojson.Marshal(message); err == nil && len(raw) <= actTextMax {
			act.Request = raw
		}
	}
	return act
}

// take adds what came of an act.
func (a *Act) take(response any, err error) {
	a.Outcome = strings.ToUpper(status.Code(asStatus(err)).String())
	if err != nil {
		a.Error = status.Convert(asStatus(err)).Message()
		a.Error = a.Error[:min(len(a.Error), actTextMax)]
	}
	switch response := response.(type) {
	case *api.CreateStreamResponse:
		a.Revision = response.GetStream().GetRevision()
	case *api.UpdateStreamResponse:
		a.Revision, a.Changes = response.GetStream().GetRevision(), fieldTexts("stream", a.Stream, response.GetFields())
	case *api.DeleteStreamResponse:
		a.Revision, a.Changes = response.GetDeletion().GetRevision(), []string{fmt.Sprintf("deleted stream %s id %d", a.Stream, response.GetDeletion().GetStreamId())}
	case *api.AcquireWriterResponse:
		a.Epoch = response.GetGrant().GetEpoch()
	case *api.ExtendWriterResponse:
		a.Changes = extensionTexts(a.Stream, response.GetMembers())
	case *api.TakeOverStreamResponse:
		a.Epoch = response.GetEpoch()
		for _, target := range response.GetUnreached() {
			a.Changes = append(a.Changes, "not fenced at target "+target)
		}
	case *api.RebindStreamResponse:
		a.Changes = []string{lostStoreText(response.GetAssignment())}
	case *api.CreateRouteResponse:
		a.Revision = response.GetRoute().GetRevision()
	case *api.UpdateRouteResponse:
		a.Revision, a.Changes = response.GetRoute().GetRevision(), fieldTexts("route", a.Stream, response.GetFields())
	case *api.DeleteRouteResponse:
		a.Changes = []string{"deleted route " + a.Stream}
	case *api.AcquireRouteResponse:
		for _, leg := range response.GetLegs() {
			text := fmt.Sprintf("stream %s epoch %d", leg.Stream, leg.GetGrant().GetEpoch())
			if leg.Error != "" {
				text = fmt.Sprintf("stream %s: %s", leg.Stream, leg.Error)
			}
			a.Changes = append(a.Changes, text)
		}
	case *api.ReplaceMemberResponse:
		ring := response.GetRing()
		a.Changes = []string{fmt.Sprintf("member %d of stream %s: target %s -> %s", ring.GetMember()+1, a.Stream, ring.GetReplacement().GetFormerTarget(), ring.GetTarget())}
	case *api.AcceptLossResponse:
		a.Changes = response.GetLosses()
	case *api.UpdateTargetResponse:
		a.Revision, a.Changes = response.GetTarget().GetRevision(), fieldTexts("target", response.GetTarget().GetHost(), response.GetFields())
	case *api.UpdateDrainResponse:
		a.Revision, a.Changes = response.GetDrain().GetRevision(), fieldTexts("drain", response.GetDrain().GetHost(), response.GetFields())
	case *api.ApplyFabricResponse:
		a.Revision = response.GetRevision()
		for _, change := range response.GetChanges() {
			if change.IsNew || change.IsDeleted {
				verb := map[bool]string{true: "new ", false: "deleted "}[change.IsNew]
				a.Changes = append(a.Changes, verb+change.Kind+" "+change.Name)
				continue
			}
			a.Changes = append(a.Changes, fieldTexts(change.Kind, change.Name, change.Fields)...)
		}
	}
}

func fieldTexts(kind, name string, fields []*api.FieldChange) (texts []string) {
	for _, field := range fields {
		texts = append(texts, fmt.Sprintf("%s %s %s: %s -> %s", kind, name, field.Name, field.Before, field.After))
	}
	return texts
}

// put writes an act's parts, the first last: it takes the place of the act without an outcome.
func (r *recorder) put(ctx context.Context, act *Act) error {
	parts := act.split()
	for _, part := range append(parts[1:], parts[0]) {
		raw, err := json.Marshal(part)
		if err != nil {
			return err
		}
		key := keyActs + part.ID
		if part.Part > 1 {
			key += fmt.Sprintf("-%d", part.Part)
		}
		if _, err := r.client.Put(ctx, key, string(raw)); err != nil {
			return err
		}
	}
	return nil
}

// split makes records of an act that the audit stream and etcd take: most acts are one.
func (a *Act) split() []*Act {
	parts, size := []*Act{new(*a)}, 0
	parts[0].Changes = nil
	for _, change := range a.Changes {
		change = change[:min(len(change), actTextMax)]
		last := parts[len(parts)-1]
		quoted, _ := json.Marshal(change) // of a string it does not fail
		if size += len(quoted) + 1; size > actChangesMax {
			part := *last
			part.Changes, part.Request = nil, nil
			last, parts, size = &part, append(parts, &part), len(quoted)+1
		}
		last.Changes = append(last.Changes, change)
	}
	if len(parts) > 1 {
		for i, part := range parts {
			part.Part, part.Parts = i+1, len(parts)
		}
	}
	return parts
}

// isFull tells whether so many acts wait; they are counted now and then.
func (r *recorder) isFull(ctx context.Context, most int64) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if time.Since(r.counted) > actsPause {
		if got, err := r.client.Get(ctx, keyActs, clientv3.WithPrefix(), clientv3.WithCountOnly()); err == nil {
			r.waiting, r.counted = got.Count, time.Now()
		}
	}
	return r.waiting >= most
}

// forwarder moves audit events from etcd to the audit stream, on the instance that leads.
type forwarder struct {
	client  *clientv3.Client
	mirror  *mirror
	logger  *slog.Logger
	waiting *atomic.Int64 // events in etcd; 0 where this instance does not lead
	sink    func(context.Context, [][]byte) error
	stream  string    // that the sink writes
	held    time.Time // when it was last written to, or opened anew
}

// run takes acts out of etcd into the sink, in the order in which they began, until ctx is done.
func (f *forwarder) run(ctx context.Context, guards []clientv3.Cmp) {
	failure := ""
	defer f.waiting.Store(0)
	for ctx.Err() == nil {
		count, err := f.moveBatch(ctx, guards)
		if err == nil && count == 0 {
			err = f.holdAudit(ctx)
		}
		if err != nil && ctx.Err() == nil && err.Error() != failure {
			failure = err.Error()
			f.logger.Warn("acts wait for the audit stream, will try again", "error", err)
		}
		if err == nil && failure != "" {
			failure = ""
			f.logger.Info("the audit stream takes acts again")
		}
		if err == nil && count == actsBatch {
			continue
		}
		select {
		case <-time.After(actsPause):
		case <-ctx.Done():
		}
	}
}

// holdAudit opens the audit stream anew when it was written before and nobody holds it, as after a restart of the control plane or of the ring's target: else it were a stream without a writer
// until the next act. One that nobody has written yet is left alone, for it would stand in the way of a restore.
func (f *forwarder) holdAudit(ctx context.Context) error {
	now, _ := f.mirror.load()
	if f.stream == "" || now.streams[f.stream] == nil || time.Since(f.held) < actsReopen || now.isStaying(f.stream) != nil ||
		now.status(f.stream).Condition != api.Condition_CONDITION_WRITER_GONE {
		return nil
	}
	f.held = time.Now()
	call, cancel := context.WithTimeout(ctx, actsSinkMax)
	defer cancel()
	return f.sink(call, nil)
}

func (f *forwarder) moveBatch(ctx context.Context, guards []clientv3.Cmp) (count int, err error) {
	got, err := f.client.Get(ctx, keyActs, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithLimit(actsBatch))
	if err != nil {
		return 0, err
	}
	f.waiting.Store(got.Count)
	if len(got.Kvs) == 0 {
		return 0, nil
	}
	if got.Count < actsWaitMax/2 && f.isForRestore() {
		return 0, nil
	}
	var records [][]byte
	var done []clientv3.Op
	for _, kv := range got.Kvs {
		record, isReady := finished(kv.Value, time.Now())
		if isReady {
			records, done = append(records, record...), append(done, deleteUnchanged(kv))
		}
	}
	if len(records) == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, actsSinkMax)
	defer cancel()
	if err := f.sink(call, records); err != nil {
		return 0, err
	}
	f.held = time.Now()
	deleted, err := f.client.Txn(ctx).If(guards...).Then(done...).Commit()
	if err == nil && !deleted.Succeeded {
		err = fmt.Errorf("take %d acts out of etcd: %w", len(done), errLost)
	}
	return len(got.Kvs), err
}

// deleteUnchanged leaves an act whose outcome has come since it was read: it is recorded once more, with that.
func deleteUnchanged(kv *mvccpb.KeyValue) clientv3.Op {
	key := string(kv.Key)
	isSame := clientv3.Compare(clientv3.ModRevision(key), "=", kv.ModRevision)
	return clientv3.OpTxn([]clientv3.Cmp{isSame}, []clientv3.Op{clientv3.OpDelete(key)}, nil)
}

// isForRestore tells a control plane without any stream: a backup may be restored into it. Its audit stream, were it begun, would stand in the way of that as soon as a target that has come back
// makes it a ring. So acts, such as the reading of its certificates, wait for the first stream, which is made or restored; but not so many of them that no further one were done.
func (f *forwarder) isForRestore() bool {
	if f.stream == "" {
		return false
	}
	now, _ := f.mirror.load()
	return len(now.streams) == 0
}

// finished is an act as it is recorded; false while its outcome may still come.
func finished(raw []byte, now time.Time) (records [][]byte, isReady bool) {
	var act Act
	if err := json.Unmarshal(raw, &act); err != nil {
		return [][]byte{raw}, true
	}
	if act.Outcome == outcomePending {
		if now.Sub(act.Time) < actPendingMax {
			return nil, false
		}
		act.Outcome = outcomeLost
	}
	parts := []*Act{&act}
	if len(raw) > actChangesMax { // by an earlier control plane, which wrote it whole
		parts = act.split()
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

// GrantSystem makes a stream of the control plane's own when it is not there, and grants it to this process.
func (s *Server) GrantSystem(ctx context.Context, spec *api.StreamSpec, host string) (*api.Grant, error) {
	spec, err := completeSpec(spec)
	if err != nil {
		return nil, err
	}
	_, _, revision, err := createStream(ctx, s.config.Client, spec)
	if err != nil {
		return nil, err
	}
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, callerKey{}, access.Caller{ID: "control", IsLocal: true})
	response, err := s.AcquireWriter(ctx, &api.AcquireWriterRequest{Stream: spec.Name, Holder: &api.Holder{Host: host, Pid: uint32(os.Getpid()), Name: "farlogd control"}})
	return response.GetGrant(), err
}

// withoutSystem leaves out what nobody declares.
func withoutSystem(names []string) []string { return slices.DeleteFunc(names, pattern.IsSystem) }
