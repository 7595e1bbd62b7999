package service

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// CheckWriters implements farlog.v1.ControlService. A host agent that cannot watch asks it for all writers of its host
// together, instead of ExtendWriter for each of them: with ten thousand writers that were two thousand calls a second.
func (s *Server) CheckWriters(ctx context.Context, request *api.CheckWritersRequest) (*api.CheckWritersResponse,
	error,
) {
	now := s.view()
	response := new(api.CheckWritersResponse)
	for i, writer := range request.Writers {
		if writer == nil || !isUpToDate(writerState(now, callerOf(ctx), request.Host, writer.Stream), writer) {
			response.Changed = append(response.Changed, uint32(i))
		}
	}
	return response, nil
}

// WatchWriters implements farlog.v1.ControlService. It goes by the grants' hosts, so that what changes elsewhere costs
// the watches of a host nothing.
func (s *Server) WatchWriters(request *api.WatchWritersRequest,
	stream grpc.ServerStreamingServer[api.WatchWritersResponse],
) error {
	named := request.Stream
	named = cmp.Or(named, pattern.All)
	if err := checkPattern("stream", named, streamPatternRule); err != nil {
		return err
	}
	ctx := stream.Context()
	caller, told := callerOf(ctx), newMemory()
	if err := caller.MayReport(request.Host); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	l, leave := s.mirror.Subscribe(request.Host, 0)
	defer leave()
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, streams, isAll := s.mirror.Next(l)
		if isAll {
			streams = writtenFrom(now, request.Host)
			told.begin()
		}
		response := &api.WatchWritersResponse{Snapshot: isAll}
		for _, name := range streams {
			if pattern.Covers([]string{named}, name) {
				addWriter(now, response, told, name, writerState(now, caller, request.Host, name),
					otherWriter(now, caller, request.Host, name))
			}
		}
		if len(response.Writers)+len(response.Gone)+len(response.Others) == 0 && !isAll {
			return l.Wakeup, nil
		}
		return l.Wakeup, stream.Send(response)
	})
}

// addWriter puts one writer into an answer, if it is another one than was told.
func addWriter(v *state.View, response *api.WatchWritersResponse, told *memory, name string, state *api.WriterState,
	other *api.OtherWriter,
) {
	switch {
	case state != nil && isNew(told, name, []*api.WriterState{state}):
		response.Writers = append(response.Writers, state)
	case other != nil && isNew(told, name, []*api.OtherWriter{other}):
		response.Others, response.Gone = append(response.Others, other), append(response.Gone, name)
	case state == nil && other == nil && isNew(told, name, []*api.WriterState(nil)):
		response.Gone = append(response.Gone, name)
	}
}

// writtenFrom lists the streams whose newest grant is for a host.
func writtenFrom(v *state.View, host string) (streams []string) {
	for name, grant := range v.Grants {
		if grant.GetHolder().GetHost() == host {
			streams = append(streams, name)
		}
	}
	return streams
}

// grantFor is the newest grant of a stream, where it is for a host from which the caller may write that; else nil.
func grantFor(v *state.View, caller access.Caller, host, name string) *api.Grant {
	grant := v.Grants[name]
	if v.Streams[name] == nil || v.CheckNotDeleted(name) != nil ||
		caller.May(api.ControlService_ExtendWriter_FullMethodName, name) != nil || caller.MayHold(name, host) != nil {
		return nil
	}
	if v.Epochs[name] != grant.GetEpoch() || grant.GetHolder().GetHost() != host {
		return nil
	}
	return grant
}

// otherWriter is a stream's writer on a host by another identity's grant; nil: there is none that the caller may know
// of.
func otherWriter(v *state.View, caller access.Caller, host, name string) *api.OtherWriter {
	grant := grantFor(v, caller, host, name)
	if grant == nil || grant.Holder.Identity == string(caller.ID) || len(grant.Members) == 0 {
		return nil
	}
	first := grant.Members[0]
	return &api.OtherWriter{Stream: name, Target: first.Target, RingUuid: first.RingUuid, Level: grant.Level}
}

// writerState is what ExtendWriter would say to a stream's writer on a host; nil: it would refuse the caller.
func writerState(v *state.View, caller access.Caller, host, name string) *api.WriterState {
	grant := grantFor(v, caller, host, name)
	holder := grant.GetHolder()
	if grant == nil || holder.GetIdentity() != string(caller.ID) {
		return nil
	}
	return &api.WriterState{
		Stream: name, Epoch: grant.GetEpoch(), Pid: holder.GetPid(), Declared: settingsOf(v.Streams[name].Spec),
		Running: runningSettings(grant), RingUuids: replacedRings(v, name),
	}
}

// replacedRings are the rings that have come in the place of others, and are there, by member; empty: none has.
func replacedRings(v *state.View, name string) (uuids [][]byte) {
	rings, _ := reconcile.RingSpecs(v.Rings, v.Streams[name])
	for i, ring := range rings {
		if ring.GetReplacement() != nil && reconcile.IsBoundRing(ring, reconcile.SeenRing(v.Targets, ring)) {
			uuids = append(uuids, make([][]byte, i+1-len(uuids))...)
			uuids[i] = ring.RingUuid
		}
	}
	return uuids
}

// isUpToDate reports whether ExtendWriter would say of a writer what it has said, and has nothing to note of it.
func isUpToDate(now *api.WriterState, writer *api.RunningWriter) bool {
	return now != nil && now.Epoch == writer.Epoch && now.Pid == writer.Pid && writer.Declared != nil &&
		isSameSettings(writer.Declared, now.Declared) &&
		(writer.Running == nil || isSameSettings(writer.Running, now.Running)) &&
		len(changedRings(now.RingUuids, writer.RingUuids)) == 0
}
