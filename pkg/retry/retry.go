// Package retry waits between tries of something that others try as well: pauses grow, and differ from one to another,
// so that not all come back at the same moment.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// jitter is by which part of itself a pause is longer or shorter at most.
const jitter = 0.25

// Delays are the pauses of one loop. They double from a shortest to a longest one; each is up to a quarter longer or
// shorter. One goroutine uses them.
type Delays struct{ *backoff.ExponentialBackOff }

// New makes Delays that begin with shortest.
func New(shortest, longest time.Duration) Delays {
	delays := Delays{backoff.NewExponentialBackOff()}
	delays.InitialInterval, delays.MaxInterval = shortest, longest
	delays.Multiplier, delays.RandomizationFactor = 2, jitter
	delays.Reset()
	return delays
}

// Wait waits for the next pause, or until ctx is done, and returns the error of ctx.
func (d Delays) Wait(ctx context.Context) error { return Sleep(ctx, d.NextBackOff()) }

// Sleep waits for a duration, or until ctx is done, and returns the error of ctx.
func Sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}
