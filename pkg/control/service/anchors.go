package service

import (
	"context"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
)

// keepAnchors keeps the anchors of a drain's report. An anchor of another segment than the one before goes into the
// audit stream, and so does one that is refused, which is logged as well: the store has lost what it had.
func (s *Server) keepAnchors(ctx context.Context, report *api.DrainState) error {
	news, err := s.anchors.Keep(ctx, report)
	for _, one := range news {
		if one.Refused != "" {
			s.config.Logger.Error("anchor of a store refused", "stream", one.Stream, "drain", report.Agent.Id,
				"store", report.StoreDir, "error", one.Refused)
		}
		recordErr := s.recorder.RecordAnchor(ctx, callerOf(ctx),
			auditlog.AnchorReport{Stream: one.Stream, Anchor: one.Anchor, Refused: one.Refused})
		if recordErr != nil {
			s.config.Logger.Warn("anchor of a store is not in the audit stream", "stream", one.Stream, "error",
				recordErr)
		}
	}
	return err
}
