//go:build cgo

package main

import (
	"context"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/farlog"
)

// standbyPause is the time between two looks at who writes. A target tells at once of a far writer that has come or
// gone, and of one on its own host at its next look, four times a second.
const standbyPause = 20 * time.Millisecond

// goneLooks is at how many looks in a row the writer has to be gone: a connection that breaks is made again by its
// writer within a few milliseconds.
const goneLooks = 2

// hungAfterMin is two of the targets' reports, and a second for them to come.
const hungAfterMin = 3 * time.Second

// unopenedMax is how long one who was granted the stream may take to open it before he counts as gone.
const unopenedMax = 10 * time.Second

// standBy waits until nobody can have a record acknowledged any more: so few of the stream's rings are held for
// writing, or may be, that they are too few for it; or, with hungAfter, until the stream has brought nothing for so
// long. A control plane that does not answer is waited for as well.
func standBy(ctx context.Context, env *environment, options appendOptions, talk *appendTalk) error {
	stream, hungAfter := options.stream, options.hungAfter
	client, err := env.dialControlOnce()
	if err != nil {
		return err
	}
	defer client.Close()
	isTold := false
	var lastEpoch uint32
	var since time.Time // this is the last grant
	var silence silence
	for gone := 0; ; {
		call, cancel := context.WithTimeout(ctx, client.timeout)
		response, err := client.GetStream(call, &api.GetStreamRequest{Name: stream})
		cancel()
		if epoch := response.GetStream().GetLastGrant().GetEpoch(); since.IsZero() || epoch != lastEpoch {
			lastEpoch, since = epoch, time.Now()
		}
		if err == nil && isWriterGone(response.Stream, time.Since(since) > unopenedMax) {
			gone++
		} else {
			gone = 0
		}
		if gone >= goneLooks {
			talk.printf("standing by: nobody holds stream %s for writing, taking over", stream)
			return nil
		}
		if silent := silence.update(response.GetStream(), time.Now()); hungAfter > 0 && silent >= hungAfter {
			talk.printf("standing by: stream %s has brought neither record nor heartbeat for %s, taking over", stream,
				silent.Round(time.Millisecond))
			return nil
		}
		if err != nil && talk.isDue() {
			talk.printf("standing by: %s", client.explain(call, stream, err))
		}
		if err == nil && !isTold {
			prepareFor(response.Stream, options.transport)
			talk.printf("standing by for stream %s", stream)
			isTold = true
		}
		if !pause(ctx, standbyPause) {
			return context.Cause(ctx)
		}
	}
}

// prepareFor loads now what opening the stream's rings takes. What is missing is said when they are opened.
func prepareFor(status *api.StreamStatus, transport string) {
	for _, ring := range status.GetRings() {
		// what it takes is the same by any rail
		if uri := reconcile.RemoteURI(ring.RemoteUris, transport, ring.Stream, 0); uri != "" {
			_ = farlog.Prepare(uri)
		}
	}
}

// silence is since when nothing more of a stream has been acknowledged, as its targets tell, nor another epoch begun.
type silence struct {
	// of what is acknowledged. Not of what was appended: beside the writer a target looks at its counters, and the
	// writer may be cut off
	endLSN uint64
	epoch  uint32
	since  time.Time
}

// update tells how long the stream has been silent, as far as was seen: the time in which nobody tells of it (status is
// nil, or too few of its targets report) does not count.
func (s *silence) update(status *api.StreamStatus, now time.Time) time.Duration {
	seen, endLSN := 0, uint64(0)
	for _, ring := range status.GetRings() {
		if !isSeen(status, ring) {
			continue
		}
		seen++
		endLSN = max(endLSN, ring.DurableLsn)
	}
	epoch := status.GetLastGrant().GetEpoch()
	if !isEnough(status, seen) || endLSN != s.endLSN || epoch != s.epoch || s.since.IsZero() {
		*s = silence{endLSN: endLSN, epoch: epoch, since: now}
	}
	return now.Sub(s.since)
}

// isSeen reports whether a ring is there and its target tells of it.
func isSeen(status *api.StreamStatus, ring *api.RingState) bool {
	return slices.Contains(status.TargetsAlive, ring.Target) && len(ring.RingUuid) > 0 && ring.Error == ""
}

// isEnough reports whether without so many of the rings the others are too few for an acknowledgement.
func isEnough(status *api.StreamStatus, rings int) bool {
	return status != nil && rings > memberCount(status)-max(1, int(status.Stream.GetK()))
}

// isWriterGone reports whether so many of the rings are seen without a writer that the others are too few for an
// acknowledgement. Where the writer that was granted the stream last has not been seen yet nor was fenced, it may just
// be coming: what the target has told is older.
func isWriterGone(status *api.StreamStatus, isGrantOld bool) bool {
	free := 0
	last := status.GetLastGrant().GetEpoch()
	for _, ring := range status.Rings {
		hasPassed := ring.WriterEpoch >= last || ring.EpochFenced > last || ring.EpochMin > last || isGrantOld
		if isSeen(status, ring) && !ring.WriterHeld && hasPassed {
			free++
		}
	}
	return isEnough(status, free)
}
