package drain

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/retry"
)

const (
	// awayMax is how long a ring on another host may not answer before the drain ends. Opening it again then tells what
	// is wrong.
	awayMax      = 30 * time.Second
	awayPauseMax = 500 * time.Millisecond
)

// isFar tells a ring on another host, or several: one of those may be there.
func (d *drainer) isFar() bool {
	return strings.HasPrefix(d.config.RingURI, "ofi:") || strings.HasPrefix(d.config.RingURI, "verbs:") ||
		d.hasMembers()
}

// hasMembers tells a stream with several rings.
func (d *drainer) hasMembers() bool {
	_, uris := farlog.MemberURIs(d.config.RingURI)
	return len(uris) > 1
}

// isAway tells an error that a broken connection may explain. A record whose bytes did not come looks like one that is
// unreadable.
func (d *drainer) isAway(err error) bool {
	return d.isFar() && (errors.Is(err, farlog.ErrIO) || errors.Is(err, farlog.ErrCorrupt))
}

// readWhenBack reads when the ring's host answers again. What is unreadable then is unreadable.
func (d *drainer) readWhenBack(ctx context.Context, err error) (batch farlog.Batch, _ error) {
	err = d.whenBack(ctx, err, func() error {
		batch, err = d.read()
		return err
	})
	return batch, err
}

// release gives the writer the space. Before a second attempt the ring's header is fetched: which of the two head slots
// must be overwritten depends on whether the first attempt arrived.
func (d *drainer) release(ctx context.Context, batch farlog.Batch) error {
	attempt := func() error { return d.reader.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch) }
	err := attempt()
	if err != nil && d.isFar() && errors.Is(err, farlog.ErrIO) {
		err = d.whenBack(ctx, err, attempt)
	}
	return err
}

// whenBack attempts what failed again whenever the ring's host answers. The connection comes back by itself; this only
// waits for it.
func (d *drainer) whenBack(ctx context.Context, err error, attempt func() error) error {
	delays := retry.New(retryIntervalMin, awayPauseMax)
	for began := time.Now(); time.Since(began) < awayMax; {
		if errors.Is(err, farlog.ErrIO) {
			d.stuck("ring cannot be reached, draining goes on by itself when it can", err)
			d.report()
		}
		if err := delays.Wait(ctx); err != nil {
			return err
		}
		if _, err = d.reader.Status(); err == nil {
			err = attempt()
		}
		if !errors.Is(err, farlog.ErrIO) {
			if !errors.Is(err, farlog.ErrHeld) {
				d.recovered()
			}
			return err
		}
	}
	return err
}
