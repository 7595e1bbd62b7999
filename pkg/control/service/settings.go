package service

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/state"
)

// settingsOf is how a stream's writer shall acknowledge.
func settingsOf(spec *api.StreamSpec) *api.WriterSettings {
	return &api.WriterSettings{Level: spec.Level, Policy: spec.Policy, Deadline: spec.Deadline}
}

// runningSettings is how a grant's holder acknowledges, as far as he has said.
func runningSettings(grant *api.Grant) *api.WriterSettings {
	if grant.Running != nil {
		return grant.Running
	}
	return &api.WriterSettings{Level: grant.Level, Policy: grant.Policy, Deadline: grant.Deadline}
}

// noteWriter keeps what a writer says that it runs with, so that whoever looks at the stream sees whether it has taken
// a change in, and that it has ended by itself, so that nobody looks after it. Nothing depends on it: where it cannot
// be kept, a writer that runs says it again, and one that has ended is told of its error.
func (s *Server) noteWriter(ctx context.Context, now *state.View, request *api.ExtendWriterRequest) error {
	noted := proto.Clone(now.Grants[request.Stream]).(*api.Grant)
	if request.Running != nil && !isSameSettings(request.Running, runningSettings(noted)) {
		noted.Running = request.Running
	}
	if request.Closed && noted.CloseTime == nil {
		noted.CloseTime = timestamppb.Now()
	}
	if proto.Equal(noted, now.Grants[request.Stream]) {
		return nil
	}
	value, err := etcd.Encode(noted)
	if err != nil {
		return err
	}
	put, err := s.config.Client.Txn(ctx).If(state.UnchangedSince(now,
		etcd.KeyGrants+request.Stream)).Then(clientv3.OpPut(etcd.KeyGrants+request.Stream, value)).Commit()
	if err != nil {
		s.config.Logger.Warn("settings of a running writer could not be saved", "stream", request.Stream, "error", err)
	}
	switch {
	case !request.Closed:
		return nil
	case err == nil && !put.Succeeded:
		return grant.ErrRingsChanged
	}
	return err
}

func isSameSettings(one, other *api.WriterSettings) bool {
	return one.Level == other.Level && one.Policy == other.Policy &&
		one.Deadline.AsDuration() == other.Deadline.AsDuration()
}
