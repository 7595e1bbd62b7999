//go:build cgo

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// withControl calls the control plane, again while there is none, within timeout, and makes one line of what goes
// wrong.
func withControl(ctx context.Context, env *environment, timeout time.Duration,
	call func(context.Context, apiv1.ControlServiceClient) error,
) error {
	client, err := env.dialControl()
	if err != nil {
		return usageErrorf("%s", oneLine(err))
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = apiv1.Retry(ctx, func() (struct{}, error) { return struct{}{}, call(ctx, client) })
	if err == nil {
		return nil
	}
	failure := status.Convert(err)
	if refusal := client.refusal(failure); refusal != nil {
		return refusal
	}
	if failure.Code() == codes.Unavailable && isUnreached(failure.Message()) {
		return fmt.Errorf("control plane at %s does not answer within %s: start one (farlogd dev --data-dir DIR), or "+
			"give --control HOST:PORT; --ring URI needs none", env.control, timeout)
	}
	if failure.Code() == codes.Unavailable || failure.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("control plane at %s did not answer as wanted within %s: %s", env.control, timeout,
			failure.Message())
	}
	return fmt.Errorf("control plane at %s: %s", env.control, failure.Message())
}

// acquireWriter gets the right to write the stream, with an epoch that nobody else was given.
func acquireWriter(ctx context.Context, env *environment, options appendOptions) (writerPlace, error) {
	request := &apiv1.AcquireWriterRequest{
		Stream: options.stream, EpochSeen: options.epochSeen,
		Holder: env.holder(options.name), Transport: options.transport,
		RequestId: apiv1.NewRequestID(), NoTakeover: !options.isTakeover && !options.isStandby,
	}
	var grant *apiv1.Grant
	err := withControl(ctx, env, options.acquireTimeout,
		func(ctx context.Context, client apiv1.ControlServiceClient) error {
			response, err := client.AcquireWriter(ctx, request)
			grant = response.GetGrant()
			return err
		})
	if err != nil {
		return writerPlace{}, fmt.Errorf("acquire writer of stream %q: %w", options.stream, err)
	}
	return placeOf(grant)
}

func placeOf(grant *apiv1.Grant) (writerPlace, error) {
	if len(grant.GetMembers()) == 0 {
		return writerPlace{}, fmt.Errorf("grant for stream %q names no ring", grant.GetStream())
	}
	place := writerPlace{
		granted: grant.GetLevel(),
		options: farlog.WriterOptions{
			Level:    farlog.Level(grant.GetLevel()),
			Epoch:    grant.GetEpoch(),
			Deadline: grant.GetDeadline().AsDuration(),
			Name:     grant.GetHolder().GetName(),
		},
	}
	if grant.GetPolicy() == apiv1.Policy_POLICY_REJECT {
		place.options.Policy = farlog.PolicyReject
	}
	var uris []string
	var members []farlog.Member
	for _, member := range grant.GetMembers() {
		uuid, err := ringUUIDOf(member.GetRingUuid())
		if err != nil {
			return writerPlace{}, fmt.Errorf("grant for stream %q: %w", grant.GetStream(), err)
		}
		one := farlog.Member{RingUUID: uuid}
		copy(one.Token[:], member.GetToken())
		uris, members = append(uris, member.GetUri()), append(members, one)
	}
	place.uri, place.recordLenMax = farlog.MembersURI(int(grant.GetK()), uris...), grant.GetRecordLenMax()
	place.setMembers(members)
	return place, nil
}

// setMembers takes what is said of the rings; a zero token is none.
func (p *writerPlace) setMembers(members []farlog.Member) {
	if len(members) > 1 {
		p.options.Members = members
		return
	}
	p.options.RingUUID = &members[0].RingUUID
	if members[0].Token != [farlog.TokenLen]byte{} {
		p.options.Token = &members[0].Token
	}
}

// hasToken reports whether a ring of it is on another host.
func (p *writerPlace) hasToken() bool {
	return p.options.Token != nil || slices.ContainsFunc(p.options.Members,
		func(member farlog.Member) bool { return member.Token != [farlog.TokenLen]byte{} })
}

func ringUUIDOf(raw []byte) (uuid [16]byte, err error) {
	if len(raw) != len(uuid) {
		return uuid, fmt.Errorf("ring uuid of %d bytes, expected %d", len(raw), len(uuid))
	}
	return [16]byte(raw), nil
}
