//go:build cgo

package main

import (
	"context"
	"errors"
	"time"

	"github.com/farlog/farlog/pkg/loglimit"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

const (
	segmentsRound = time.Second // at least, between two looks at the same stream
	segmentsRests = 99          // times as long as it looks: of many streams each is looked at less often
)

// watchSegments looks whether files of the store were taken away under the drain. The appender of a stream that lacks
// one then fails, and its worker says so.
func (r *drainRole) watchSegments(ctx context.Context) {
	var limit loglimit.Limiter
	for ctx.Err() == nil {
		began := time.Now()
		for _, worker := range r.list() {
			since := time.Now()
			stream, err := worker.assignment.Stream, worker.checkSegments()
			if err != nil && !errors.Is(err, store.ErrMissing) && !errors.Is(err, store.ErrClosed) {
				if suppressed, isAllowed := limit.Allow(r.store.Dir(), since); isAllowed {
					r.logger.Warn("segments of the store could not be looked for, trying again", "stream", stream,
						"error", oneLine(err), "not_logged", suppressed)
				}
			}
			if retry.Sleep(ctx, segmentsRests*time.Since(since)) != nil {
				return
			}
		}
		_ = retry.Sleep(ctx, segmentsRound-time.Since(began)) // the loop sees that it is over
	}
}

func (w *drainWorker) checkSegments() error {
	w.mutex.Lock()
	appender := w.appender
	w.mutex.Unlock()
	if appender == nil {
		return nil
	}
	return appender.CheckSegments()
}
