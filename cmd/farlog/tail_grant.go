//go:build cgo

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/consume"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	renewPauseMost  = 60 * time.Second // between two attempts to renew a grant
	renewPauseLeast = 100 * time.Millisecond
	renewTimeout    = 10 * time.Second
)

// readerPlace is which rings to read and how, and for how long the grant lets a reader in.
type readerPlace struct {
	writerPlace
	members []farlog.Member // of each ring, also of one
	goodFor time.Duration   // 0: the grant does not end
}

// locateReader finds the rings of a stream: one that is here, or what a reader's grant says.
func locateReader(ctx context.Context, env *environment, options tailOptions) (readerPlace, error) {
	uris, err := ringsOfStream(ctx, env, options.stream)
	if err != nil {
		return readerPlace{}, err
	}
	if len(uris) == 1 && options.transport == "" {
		if _, err := farlog.Inspect(uris[0]); !errors.Is(err, farlog.ErrNotFound) {
			// it is here, or what is wrong with it is told when it is opened
			return readerPlace{writerPlace: writerPlace{uri: uris[0]}}, nil
		}
	}
	return acquireReader(ctx, env, options, acquireTimeoutDefault, nil)
}

// acquireReader gets a reader's grant; in the place of another one, when that is given.
func acquireReader(ctx context.Context, env *environment, options tailOptions, timeout time.Duration,
	before []farlog.Member,
) (place readerPlace, err error) {
	request := &apiv1.AcquireReaderRequest{
		Stream: options.stream, Transport: options.transport,
		Holder: env.holder("farlog tail"),
	}
	for _, member := range before {
		sum := sha256.Sum256(member.Token[:])
		request.Renewed = append(request.Renewed, sum[:])
	}
	err = withControl(ctx, env, timeout, func(ctx context.Context, client apiv1.ControlServiceClient) error {
		answer, err := client.AcquireReader(ctx, request)
		if err != nil {
			return err
		}
		place.goodFor = answer.Grant.GetValidFor().AsDuration()
		place.writerPlace, err = placeOf(answer.Grant)
		return err
	})
	if place.members = place.options.Members; place.members == nil && place.options.Token != nil {
		place.members = []farlog.Member{{RingUUID: *place.options.RingUUID, Token: *place.options.Token}}
	}
	return place, err
}

// tailRenewal asks for another grant before the one that there is has ended, in a goroutine of its own: a control plane
// that does not answer holds up nobody who reads.
type tailRenewal struct {
	env     *environment
	options tailOptions
	newest  atomic.Pointer[renewed] // what came of the last attempt
	taken   *renewed                // by the goroutine that reads
	isLate  bool                    // of the same: it was said that there is none
}

type renewed struct {
	place readerPlace
	err   error
}

// startRenewing begins, until ctx is done. nil: such a grant does not end.
func startRenewing(ctx context.Context, env *environment, options tailOptions, place readerPlace) *tailRenewal {
	if place.goodFor == 0 {
		return nil
	}
	r := &tailRenewal{env: env, options: options}
	go r.run(ctx, place)
	return r
}

// run renews when half of the time is over, so that there are several attempts while the grant is still good.
func (r *tailRenewal) run(ctx context.Context, place readerPlace) {
	wait := max(place.goodFor/2, renewPauseLeast)
	for pause(ctx, wait) {
		next, err := acquireReader(ctx, r.env, r.options, renewTimeout, place.members)
		if err == nil {
			place, wait = next, max(next.goodFor/2, renewPauseLeast)
		} else {
			wait = min(max(place.goodFor/10, renewPauseLeast), renewPauseMost)
		}
		r.newest.Store(&renewed{next, err})
	}
}

// applyRenewal gives what came of it to the consumer, and says when there is no grant to be had, and when there is
// again. Safe with nil.
func (r *tailRenewal) applyRenewal(t *tailer) error {
	if r == nil {
		return nil
	}
	newest := r.newest.Load()
	if newest == r.taken {
		return nil
	}
	r.taken = newest
	if newest.err != nil {
		if !r.isLate {
			fmt.Fprintf(r.env.stderr, "the grant to read stream %q is not renewed: %s; reading on with the one that "+
				"there is, asking again\n", r.options.stream, oneLine(newest.err))
		}
		r.isLate = true
		return nil
	}
	if r.isLate {
		fmt.Fprintf(r.env.stderr, "the grant to read stream %q is renewed\n", r.options.stream)
	}
	r.isLate = false
	return t.consumer.Renew(consume.Grant{
		RingURI: newest.place.uri, Token: newest.place.options.Token,
		Members: newest.place.members,
	})
}
