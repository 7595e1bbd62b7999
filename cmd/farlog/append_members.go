//go:build cgo

package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// A writer asks which rings its members are at every look while one of them is not there.
const (
	membersLook       = 500 * time.Millisecond
	membersAskAll     = 5 * time.Second  // while all are
	membersAskRefused = 30 * time.Second // somebody else has the stream
	membersAskMax     = 5 * time.Second  // for an answer
	endTellMax        = 2 * time.Second  // when nothing is left to do but that
)

// memberWriter is a writer with several rings: a stream's, or a route's of one of its legs.
type memberWriter interface {
	Members() ([]farlog.WriterMember, error)
	ReplaceMember(member int, uri string, ring farlog.Member) error
}

// legWriter is that of a leg.
type legWriter struct {
	route *farlog.Route
	leg   int
}

func (w legWriter) Members() ([]farlog.WriterMember, error) { return w.route.Members(w.leg) }

func (w legWriter) ReplaceMember(member int, uri string, ring farlog.Member) error {
	return w.route.ReplaceMember(w.leg, member, uri, ring)
}

// followMembers tells a writer of rings that are put in the place of others, until it is closed or ctx is done. Without
// the control plane it goes on with those that it has.
func followMembers(ctx context.Context, env *environment, client *controlClient, options appendOptions,
	writer memberWriter, epoch uint32,
) {
	var least, next time.Time // not before; and at the latest
	for pause(ctx, membersLook) {
		members, err := writer.Members()
		if errors.Is(err, farlog.ErrClosed) {
			return
		}
		if len(members) == 0 {
			continue // a leg whose ring is not open just now
		}
		isAway := slices.ContainsFunc(members, func(member farlog.WriterMember) bool {
			return member.State != farlog.MemberUp && member.State != farlog.MemberLate
		})
		if now := time.Now(); now.Before(least) || !isAway && now.Before(next) {
			continue
		}
		request := &api.ExtendWriterRequest{
			Stream: options.stream, Epoch: epoch, Transport: options.transport,
			Holder: env.holder(options.name),
		}
		for _, member := range members {
			request.RingUuids = append(request.RingUuids, member.RingUUID[:])
		}
		if err := extendMembers(ctx, client, request, writer); status.Code(err) == codes.FailedPrecondition {
			least = time.Now().Add(membersAskRefused)
		}
		next = time.Now().Add(membersAskAll)
	}
}

func extendMembers(ctx context.Context, client *controlClient, request *api.ExtendWriterRequest, writer memberWriter,
) error {
	call, cancel := context.WithTimeout(ctx, membersAskMax)
	defer cancel()
	response, err := client.ExtendWriter(call, request)
	if err != nil {
		return err
	}
	for _, one := range response.Members {
		uuid, err := ringUUIDOf(one.Ring.GetRingUuid())
		if err != nil {
			return err
		}
		ring := farlog.Member{RingUUID: uuid}
		copy(ring.Token[:], one.Ring.Token)
		if err := writer.ReplaceMember(int(one.Member), one.Ring.Uri, ring); err != nil {
			return err
		}
	}
	return nil
}

// reportClosed says that a writer has ended by itself, so that nobody takes it for one that vanished. Of a stream that
// is another writer's by now there is nothing to say.
func reportClosed(
	ctx context.Context,
	env *environment,
	client *controlClient,
	options appendOptions,
	epoch uint32,
) error {
	ctx, cancel := context.WithTimeout(ctx, endTellMax)
	defer cancel()
	_, err := client.ExtendWriter(ctx, &api.ExtendWriterRequest{
		Stream: options.stream, Epoch: epoch,
		Holder: env.holder(options.name), Closed: true,
	})
	if code := status.Code(err); code == codes.FailedPrecondition || code == codes.NotFound {
		return nil
	}
	return err
}
