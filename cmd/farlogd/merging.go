//go:build cgo

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

const (
	mergeRetryLeast = time.Second
	mergeRetryMost  = time.Minute
)

// merging keeps the store's streams in one order while the drain stores them. What goes wrong with it stops no drain.
type merging struct {
	store  *store.Store
	late   time.Duration // 0 = no order is made
	logger *slog.Logger

	mutex    sync.Mutex
	before   merge.Progress // counts of runs that have ended
	progress merge.Progress
	failure  string
}

// run merges, and begins again with growing pauses when that ends with an error, such as a full disk.
func (m *merging) run(ctx context.Context) {
	if m.late == 0 {
		return
	}
	delays, last := retry.New(mergeRetryLeast, mergeRetryMost), ""
	for ctx.Err() == nil {
		began := time.Now()
		err := m.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > mergeRetryMost {
			delays.Reset()
		}
		if text := oneLine(err); text != last {
			m.logger.Error("merge failed, retrying", "store", m.store.Dir(), "error", text)
			last = text
		}
		_ = delays.Wait(ctx) // the loop sees that it is over
	}
}

func (m *merging) once(ctx context.Context) error {
	merger, err := merge.Open(m.store, merge.Options{LateLimit: m.late})
	if err == nil {
		err = merger.Run(ctx, m.setProgress)
		if closeErr := merger.Close(); err == nil {
			err = closeErr
		}
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.before.Entries, m.before.Late, m.before.Early = m.total()
	m.progress.Entries, m.progress.Late, m.progress.Early = 0, 0, 0
	if err != nil {
		m.failure = oneLine(err)
	}
	return err
}

func (m *merging) setProgress(progress merge.Progress) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if progress.Late > m.progress.Late {
		m.logger.Warn("records came into the merged order late", "records", progress.Late-m.progress.Late, "order_time",
			progress.OrderTime)
	}
	m.progress, m.failure = progress, ""
}

func (m *merging) total() (entries, late, early uint64) {
	return m.before.Entries + m.progress.Entries, m.before.Late + m.progress.Late, m.before.Early + m.progress.Early
}

func (m *merging) healthy() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.failure == "" {
		return nil
	}
	return fmt.Errorf("merged order of store %s: %s", m.store.Dir(), m.failure)
}

// sample is what metrics tell; nothing when no order is made.
func (m *merging) sample() (metrics.MergeSample, bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	sample := metrics.MergeSample{
		OrderTime: m.progress.OrderTime, Absent: m.progress.Absent,
		Streams: m.progress.Streams, IsWaiting: m.progress.WaitsFor != "", IsFailing: m.failure != "",
	}
	sample.Records, sample.Late, sample.Early = m.total()
	return sample, m.late != 0
}
