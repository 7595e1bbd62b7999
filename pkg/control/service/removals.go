package service

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/report"
)

const (
	// removalsMax is how many removals one report of a drain may put into the audit stream. A drain gives a report a
	// few seconds; a rule may remove segments of thousands of streams at once.
	removalsMax = 100
	// removalsBatch is how many go into one transaction: their events stay far below what etcd takes in one.
	removalsBatch = 25
	// removalsTimeout bounds how long they hold up the answer to the report.
	removalsTimeout = time.Second
)

// recordRemovals puts into the audit stream what the bases of a drain's report, which is stored already, say was
// removed from its store. isRest: there are more. What could not be recorded is in the next reports as well, so that
// this fails no report.
func (s *Server) recordRemovals(ctx context.Context, state *api.DrainState, bases []report.BaseNews) (isRest bool) {
	if len(bases) == 0 || !s.recorder.IsOn() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, removalsTimeout)
	defer cancel()
	logger := s.config.Logger.With("drain", state.Agent.Id, "store", state.StoreDir)
	news, isRest, err := s.bases.Unrecorded(ctx, bases, removalsMax)
	if err == nil && len(news) > 0 && !s.recorder.HasRoomForAgents(ctx) {
		logger.Warn("removals from a store are not in the audit stream yet: too many events wait for it",
			"streams", len(news))
		return false
	}
	for batch := range slices.Chunk(news, removalsBatch) {
		if err == nil {
			err = s.recordBases(ctx, batch)
		}
	}
	if err != nil {
		logger.Warn("removals from a store are not in the audit stream yet", "streams", len(news), "error", err)
	}
	return isRest
}

// recordBases writes the events of bases, and that they are recorded, in one transaction.
func (s *Server) recordBases(ctx context.Context, batch []report.BaseNews) error {
	var writes []clientv3.Op
	for _, one := range batch {
		events, err := s.recorder.RemovalWrites(ctx, callerOf(ctx), one.Stream, one.Base)
		if err != nil {
			return err
		}
		writes = append(writes, events...)
	}
	return s.bases.Record(ctx, batch, writes)
}
