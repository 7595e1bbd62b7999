//go:build cgo

package main

import (
	"context"
	"fmt"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/hostagent"
	"github.com/farlog/farlog/pkg/identity"
)

// extend asks the control plane which rings of a writer of this host were replaced.
func (r *hostRole) extend(ctx context.Context, request hostagent.ExtendRequest) ([]hostagent.Extension, error) {
	response, err := r.client.ExtendWriter(ctx, &api.ExtendWriterRequest{
		Stream: request.Stream, Epoch: request.Epoch, Transport: request.Transport, RingUuids: request.RingUUIDs,
		Holder: &api.Holder{Host: r.settings.hostName, Pid: uint32(request.PID), Addresses: identity.Addresses(r.settings.hostAddresses)},
	})
	if err != nil {
		return nil, refusalOf(err)
	}
	var extensions []hostagent.Extension
	for _, one := range response.Members {
		if n := len(one.Ring.GetToken()); len(one.Ring.GetRingUuid()) != 16 || n != 0 && n != farlog.TokenLen {
			return nil, fmt.Errorf("ring of stream %q with a uuid of %d bytes and a token of %d, expected 16 and %d", request.Stream, len(one.Ring.GetRingUuid()), n, farlog.TokenLen)
		}
		extensions = append(extensions, hostagent.Extension{Member: one.Member, URI: one.Ring.Uri, RingUUID: [16]byte(one.Ring.RingUuid), Token: one.Ring.Token})
	}
	return extensions, nil
}
