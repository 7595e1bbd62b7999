//go:build cgo

package main

import (
	"context"
	"fmt"
	"strings"

	apiv1 "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// remoteReader holds the reader's grants of a stream's rings on other hosts.
type remoteReader struct {
	stream string
	grants map[string]farlog.Member // by URI
}

// openRemoteReader asks the control plane for the grants. They fence nobody.
func openRemoteReader(ctx context.Context, env *environment, stream string, uris []string) (*remoteReader, error) {
	transport := ""
	for _, uri := range uris {
		if isRemoteURI(uri) {
			transport, _, _ = strings.Cut(uri, ":")
		}
	}
	f := &remoteReader{stream: stream, grants: map[string]farlog.Member{}}
	return f, withControl(ctx, env, acquireTimeoutDefault,
		func(ctx context.Context, client apiv1.ControlServiceClient) error {
			answer, err := client.AcquireReader(ctx, &apiv1.AcquireReaderRequest{
				Stream: stream, Transport: transport,
				Holder: env.holder("farlog verify"),
			})
			if err != nil {
				return err
			}
			for _, member := range answer.GetGrant().GetMembers() {
				uuid, err := ringUUIDOf(member.GetRingUuid())
				if err != nil {
					return fmt.Errorf("grant for stream %q: %w", stream, err)
				}
				one := farlog.Member{RingUUID: uuid}
				copy(one.Token[:], member.GetToken())
				f.grants[member.GetUri()] = one
			}
			return nil
		})
}

func (f *remoteReader) open(uri string) (imageSource, error) {
	grant, isThere := f.grants[uri]
	if !isThere {
		return nil, fmt.Errorf("it is no ring of stream %q by what the control plane grants readers of it; farlog "+
			"stream show names them", f.stream)
	}
	return farlog.OpenImage(uri, grant)
}
