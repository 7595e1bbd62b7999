//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
)

// tailWaitPause is between two looks for a log to read.
const tailWaitPause = 100 * time.Millisecond

// waiting makes attempts until one does not say that what it wants may come yet, or the time is over. It says once why.
func (t *tailer) waiting(ctx context.Context, attempt func() (mayCome bool, err error)) error {
	for isTold := false; ; {
		mayCome, err := attempt()
		if err == nil || !mayCome || time.Now().Add(tailWaitPause).After(t.until) {
			return err
		}
		if !isTold {
			fmt.Fprintf(t.env.stderr, "waiting at most %s (--wait): %s\n", time.Until(t.until).Round(time.Second),
				oneLine(err))
			isTold = true
		}
		if !pause(ctx, tailWaitPause) {
			return err
		}
	}
}

// open opens the log. Rings of several members that nobody has written yet are none that a reader can tell the log
// from.
func (t *tailer) open(ctx context.Context, config consume.Config) (consumer *consume.Consumer, err error) {
	err = t.waiting(ctx, func() (mayCome bool, err error) {
		consumer, err = consume.Open(config)
		return hasMembers(config.RingURI) && errors.Is(err, farlog.ErrIO), err
	})
	return consumer, err
}

// locate finds the rings of a stream, and waits for the first of them.
func (t *tailer) locate(ctx context.Context, options tailOptions) (place readerPlace, err error) {
	err = t.waiting(ctx, func() (mayCome bool, err error) {
		place, err = locateReader(ctx, t.env, options)
		return errors.Is(err, errNoRing), err
	})
	return place, err
}

var errNoRing = errors.New("has no ring yet")

// ringsOfStream asks the control plane where the stream's rings are. One of several may not be there; "" then.
func ringsOfStream(ctx context.Context, env *environment, name string) (uris []string, err error) {
	isThere, reason := false, ""
	err = withControl(ctx, env, 10*time.Second, func(ctx context.Context, client apiv1.ControlServiceClient) error {
		response, err := client.GetStream(ctx, &apiv1.GetStreamRequest{Name: name})
		if err != nil {
			return err
		}
		uris, isThere, reason = nil, false, response.GetStream().GetReason()
		for _, ring := range response.GetStream().GetRings() {
			uris, isThere = append(uris, ring.GetUri()), isThere || ring.GetUri() != ""
		}
		return nil
	})
	if err == nil && !isThere {
		err = fmt.Errorf("stream %q %w: %s", name, errNoRing, reason)
	}
	return uris, err
}
