package auditlog

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd/etcdtest"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/refusal/refusaltest"
)

// When so many events wait that nobody seems to take them, no further one is done; but who trades gets its grant.
func TestAudit_TooManyWait(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Open(t, t.TempDir())
	r := &Recorder{client: etcd.Client(), isOn: true, pending: PendingMax, counted: time.Now().Add(time.Hour)}
	isDone := false
	do := func() (any, error) { isDone = true; return nil, nil }
	_, err := r.Do(t.Context(), access.Local(), api.ControlService_CreateStream_FullMethodName,
		&api.CreateStreamRequest{}, do)
	if reason, _ := refusaltest.Check(t, err); reason != refusal.ReasonAuditEvents ||
		status.Code(err) != codes.ResourceExhausted || isDone || !strings.Contains(err.Error(), "audit stream") {
		t.Errorf("done %v: %v", isDone, err)
	}
	for method, request := range map[string]any{
		api.ControlService_AcquireWriter_FullMethodName: &api.AcquireWriterRequest{},
		api.ControlService_ListStreams_FullMethodName:   &api.ListStreamsRequest{},
		api.ControlService_CreateStream_FullMethodName:  &api.CreateStreamRequest{DryRun: true},
	} {
		isDone = false
		if _, err := r.Do(t.Context(), access.Local(), method, request, do); err != nil || !isDone {
			t.Errorf("%s: done %v, %v", method, isDone, err)
		}
	}
}
