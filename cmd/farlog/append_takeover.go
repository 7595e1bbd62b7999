//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// heldPause is the time between two looks at a stream that another writer holds.
const heldPause = 100 * time.Millisecond

// fencedPause is how often a writer whose input brings nothing asks whether it is fenced.
const fencedPause = time.Second

// waitStreamFree waits until no living writer holds the stream, for as long as a grant is waited for: a grant fences
// writers on other hosts, and without --takeover a writer that lives is not taken from, wherever its ring is.
func waitStreamFree(ctx context.Context, env *environment, options appendOptions, talk *appendTalk) error {
	isTold := false
	for until := time.Now().Add(options.acquireTimeout); ; {
		var status *api.StreamStatus
		err := withControl(ctx, env, options.acquireTimeout,
			func(ctx context.Context, client api.ControlServiceClient) error {
				response, err := client.GetStream(ctx, &api.GetStreamRequest{Name: options.stream})
				status = response.GetStream()
				return err
			})
		if err != nil {
			return fmt.Errorf("acquire writer of stream %q: %w", options.stream, err)
		}
		holder := holderOf(status, env.holder(options.name).Host)
		if holder == nil {
			return nil
		}
		held := fmt.Sprintf("stream %s is held by a living writer, %s, epoch %d", options.stream, holder.WriterId,
			holder.WriterEpoch)
		if time.Now().After(until) {
			return fmt.Errorf("%s: nothing was appended; --takeover fences that writer, --standby waits for its end",
				held)
		}
		if !isTold {
			talk.printf("%s: waiting for its end, at most %s (--acquire-timeout)", held, options.acquireTimeout)
			isTold = true
		}
		if !pause(ctx, heldPause) {
			return context.Cause(ctx)
		}
	}
}

// holderOf gives a ring of the stream that is held for writing, unless so many are free that its writer can have
// nothing acknowledged. Of a ring in a namespace that was written from this host nobody knows it but the ring's lock.
func holderOf(status *api.StreamStatus, host string) *api.RingState {
	if isWriterGone(status, true) {
		return nil
	}
	for _, ring := range status.GetRings() {
		if isSeen(status, ring) && ring.WriterHeld && (ring.WriterHost == "" || ring.WriterHost != host) {
			return ring
		}
	}
	return nil
}

// fenceHere fences the writer that holds a ring of this host, for the epoch that was granted: it lives, and lets the
// ring go when it finds that out.
func fenceHere(place writerPlace) error {
	_, uris := farlog.MemberURIs(place.uri)
	for _, uri := range uris {
		if isRemoteRing(uri) {
			continue // its target has fenced it
		}
		// another fence is under way
		if err := farlog.Fence(uri, place.options.Epoch); err != nil && !errors.Is(err, farlog.ErrHeld) {
			return fmt.Errorf("fence the writer of ring %q: %w", uri, err)
		}
	}
	return nil
}
