package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// CreateStream implements farlog.v1.ControlService.
func (s *Server) CreateStream(ctx context.Context, request *api.CreateStreamRequest) (*api.CreateStreamResponse, error) {
	spec, err := completeSpec(request.Spec)
	if err != nil {
		return nil, err
	}
	if pattern.IsSystem(spec.Name) {
		return nil, invalid("stream ", []*api.Problem{{Field: "spec.name", Value: fmt.Sprintf("%q", spec.Name), Rule: check.SystemRule}})
	}
	if request.IsDryRun {
		return s.wouldCreate(spec)
	}
	stream, isNew, err := s.fabric.createWithin(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := isSameSpec(stream.Spec, spec); err != nil {
		return nil, err
	}
	if now, _ := s.mirror.load(); !isNew && now.isStaying(spec.Name) != nil {
		return nil, now.isStaying(spec.Name)
	}
	if isNew {
		s.config.Logger.Info("created", "stream", spec.Name, "by", callerOf(ctx).ID)
	}
	return &api.CreateStreamResponse{Stream: stream, IsNew: isNew}, nil
}

// wouldCreate says what a creation would come to. Id and salt are chosen when it is made.
func (s *Server) wouldCreate(spec *api.StreamSpec) (*api.CreateStreamResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	if err := now.isStaying(spec.Name); err != nil {
		return nil, err
	}
	if have := now.streams[spec.Name]; have != nil {
		return &api.CreateStreamResponse{Stream: have}, isSameSpec(have.Spec, spec)
	}
	if _, err := now.refuseRoom(spec); err != nil {
		return nil, err
	}
	return &api.CreateStreamResponse{Stream: &api.Stream{Spec: spec, K: spec.Needed}, IsNew: true}, nil
}

func isSameSpec(have, asked *api.StreamSpec) error {
	return alreadyExists("stream", asked.Name, specDifferences(have, asked))
}

// UpdateStream implements farlog.v1.ControlService.
func (s *Server) UpdateStream(ctx context.Context, request *api.UpdateStreamRequest) (*api.UpdateStreamResponse, error) {
	spec, err := completeSpec(request.Spec)
	if err != nil {
		return nil, err
	}
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	have := now.streams[spec.Name]
	if have == nil {
		return nil, now.unknownStream(callerOf(ctx), spec.Name)
	}
	if err := now.isStaying(spec.Name); err != nil {
		return nil, err
	}
	if request.Revision != 0 && request.Revision != have.Revision {
		return nil, staleRevision(fmt.Sprintf("stream %q", spec.Name), have.Revision, request.Revision)
	}
	fields, problems := specChanges(have.Spec, spec, "spec.")
	if len(problems) > 0 {
		return nil, withReason(codes.FailedPrecondition, reasonSpec, fmt.Sprintf("stream %q: %s", spec.Name, check.Text(problems[0])), problems)
	}
	isLimited, err := now.refuseRate(have.Spec, spec)
	if err != nil {
		return nil, err
	}
	if len(fields) == 0 || request.IsDryRun {
		return &api.UpdateStreamResponse{Stream: streamWith(have, spec), Fields: fields}, nil
	}
	var taking *taking
	if isLimited {
		if taking, err = takeQuota(ctx, s.config.Client, now.revision); err != nil {
			return nil, err
		}
	}
	revision, err := updateStream(ctx, s.config.Client, have, spec, taking)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Info("changed", "stream", spec.Name, "by", callerOf(ctx).ID)
	stream := streamWith(have, spec)
	stream.Revision = revision
	return &api.UpdateStreamResponse{Stream: stream, Fields: fields}, s.mirror.waitRevision(ctx, revision)
}

// ListStreams implements farlog.v1.ControlService.
func (s *Server) ListStreams(ctx context.Context, request *api.ListStreamsRequest) (*api.ListStreamsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	after, size, err := pageOf(request)
	if err != nil {
		return nil, err
	}
	names, err := now.streamsNamed(callerOf(ctx), api.ControlService_ListStreams_FullMethodName, "name", request.Name)
	if err != nil {
		return nil, err
	}
	response := &api.ListStreamsResponse{Revision: now.fabricRevision}
	for _, name := range names {
		if name <= after {
			continue
		}
		one := now.status(name)
		if !isListed(one, request) {
			continue
		}
		if len(response.Streams) == size {
			response.NextPageToken = pageToken(response.Streams[size-1].Stream.Spec.Name)
			break
		}
		response.Streams = append(response.Streams, one)
	}
	return response, nil
}

// streamPatternRule is what a name of streams is told that is none.
const streamPatternRule = "expected a name or a pattern such as desk7/* or desk7/**"

// streamsNamed lists the names of the streams that the caller may see, in order; field is where the name or pattern stands in the request.
func (v *view) streamsNamed(caller access.Caller, method, field, named string) ([]string, error) {
	if named == "" {
		named = pattern.All
	}
	if err := checkPattern(field, named, streamPatternRule); err != nil {
		return nil, err
	}
	var names []string
	for name := range v.streams {
		if pattern.Covers([]string{named}, name) && caller.May(method, name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func isListed(one *api.StreamStatus, request *api.ListStreamsRequest) bool {
	return (len(request.Conditions) == 0 || slices.Contains(request.Conditions, one.Condition)) &&
		(request.Drain == "" || one.Assignment.GetDrain() == request.Drain) &&
		(request.Target == "" || slices.ContainsFunc(one.RingSpecs, func(ring *api.RingSpec) bool { return ring.Target == request.Target }))
}

// GetStream implements farlog.v1.ControlService.
func (s *Server) GetStream(ctx context.Context, request *api.GetStreamRequest) (*api.GetStreamResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	if now.streams[request.Name] == nil {
		return nil, now.unknownStream(callerOf(ctx), request.Name)
	}
	return &api.GetStreamResponse{Stream: now.status(request.Name)}, nil
}

// WatchStreams implements farlog.v1.ControlService. A stream carries the revision of its last change, and one that is gone leaves its deletion, so that
// whoever tells the last revision it has heard of is told the rest, however long ago that was.
func (s *Server) WatchStreams(request *api.WatchStreamsRequest, stream grpc.ServerStreamingServer[api.WatchStreamsResponse]) error {
	ctx, last := stream.Context(), request.Revision
	begun, _ := s.mirror.load()
	isAll := last == 0 || last > begun.fabricRevision // heard of another etcd, or of an instance that is further: nobody knows here what came since
	if isAll {
		last = 0
	}
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, changed := s.mirror.load()
		if now.fabricRevision <= last && !isAll {
			return changed, nil
		}
		response, err := now.changedSince(callerOf(ctx), request.Name, last)
		if err == nil && (len(response.Streams)+len(response.Deleted) > 0 || isAll) {
			response.IsAll = isAll
			err = stream.Send(response)
		}
		last, isAll = now.fabricRevision, false
		return changed, err
	})
}

// changedSince lists the streams that were created or changed after a revision, the oldest change first.
func (v *view) changedSince(caller access.Caller, named string, revision int64) (*api.WatchStreamsResponse, error) {
	names, err := v.streamsNamed(caller, api.ControlService_WatchStreams_FullMethodName, "name", named)
	if err != nil {
		return nil, err
	}
	response := &api.WatchStreamsResponse{Revision: v.fabricRevision}
	for _, name := range names {
		if v.streams[name].Revision > revision {
			response.Streams = append(response.Streams, v.streams[name])
		}
	}
	slices.SortStableFunc(response.Streams, func(a, b *api.Stream) int { return int(a.Revision - b.Revision) })
	response.Deleted = v.deletedSince(caller, named, revision)
	return response, nil
}

// ApplyFabric implements farlog.v1.ControlService.
func (s *Server) ApplyFabric(ctx context.Context, request *api.ApplyFabricRequest) (*api.ApplyFabricResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	if request.Revision != 0 && request.Revision != now.fabricRevision {
		return nil, staleRevision("the fabric", now.fabricRevision, request.Revision)
	}
	var pruner *access.Caller
	if caller := callerOf(ctx); request.IsPrune {
		pruner = &caller
	}
	plan, err := planFabric(now, request.Fabric, pruner)
	if err != nil {
		return nil, err
	}
	if err := mayApply(callerOf(ctx), plan); err != nil {
		return nil, err
	}
	if len(plan.problems) > 0 {
		count := "1 problem"
		if len(plan.problems) > 1 {
			count = fmt.Sprintf("%d problems", len(plan.problems))
		}
		return nil, invalid("the fabric has "+count+", nothing is changed: ", plan.problems)
	}
	response := &api.ApplyFabricResponse{Changes: plan.changes, Undeclared: plan.undeclared, Revision: now.fabricRevision, Drift: now.driftFrom(callerOf(ctx), request.Fabric)}
	if request.IsDryRun || len(plan.changes) == 0 {
		return response, nil
	}
	if response.Revision, err = s.fabric.applyPlan(ctx, now, plan); err != nil {
		return nil, err
	}
	for _, change := range plan.changes {
		s.config.Logger.Info("applied", "kind", change.Kind, "name", change.Name, "is_new", change.IsNew, "is_deleted", change.IsDeleted, "by", callerOf(ctx).ID)
	}
	if err := s.mirror.waitRevision(ctx, response.Revision); err != nil {
		return nil, err
	}
	now, _ = s.mirror.load()
	response.Drift = now.driftBehind(callerOf(ctx), request.Fabric, plan.created)
	return response, nil
}

// mayApply asks for the role on every stream and route that would change; a host is every stream's, and a quota is not its tenant's to raise.
func mayApply(caller access.Caller, plan *fabricPlan) error {
	for _, change := range plan.changes {
		isOfAll := change.Kind == "target" || change.Kind == "drain" || change.Kind == "tenant"
		if isOfAll && !slices.Contains(caller.Streams(access.RoleAdmin), pattern.All) {
			return status.Errorf(codes.PermissionDenied, "%s has not the role admin on all streams, which a change of %s %q needs", caller.ID, change.Kind, change.Name)
		}
		if !isOfAll {
			if err := caller.May(api.ControlService_ApplyFabric_FullMethodName, change.Name); err != nil {
				return status.Error(codes.PermissionDenied, err.Error())
			}
		}
	}
	plan.undeclared = slices.DeleteFunc(plan.undeclared, func(one string) bool {
		kind, name, _ := strings.Cut(one, " ")
		return kind != "target" && kind != "drain" && kind != "tenant" && caller.May(api.ControlService_ApplyFabric_FullMethodName, name) != nil
	})
	return nil
}

// GetFabric implements farlog.v1.ControlService.
func (s *Server) GetFabric(ctx context.Context, _ *api.GetFabricRequest) (*api.GetFabricResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	fabric := now.fabric()
	fabric.Streams = slices.DeleteFunc(fabric.Streams, func(spec *api.StreamSpec) bool {
		return callerOf(ctx).May(api.ControlService_GetFabric_FullMethodName, spec.Name) != nil
	})
	fabric.Routes = slices.DeleteFunc(fabric.Routes, func(spec *api.RouteSpec) bool {
		return callerOf(ctx).May(api.ControlService_GetFabric_FullMethodName, spec.Name) != nil
	})
	return &api.GetFabricResponse{Fabric: fabric, Revision: now.fabricRevision, Tenants: now.tenantUses()}, nil
}
