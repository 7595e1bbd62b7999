//go:build cgo

package main

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/store"
)

const (
	scrubFirst = time.Minute // after the start, when the interval is longer
	// scrubRests is how many times as long as it reads the verification rests: the disk is the drain's first.
	scrubRests = 3
)

// scrub reads the drain's whole store now and then, as farlog verify does, so that damage is found while there may
// still be another copy.
type scrub struct {
	store    *store.Store
	interval time.Duration // 0 = never
	logger   *slog.Logger

	mutex sync.Mutex
	last  metrics.StoreSample
}

func (s *scrub) run(ctx context.Context) {
	if s.interval <= 0 {
		return
	}
	for pause := min(s.interval, scrubFirst); ; pause = s.interval {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		s.verify(ctx)
	}
}

func (s *scrub) verify(ctx context.Context) {
	began := time.Now()
	report, err := s.store.Verify(ctx, store.VerifyOptions{Progress: rests(ctx)})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.logger.Error("store could not be verified", "store", s.store.Dir(), "error", err)
		return
	}
	if report.KeyFailure != "" {
		s.logger.Error("store is damaged: run farlog verify", "store", s.store.Dir(), "failure",
			report.KeyFailure)
	}
	damaged := make(map[string]bool, len(report.Streams))
	for _, one := range report.Streams {
		damaged[one.Stream] = one.Failure != nil
		if one.Failure != nil {
			s.logger.Error("store is damaged: run farlog verify", "store", s.store.Dir(), "stream",
				one.Stream, "failure", one.Failure.String())
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last.Verified, s.last.Took, s.last.Damaged = time.Now(), time.Since(began), damaged
}

// rests makes the verification wait after every few megabytes.
func rests(ctx context.Context) func(store.VerifyProgress) {
	since := time.Now()
	return func(store.VerifyProgress) {
		select {
		case <-time.After(scrubRests * time.Since(since)):
		case <-ctx.Done():
		}
		since = time.Now()
	}
}

// sample is what metrics tell.
func (s *scrub) sample() metrics.StoreSample {
	s.mutex.Lock()
	sample := s.last
	sample.Damaged = maps.Clone(sample.Damaged)
	s.mutex.Unlock()
	sample.IsSigningFailing = s.store.SigningFailure() != nil
	var disk unix.Statfs_t
	if err := unix.Statfs(s.store.Dir(), &disk); err == nil {
		sample.FreeBytes = disk.Bavail * uint64(disk.Bsize)
	}
	return sample
}
