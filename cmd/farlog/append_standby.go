//go:build cgo

package main

import (
	"context"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// standbyPause is the time between two looks at who writes. A target tells of a writer that has gone at its next look, four times a second.
const standbyPause = 30 * time.Millisecond

// unopenedMax is how long one who was granted the stream may take to open it before he counts as gone.
const unopenedMax = 10 * time.Second

// standBy waits until nobody can have a record acknowledged any more: so few of the stream's rings are held for writing, or may be, that they are too few for it. A
// control plane that does not answer is waited for as well.
func standBy(ctx context.Context, env *environment, stream string, talk *appendTalk) error {
	client, err := env.dialControl()
	if err != nil {
		return err
	}
	defer client.Close()
	isTold := false
	var lastEpoch uint32
	var since time.Time // this is the last grant
	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		response, err := client.GetStream(call, &api.GetStreamRequest{Name: stream})
		cancel()
		if epoch := response.GetStream().GetLastGrant().GetEpoch(); since.IsZero() || epoch != lastEpoch {
			lastEpoch, since = epoch, time.Now()
		}
		if err == nil && isWriterGone(response.Stream, time.Since(since) > unopenedMax) {
			talk.printf("standing by: nobody holds stream %s for writing, taking over", stream)
			return nil
		}
		if err != nil && talk.isDue() {
			talk.printf("standing by: %s", client.explain(call, stream, err))
		}
		if err == nil && !isTold {
			talk.printf("standing by for stream %s", stream)
			isTold = true
		}
		if !pause(ctx, standbyPause) {
			return context.Cause(ctx)
		}
	}
}

// isWriterGone tells whether so many of the rings are seen without a writer that the others are too few for an acknowledgement. Where the writer that was granted the
// stream last has not been seen yet nor was fenced, it may just be coming: what the target has told is older.
func isWriterGone(status *api.StreamStatus, isGrantOld bool) bool {
	free := 0
	last := status.GetLastGrant().GetEpoch()
	for _, ring := range status.Rings {
		hasPassed := ring.WriterEpoch >= last || ring.EpochFenced > last || ring.EpochMin > last || isGrantOld
		if slices.Contains(status.TargetsAlive, ring.Target) && len(ring.RingUuid) > 0 && ring.Error == "" && !ring.IsWriterHeld && hasPassed {
			free++
		}
	}
	return free > memberCount(status)-max(1, int(status.Stream.GetK()))
}
