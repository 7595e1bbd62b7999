//go:build cgo

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farlog/farlog/pkg/retention"
	"github.com/farlog/farlog/pkg/store"
)

const retentionInterval = time.Minute

// retain removes from the store what its retention policy lets go. What goes wrong with it stops no drain.
func (r *drainRole) retain(ctx context.Context) {
	said, clock := map[string]string{}, retention.NewClock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retentionInterval):
		}
		r.removeOnce(clock, said)
	}
}

// removeOnce removes, and says in the log what, and what keeps a stream, when that is another reason than before.
func (r *drainRole) removeOnce(clock *retention.Clock, said map[string]string) {
	enforcer := &retention.Enforcer{Store: r.store, Clock: clock, Remove: r.removeBefore}
	if r.settings.storeServe != "" {
		enforcer.Unknown = "replicas may read this store from --store-serve, and how far they are is not known: " +
			"nothing is removed"
	}
	results, err := enforcer.Enforce()
	if err != nil {
		results = append(results, retention.Result{Blocked: oneLine(err)})
	}
	for _, one := range results {
		if one.Segments > 0 {
			where := one.Archive
			if where == "" {
				where = "nowhere: removed without an archive"
			}
			r.logger.Warn("segments removed", "stream", one.Stream, "segments", one.Segments, "begins_at", one.Before,
				"archived_at", where, "policy", one.Policy)
		}
		if one.Blocked != "" && one.Blocked != said[one.Stream] {
			r.logger.Warn("retention keeps segments", "stream", one.Stream, "reason", one.Blocked)
		}
		said[one.Stream] = one.Blocked
	}
}

// removeBefore removes with the appender of the stream's worker, which has the stream's lock; without a worker with the
// lock itself.
func (r *drainRole) removeBefore(stream string, removal store.Removal) error {
	for _, worker := range r.list() {
		if worker.assignment.Stream != stream {
			continue
		}
		worker.mutex.Lock()
		appender := worker.appender
		worker.mutex.Unlock()
		if appender == nil {
			return fmt.Errorf("stream %s: its drain has not opened it yet", stream)
		}
		_, err := appender.RemoveBefore(removal)
		return err
	}
	_, err := r.store.RemoveBefore(stream, removal)
	return err
}

func (w *drainWorker) keepAppender(appender *store.Appender) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.appender = appender
}
