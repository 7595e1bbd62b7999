package service

import (
	"context"
	"os"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/fabric"
)

// GrantSystem makes a stream of the control plane's own when it is not there, and grants it to this process.
func (s *Server) GrantSystem(ctx context.Context, spec *api.StreamSpec, host string) (*api.Grant, error) {
	spec, err := fabric.CompleteStream(spec)
	if err != nil {
		return nil, err
	}
	_, _, revision, err := fabric.CreateStream(ctx, s.config.Client, spec)
	if err != nil {
		return nil, err
	}
	if err := s.mirror.WaitRevision(ctx, revision); err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, callerKey{}, access.Caller{ID: "control", IsLocal: true})
	response, err := s.AcquireWriter(ctx, &api.AcquireWriterRequest{
		Stream: spec.Name,
		Holder: &api.Holder{Host: host, Pid: uint32(os.Getpid()), Name: "farlogd control"},
	})
	return response.GetGrant(), err
}
