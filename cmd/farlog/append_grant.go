//go:build cgo

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// withControl calls the control plane, within timeout, and makes one line of what goes wrong.
func withControl(ctx context.Context, env *environment, timeout time.Duration,
	call func(context.Context, apiv1.ControlServiceClient) error) error {
	client, err := env.dialControl()
	if err != nil {
		return usageErrorf("%s", oneLine(err))
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = call(ctx, client)
	if err == nil {
		return nil
	}
	failure := status.Convert(err)
	if refusal := client.refusal(failure); refusal != nil {
		return refusal
	}
	if failure.Code() == codes.Unavailable && isUnreached(failure.Message()) {
		return fmt.Errorf("control plane at %s does not answer: start one (farlogd dev --data-dir DIR), or give --control HOST:PORT; --ring URI needs none", env.control)
	}
	if failure.Code() == codes.Unavailable || failure.Code() == codes.DeadlineExceeded {
		return fmt.Errorf("control plane at %s did not answer as wanted within %s: %s", env.control, timeout, failure.Message())
	}
	return fmt.Errorf("control plane at %s: %s", env.control, failure.Message())
}

// acquireWriter gets the right to write the stream, with an epoch that nobody else was given.
func acquireWriter(ctx context.Context, env *environment, options appendOptions) (writerPlace, error) {
	host, _ := os.Hostname() // empty is allowed: it is shown to people only
	request := &apiv1.AcquireWriterRequest{
		Stream: options.stream, EpochSeen: options.epochSeen,
		Holder: &apiv1.Holder{Host: host, Pid: uint32(os.Getpid()), Name: options.name}, Transport: options.transport,
	}
	var grant *apiv1.Grant
	err := withControl(ctx, env, options.acquireTimeout, func(ctx context.Context, client apiv1.ControlServiceClient) error {
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
	if len(grant.GetMembers()) != 1 {
		return writerPlace{}, fmt.Errorf("stream %q has %d members; this build writes to exactly 1", grant.GetStream(),
			len(grant.GetMembers()))
	}
	member := grant.GetMembers()[0]
	place := writerPlace{
		uri: member.GetUri(),
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
	uuid, err := ringUUIDOf(member.GetRingUuid())
	if err != nil {
		return writerPlace{}, fmt.Errorf("grant for stream %q: %w", grant.GetStream(), err)
	}
	place.options.RingUUID, place.recordLenMax = &uuid, grant.GetRecordLenMax()
	if token := member.GetToken(); len(token) == farlog.TokenLen {
		place.options.Token = (*[farlog.TokenLen]byte)(token)
	}
	return place, nil
}

func ringUUIDOf(raw []byte) (uuid [16]byte, err error) {
	if len(raw) != len(uuid) {
		return uuid, fmt.Errorf("ring uuid of %d bytes, expected %d", len(raw), len(uuid))
	}
	return [16]byte(raw), nil
}
