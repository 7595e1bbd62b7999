// Package auditlog records each administrative call as an event of the audit stream: first in etcd, then in the stream.
package auditlog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// Every administrative call becomes a record of the audit stream. It is written to etcd first, before the call is done,
// then with what came of it; whoever leads moves what is there into the stream and takes it away when the record is
// acknowledged. So no call goes unrecorded when a control plane dies, and a record may come twice: its id tells.

const (
	batchMax = 100
	pause    = 500 * time.Millisecond
	// ReopenDelay is how long a stream that nobody holds stays so: its target reports a writer long before.
	ReopenDelay = 10 * time.Second
	// PendingMax is how many events may wait to be recorded; no more calls are done then.
	PendingMax    = 10_000
	pendingAgeMax = time.Minute      // without an outcome: its control plane has died
	writeTimeout  = 5 * time.Second  // to write an outcome
	sinkTimeout   = 20 * time.Second // to record a batch
	textMax       = 4096
	// ChangesMax is how many bytes of changes one record has: with all else far below what the audit stream takes.
	ChangesMax = 24 << 10
)

// Event is one record of the audit stream.
type Event struct {
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
	// Outcome is OK or a code of gRPC; UNRECORDED: the control plane died before the call ended.
	Outcome  string `json:"outcome"`
	Error    string `json:"error,omitempty"`
	Instance string `json:"instance"` // which control plane
	// Part of Parts, from 1 on: an event with more changes than a record holds is in several records of one ID.
	Part  int `json:"part,omitempty"`
	Parts int `json:"parts,omitempty"`
}

const (
	outcomePending = "PENDING"
	outcomeLost    = "UNRECORDED"
)

// IsRecorded tells the calls that are recorded.
func IsRecorded(method string) bool {
	switch method {
	case api.ControlService_CreateStream_FullMethodName, api.ControlService_UpdateStream_FullMethodName,
		api.ControlService_DeleteStream_FullMethodName,
		api.ControlService_ApplyFabric_FullMethodName, api.ControlService_AcquireWriter_FullMethodName,
		api.ControlService_TakeOverStream_FullMethodName,
		api.ControlService_ExtendWriter_FullMethodName, api.ControlService_ReplaceMember_FullMethodName,
		api.ControlService_AcceptLoss_FullMethodName, api.ControlService_RebindStream_FullMethodName,
		api.ControlService_CreateRoute_FullMethodName, api.ControlService_UpdateRoute_FullMethodName,
		api.ControlService_DeleteRoute_FullMethodName,
		api.ControlService_AcquireRoute_FullMethodName, api.ControlService_AcquireReader_FullMethodName,
		api.ControlService_Backup_FullMethodName, api.ControlService_Restore_FullMethodName,
		api.FabricService_CreateTarget_FullMethodName, api.FabricService_UpdateTarget_FullMethodName,
		api.FabricService_DeleteTarget_FullMethodName,
		api.FabricService_CreateDrain_FullMethodName, api.FabricService_UpdateDrain_FullMethodName,
		api.FabricService_DeleteDrain_FullMethodName:
		return true
	}
	return false
}

// setOutcome adds what came of an event.
func (a *Event) setOutcome(response any, err error) {
	a.Outcome = strings.ToUpper(status.Code(refusal.AsStatus(err)).String())
	if err != nil {
		a.Error = status.Convert(refusal.AsStatus(err)).Message()
		a.Error = a.Error[:min(len(a.Error), textMax)]
	}
	if message, ok := response.(proto.Message); !ok || !message.ProtoReflect().IsValid() {
		return // a nil response, of a call that changed nothing
	}
	switch response := response.(type) {
	case *api.CreateStreamResponse:
		a.Revision = response.GetStream().GetRevision()
	case *api.UpdateStreamResponse:
		a.Revision, a.Changes = response.GetStream().GetRevision(), fieldTexts("stream", a.Stream, response.GetFields())
	case *api.DeleteStreamResponse:
		a.Revision, a.Changes = response.GetDeletion().GetRevision(),
			[]string{fmt.Sprintf("deleted stream %s id %d", a.Stream, response.GetDeletion().GetStreamId())}
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
		a.Changes = []string{LostStoreText(response.GetAssignment())}
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
		a.Changes = []string{fmt.Sprintf("member %d of stream %s: target %s -> %s", ring.GetMember()+1, a.Stream,
			ring.GetReplacement().GetFormerTarget(), ring.GetTarget())}
	case *api.AcceptLossResponse:
		a.Changes = response.GetLosses()
	case *api.UpdateTargetResponse:
		a.Revision, a.Changes = response.GetTarget().GetRevision(),
			fieldTexts("target", response.GetTarget().GetHost(), response.GetFields())
	case *api.UpdateDrainResponse:
		a.Revision, a.Changes = response.GetDrain().GetRevision(),
			fieldTexts("drain", response.GetDrain().GetHost(), response.GetFields())
	case *api.ApplyFabricResponse:
		a.Revision = response.GetRevision()
		for _, change := range response.GetChanges() {
			if change.Created || change.Deleted {
				verb := map[bool]string{true: "new ", false: "deleted "}[change.Created]
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

// split makes records of an event that the audit stream and etcd take: most events are one.
func (a *Event) split() []*Event {
	parts, size := []*Event{new(*a)}, 0
	parts[0].Changes = nil
	for _, change := range a.Changes {
		change = change[:min(len(change), textMax)]
		last := parts[len(parts)-1]
		quoted, _ := json.Marshal(change) // of a string it does not fail
		if size += len(quoted) + 1; size > ChangesMax {
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

// extensionTexts say in the audit stream where a writer was let in.
func extensionTexts(stream string, members []*api.ExtendedMember) (texts []string) {
	for _, one := range members {
		texts = append(texts, fmt.Sprintf("member %d of stream %s: target %s", one.Member, stream,
			one.Ring.GetTarget()))
	}
	slices.Sort(texts)
	return texts
}

// LostStoreText says what a stream's store does not have.
func LostStoreText(given *api.Assignment) string {
	lost := given.GetLostStore()
	if lost == nil {
		return ""
	}
	return fmt.Sprintf("given up store %s (%x): records below lsn %d, seq %d, were released to it and are not in "+
		"store %s (%x)", lost.StoreDir, lost.StoreUuid, lost.Lsn, lost.Seq, given.StoreDir, given.StoreUuid)
}
