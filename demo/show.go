package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	tick        = 50 * time.Millisecond
	outage      = 400 * time.Millisecond // how long the drain stays dead
	barWidth    = 30
	plainPeriod = 5 * time.Second // of a progress line where there is no terminal
)

// kill is one planned death: in a phase, when a share of it is over.
type kill struct {
	phase phase
	share float64
	part  string
}

var kills = []kill{
	{phaseBurst, 0.40, partDrain},
	{phaseBurst, 0.70, partWriter},
	{phaseFull, 0.30, partDrain},
	{phaseFull, 0.60, partWriter},
}

// show draws the progress and kills processes in mid-flow.
type show struct {
	site    *site
	feed    *feed
	records uint64

	mu       sync.Mutex
	phase    phase
	began    time.Time
	duration time.Duration // of the burst phase
	base     uint64        // acknowledged when the phase began
	left     []kill

	drawnAt   time.Time
	lastCount uint64
	lastAt    time.Time
	rate      float64
}

func newShow(s *site, f *feed, records uint64) *show {
	return &show{site: s, feed: f, records: records, left: kills, lastAt: time.Now()}
}

func (s *show) enter(in phase, duration time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase, s.began, s.duration, s.base = in, time.Now(), duration, s.feed.acknowledgedCount()
}

// run ticks until all is fed or ctx is done. A drain that it killed it starts again in any case. Its error is a drain
// that did not come up.
func (s *show) run(ctx context.Context, fed <-chan struct{}) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-fed:
			return nil
		case <-ticker.C:
		}
		if err := s.strike(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		s.draw()
	}
}

func (s *show) share() (phase, float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		return s.phase, 0
	}
	if s.phase == phaseBurst {
		return s.phase, time.Since(s.began).Seconds() / s.duration.Seconds()
	}
	return s.phase, float64(s.feed.acknowledgedCount()-s.base) / float64(max(s.records-s.base, 1))
}

// strike carries out the next planned kill when its time has come. One whose phase went by is left out.
func (s *show) strike(ctx context.Context) error {
	in, share := s.share()
	for len(s.left) > 0 && s.left[0].phase < in {
		s.left = s.left[1:]
	}
	if len(s.left) == 0 || s.left[0].phase != in || share < s.left[0].share {
		return nil
	}
	part := s.left[0].part
	s.left = s.left[1:]
	victim := s.site.part(part)
	if victim == nil || victim.hasEnded() {
		return nil
	}
	say("SIGKILL to the %s (pid %d) after %s acknowledged records", part, victim.cmd.Process.Pid,
		grouped(s.feed.acknowledgedCount()))
	victim.kill()
	if part == partWriter {
		return nil // the feed starts another
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(outage):
	}
	s.draw()
	if err := s.site.startDrain(ctx); err != nil {
		return err
	}
	say("drain is up again")
	return nil
}

func (s *show) draw() {
	now, count := time.Now(), s.feed.acknowledgedCount()
	if period := now.Sub(s.lastAt); period >= time.Second/2 {
		s.rate = float64(count-s.lastCount) / period.Seconds()
		s.lastCount, s.lastAt = count, now
	}
	period := tick
	if !isTerminal {
		period = plainPeriod
	}
	if now.Sub(s.drawnAt) < period {
		return
	}
	s.drawnAt = now
	done := int(barWidth * count / max(s.records, 1))
	line := fmt.Sprintf("[%s%s] %s of %s acknowledged  %s/s  lag %s", strings.Repeat("=", min(done, barWidth)),
		strings.Repeat(" ", max(barWidth-done, 0)), grouped(count), grouped(s.records), grouped(uint64(s.rate)),
		s.lag())
	if isTerminal {
		fmt.Print(clearLine + line)
		return
	}
	say("%s", line)
}

func (s *show) lag() string {
	status, err := ringStatus(s.site.ringURI)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f MiB", float64(status.LagBytes)/(1<<20))
}

// latencies prints what the phase's last writer measured; its counters outlive it.
func (s *show) latencies(when string) {
	status, err := ringStatus(s.site.ringURI)
	if err != nil {
		return
	}
	counters, err := farlog.ReadCounters("", status.RingUUID)
	if err != nil || counters.LatencyCount() == 0 {
		return
	}
	say("append latency %s, level %s on %s by %s: p50 %s  p99 %s  p99.9 %s  max %s (%s group commits)", when,
		s.site.options.level,
		status.Contract.Kind, status.Contract.FlushMethod, counters.Quantile(0.5), counters.Quantile(0.99),
		counters.Quantile(0.999),
		counters.Quantile(1), grouped(counters.LatencyCount()))
}

// waitDrained waits until the ring is empty.
func (s *show) waitDrained(ctx context.Context) error {
	say("waiting for the drain")
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for {
		status, err := ringStatus(s.site.ringURI)
		if err != nil {
			return err
		}
		if status.LagBytes == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ring %s still holds %d undrained bytes: %w", s.site.ringURI, status.LagBytes, ctx.Err())
		case <-s.site.part(partDrain).exited:
			return fmt.Errorf("the drain ended by itself; its log is %s", s.site.dir("drain.log"))
		case <-time.After(tick):
		}
	}
}

// grouped writes 1234567 as 1,234,567.
func grouped(n uint64) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
