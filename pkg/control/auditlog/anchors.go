package auditlog

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// AnchorReport is an anchor of a store that a drain has reported.
type AnchorReport struct {
	Stream  string
	Anchor  *api.StoreAnchor
	Refused string // why it was refused; "": it was kept
}

// RecordAnchor records an anchor. A flood of them is left to etcd, where the newest is.
func (r *Recorder) RecordAnchor(ctx context.Context, caller access.Caller, report AnchorReport) error {
	if !r.isOn || r.isFull(ctx, PendingMax/2) {
		return nil
	}
	event := r.NewEvent(ctx, caller, "ReportAnchor", nil)
	event.Stream = report.Stream
	raw, err := protojson.Marshal(report.Anchor)
	if err != nil {
		return err
	}
	event.Request = raw
	var reason error
	if report.Refused != "" {
		reason = refusal.WithReason(codes.FailedPrecondition, "", report.Refused, nil)
	}
	event.setOutcome(nil, reason)
	return r.Put(ctx, event)
}
