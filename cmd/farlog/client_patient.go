package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// patientConn makes a call again while there is no control plane that takes it, until the call's own timeout. A call
// that only reads is also made again when it was sent and nobody answered it; one that changes something is not, as it
// may have been done.
type patientConn struct {
	*grpc.ClientConn
	client *controlClient
	stderr io.Writer
	told   sync.Once // that it waits

	isPatient bool
}

// Invoke implements grpc.ClientConnInterface.
func (p *patientConn) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption,
) error {
	return p.again(ctx, func() (mayAgain bool, err error) {
		var at peer.Peer // without an address: the call was given to no connection
		err = p.ClientConn.Invoke(ctx, method, request, response, append(slices.Clone(options), grpc.Peer(&at))...)
		return at.Addr == nil || isReading(method) || api.IsBlind(err), err
	})
}

// NewStream implements grpc.ClientConnInterface. One that fails here was given to no connection.
func (p *patientConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (stream grpc.ClientStream, err error) {
	waiting, cancel := context.WithTimeout(ctx, p.client.timeout)
	defer cancel()
	return stream, p.again(waiting, func() (mayAgain bool, err error) {
		stream, err = p.ClientConn.NewStream(ctx, desc, method, options...)
		return true, err
	})
}

func (p *patientConn) again(ctx context.Context, call func() (mayAgain bool, err error)) error {
	if !p.isPatient {
		_, err := call()
		return err
	}
	var final error // which is not asked for again
	_, err := api.Retry(ctx, func() (struct{}, error) {
		mayAgain, err := call()
		if status.Code(err) == codes.Unavailable && (!mayAgain || p.client.isForGood(err)) {
			final, err = err, nil
		}
		if status.Code(err) == codes.Unavailable {
			p.told.Do(func() { p.printWaiting(ctx) })
		}
		return struct{}{}, err
	})
	if final != nil {
		return final
	}
	return err
}

func (p *patientConn) printWaiting(ctx context.Context) {
	left := p.client.timeout
	if deadline, isBounded := ctx.Deadline(); isBounded {
		left = time.Until(deadline).Round(100 * time.Millisecond)
	}
	fmt.Fprintf(p.stderr, "waiting: control plane %s does not answer; retrying for %s\n", p.client.address, left)
}

// isForGood tells a control plane and a client that do not accept each other, which no second call mends, from a
// control plane that is not there, is starting or is stopping.
func (c *controlClient) isForGood(err error) bool {
	refusal := c.refusal(status.Convert(err))
	return refusal != nil && !strings.Contains(refusal.Error(), hungUp) && !c.isStarting(refusal)
}

// isStarting: a control plane on this host listens a moment before it has announced its certificates.
func (c *controlClient) isStarting(refusal error) bool {
	return identity.IsLoopback(c.address) && strings.Contains(refusal.Error(), identity.ErrNoCertificates.Error())
}

// isReading tells the calls that change nothing.
func isReading(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return slices.ContainsFunc([]string{"Get", "List", "Check"},
		func(verb string) bool { return strings.HasPrefix(name, verb) })
}
