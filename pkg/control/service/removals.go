package service

import (
	"context"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// recordRemovals puts into the audit stream what the bases of a drain's report say was removed from its store. A
// failure is that of the report: the drain reports again.
func (s *Server) recordRemovals(ctx context.Context, report *api.DrainState) error {
	news, err := s.bases.News(ctx, report)
	if err != nil {
		return err
	}
	for _, one := range news {
		isRecorded, err := s.recorder.RecordRemoval(ctx, callerOf(ctx), one.Stream, one.Base)
		if err == nil && isRecorded {
			err = s.bases.NoteRecorded(ctx, one)
		}
		if err != nil {
			return err
		}
		if !isRecorded {
			s.config.Logger.Warn("a removal from a store is not in the audit stream yet: too many events wait for it",
				"stream", one.Stream, "drain", report.Agent.Id, "store", report.StoreDir)
		}
	}
	return nil
}
