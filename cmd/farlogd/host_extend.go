//go:build cgo

package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/hostagent"
	"github.com/farlog/farlog/pkg/identity"
)

// extend asks the control plane how the stream of a writer of this host is declared by now, and which of its rings were
// replaced.
func (r *hostRole) extend(ctx context.Context, request hostagent.ExtendRequest) ([]hostagent.Extension, hostagent.Terms,
	error,
) {
	response, err := r.client.ExtendWriter(ctx, &api.ExtendWriterRequest{
		Running: runningSettings(request.Running), Closed: request.IsClosed,
		Stream: request.Stream, Epoch: request.Epoch, Transport: request.Transport, RingUuids: request.RingUUIDs,
		Holder: &api.Holder{
			Host: r.settings.hostName, Pid: uint32(request.PID),
			Addresses: identity.Addresses(r.settings.hostAddresses),
		},
	})
	if err != nil {
		return nil, hostagent.Terms{}, refusalOf(err)
	}
	var extensions []hostagent.Extension
	for _, one := range response.Members {
		if n := len(one.Ring.GetToken()); len(one.Ring.GetRingUuid()) != 16 || n != 0 && n != farlog.TokenLen {
			return nil, hostagent.Terms{}, fmt.Errorf("ring of stream %q with a uuid of %d bytes and a token of %d, "+
				"expected 16 and %d", request.Stream, len(one.Ring.GetRingUuid()), n, farlog.TokenLen)
		}
		extensions = append(extensions, hostagent.Extension{
			Member: one.Member, URI: one.Ring.Uri,
			RingUUID: [16]byte(one.Ring.RingUuid), Token: one.Ring.Token,
		})
	}
	return extensions, settingsOf(response.Declared), nil
}

// check asks the control plane for many writers of this host whether anything is to be told to one of them.
func (r *hostRole) check(ctx context.Context, writers []hostagent.Known) (changed []int, err error) {
	request := &api.CheckWritersRequest{Host: r.settings.hostName}
	for _, one := range writers {
		request.Writers = append(request.Writers, &api.RunningWriter{
			Stream: one.Stream, Epoch: one.Epoch,
			Pid: uint32(one.PID), RingUuids: one.RingUUIDs, Running: runningSettings(one.Running),
			Declared: runningSettings(&one.Declared),
		})
	}
	response, err := r.client.CheckWriters(ctx, request)
	for _, place := range response.GetChanged() {
		changed = append(changed, int(place))
	}
	return changed, err
}

// watch has the control plane tell of all writers of this host, and of each when it is to be told something else; of
// those that have their grants from elsewhere, where their counters are. An older one cannot: it is asked for the
// former.
func (r *hostRole) watch(ctx context.Context, onTold func([]hostagent.Told, []string, bool), onDown func()) {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchWritersResponse], error) {
		return r.client.WatchWriters(ctx, &api.WatchWritersRequest{Host: r.settings.hostName})
	}
	api.Follow(ctx, open, func(message *api.WatchWritersResponse) {
		var told []hostagent.Told
		for _, one := range message.Writers {
			told = append(told, hostagent.Told{
				Stream: one.Stream, Epoch: one.Epoch, PID: int32(one.Pid),
				Declared: settingsOf(one.Declared), Running: settingsOf(one.Running), RingUUIDs: one.RingUuids,
			})
		}
		onTold(told, message.Gone, message.Snapshot)
		for _, one := range message.Others {
			r.remember(one.Stream, hostWriter{
				RingUUID: hex.EncodeToString(one.RingUuid), Target: one.Target,
				Level: farlog.Level(one.Level).String(),
			})
		}
	}, func(err error) {
		onDown()
		if status.Code(err) == codes.Unimplemented {
			r.logger.Info("the control plane is an older version and sends no changes: it is asked for all writers " +
				"of this host every 2s")
			return
		}
		r.logger.Info(
			"no watch of this host's writers: polling the control plane until the watch is back",
			"error",
			err,
		)
	})
}

// settingsOf is what was declared, as the C library numbers it.
func settingsOf(declared *api.WriterSettings) hostagent.Terms {
	policy := farlog.PolicyBlock
	if declared.GetPolicy() == api.Policy_POLICY_REJECT {
		policy = farlog.PolicyReject
	}
	return hostagent.Terms{
		Level: uint32(declared.GetLevel()), Policy: uint32(policy),
		Deadline: declared.GetDeadline().AsDuration(),
	}
}

func runningSettings(running *hostagent.Terms) *api.WriterSettings {
	if running == nil {
		return nil
	}
	policy := api.Policy_POLICY_BLOCK
	if running.Policy == uint32(farlog.PolicyReject) {
		policy = api.Policy_POLICY_REJECT
	}
	terms := &api.WriterSettings{Level: api.Level(running.Level), Policy: policy}
	if running.Deadline > 0 {
		terms.Deadline = durationpb.New(running.Deadline)
	}
	return terms
}
