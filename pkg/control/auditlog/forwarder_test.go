package auditlog

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
)

// taken keeps what a forwarder gives to its sink.
type taken struct{ events []Event }

func (k *taken) take(_ context.Context, records [][]byte) error {
	for _, record := range records {
		var event Event
		if err := json.Unmarshal(record, &event); err != nil {
			return err
		}
		k.events = append(k.events, event)
	}
	return nil
}

// An event whose control plane died in the middle of it is recorded as one whose outcome nobody wrote; one that is
// under way is left alone.
func TestAudit_WithoutOutcome(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	r := &Recorder{client: etcd.Client(), isOn: true}
	for name, began := range map[string]time.Time{"old": time.Now().Add(-2 * pendingAgeMax), "now": time.Now()} {
		event := r.NewEvent(t.Context(), access.Local(), api.ControlService_CreateStream_FullMethodName,
			&api.CreateStreamRequest{Spec: &api.StreamSpec{Name: name}})
		event.Time = began
		if err := r.Put(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	s := &taken{}
	leader := &Forwarder{
		Client: etcd.Client(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Sink: s.take,
		Pending: new(atomic.Int64),
	}
	if _, err := leader.ForwardBatch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(s.events) != 1 || s.events[0].Stream != "old" || s.events[0].Outcome != outcomeLost {
		t.Errorf("recorded %+v", s.events)
	}
}

// What changes a stream's members is recorded with its reason, who did it, and what it changed or lost; so is a
// refusal. A look at what would be changed is not.
func TestAudit_OfMembers(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	r, s := &Recorder{client: etcd.Client(), isOn: true}, &taken{}
	replace, accept := api.ControlService_ReplaceMember_FullMethodName, api.ControlService_AcceptLoss_FullMethodName
	ring := &api.RingSpec{Member: 1, Target: "t4", Replacement: &api.Replacement{FormerTarget: "t2"}}
	for _, call := range []struct {
		method            string
		request, response any
		err               error
	}{
		{
			replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t2", Reason: "its host is gone"},
			&api.ReplaceMemberResponse{Ring: ring}, nil,
		},
		{
			accept, &api.AcceptLossRequest{Stream: "desk7/orders", Reason: "both are gone"},
			&api.AcceptLossResponse{Losses: []string{"from lsn 4096 on"}}, nil,
		},
		{
			replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t9", Reason: "a slip"}, nil,
			status.Error(codes.InvalidArgument, "no member is on t9"),
		},
		{
			replace, &api.ReplaceMemberRequest{Stream: "desk7/orders", Member: "t2", Reason: "to see", DryRun: true},
			&api.ReplaceMemberResponse{Ring: ring}, nil,
		},
		{
			accept, &api.AcceptLossRequest{Stream: "desk7/orders", Reason: "to see", DryRun: true},
			&api.AcceptLossResponse{}, nil,
		},
	} {
		if _, err := r.Do(t.Context(), access.Local(), call.method, call.request,
			func() (any, error) { return call.response, call.err }); !errors.Is(err, call.err) {
			t.Fatal(err)
		}
	}
	leader := &Forwarder{
		Client: etcd.Client(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Sink: s.take,
		Pending: new(atomic.Int64),
	}
	if _, err := leader.ForwardBatch(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []struct{ what, outcome, reason, text string }{
		{"ReplaceMember", "OK", "its host is gone", "member 2 of stream desk7/orders: target t2 -> t4"},
		{"AcceptLoss", "OK", "both are gone", "from lsn 4096 on"},
		{"ReplaceMember", "INVALIDARGUMENT", "a slip", "no member is on t9"},
	}
	if len(s.events) != len(want) {
		t.Fatalf("recorded %+v", s.events)
	}
	for i, event := range s.events {
		text := strings.Join(event.Changes, "; ") + event.Error
		if event.What != want[i].what || event.Outcome != want[i].outcome || event.Stream != "desk7/orders" ||
			!strings.Contains(string(event.Request), want[i].reason) || text != want[i].text {
			t.Errorf("event %d: %+v", i, event)
		}
	}
}
