package service

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// CreateStream implements farlog.v1.ControlService.
func (s *Server) CreateStream(ctx context.Context, request *api.CreateStreamRequest) (*api.CreateStreamResponse,
	error,
) {
	spec, err := fabric.CompleteStream(request.Spec)
	if err != nil {
		return nil, err
	}
	if pattern.IsSystem(spec.Name) {
		return nil, refusal.InvalidArgument("stream ", []*api.Problem{{
			Field: "spec.name",
			Value: fmt.Sprintf("%q", spec.Name), Rule: check.SystemRule,
		}})
	}
	if request.DryRun {
		return s.wouldCreate(spec)
	}
	stream, isNew, err := s.fabric.CreateStream(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := isSameSpec(stream.Spec, spec); err != nil {
		return nil, err
	}
	if now, _ := s.mirror.Load(); !isNew && now.CheckNotDeleted(spec.Name) != nil {
		return nil, now.CheckNotDeleted(spec.Name)
	}
	if isNew {
		s.config.Logger.Info("created", "stream", spec.Name, "by", callerOf(ctx).ID)
	}
	return &api.CreateStreamResponse{Stream: stream, Created: isNew}, nil
}

// wouldCreate says what a creation would come to. Id and salt are chosen when it is made.
func (s *Server) wouldCreate(spec *api.StreamSpec) (*api.CreateStreamResponse, error) {
	now := s.view()
	if err := now.CheckNotDeleted(spec.Name); err != nil {
		return nil, err
	}
	if have := now.Streams[spec.Name]; have != nil {
		return &api.CreateStreamResponse{Stream: have}, isSameSpec(have.Spec, spec)
	}
	if _, err := fabric.CheckSpace(now, spec); err != nil {
		return nil, err
	}
	return &api.CreateStreamResponse{Stream: &api.Stream{Spec: spec, K: spec.Needed}, Created: true}, nil
}

func isSameSpec(have, asked *api.StreamSpec) error {
	return alreadyExists("stream", asked.Name, fabric.StreamDifferences(have, asked))
}

// UpdateStream implements farlog.v1.ControlService.
func (s *Server) UpdateStream(ctx context.Context, request *api.UpdateStreamRequest) (*api.UpdateStreamResponse,
	error,
) {
	spec, err := fabric.CompleteStream(request.Spec)
	if err != nil {
		return nil, err
	}
	now := s.view()
	have := now.Streams[spec.Name]
	if have == nil {
		return nil, unknownStream(now, callerOf(ctx), spec.Name)
	}
	if err := now.CheckNotDeleted(spec.Name); err != nil {
		return nil, err
	}
	if request.Revision != 0 && request.Revision != have.Revision {
		return nil, refusal.StaleRevision(fmt.Sprintf("stream %q", spec.Name), have.Revision, request.Revision)
	}
	fields, problems := fabric.StreamChanges(have.Spec, spec, "spec.")
	if len(problems) > 0 {
		return nil, refusal.WithReason(codes.FailedPrecondition, refusal.ReasonSpec,
			fmt.Sprintf("stream %q: %s", spec.Name, check.Text(problems[0])), problems)
	}
	isLimited, err := fabric.CheckRate(now, have.Spec, spec)
	if err != nil {
		return nil, err
	}
	if len(fields) == 0 || request.DryRun {
		return &api.UpdateStreamResponse{Stream: fabric.StreamWith(have, spec), Fields: fields}, nil
	}
	var taking *fabric.Quota
	if isLimited {
		if taking, err = fabric.AcquireQuota(ctx, s.config.Client, now.Revision); err != nil {
			return nil, err
		}
	}
	revision, err := fabric.UpdateStream(ctx, s.config.Client, have, spec, taking)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Info("changed", "stream", spec.Name, "by", callerOf(ctx).ID)
	stream := fabric.StreamWith(have, spec)
	stream.Revision = revision
	return &api.UpdateStreamResponse{Stream: stream, Fields: fields}, s.mirror.WaitRevision(ctx, revision)
}

// ListStreams implements farlog.v1.ControlService.
func (s *Server) ListStreams(ctx context.Context, request *api.ListStreamsRequest) (*api.ListStreamsResponse, error) {
	now := s.view()
	names, err := streamsNamed(now, callerOf(ctx), api.ControlService_ListStreams_FullMethodName, "name", request.Name)
	if err != nil {
		return nil, err
	}
	response := &api.ListStreamsResponse{Revision: now.FabricRevision}
	response.Streams, response.NextPageToken, err = onePage(request, names,
		func(name string) (*api.StreamStatus, bool) {
			one := now.Status(name)
			return one, isListed(one, request)
		})
	return response, err
}

// streamPatternRule is what a name of streams is told that is none.
const streamPatternRule = "expected a name or a pattern such as desk7/* or desk7/**"

// streamsNamed lists the names of the streams that the caller may see, in order; field is where the name or pattern
// stands in the request.
func streamsNamed(v *state.View, caller access.Caller, method, field, named string) ([]string, error) {
	return namesAmong(v.Streams, caller, method, field, named)
}

// namesAmong lists, in order, the names that a name or pattern means and on which a caller has a role for a call.
func namesAmong[T any](all map[string]T, caller access.Caller, method, field, named string) ([]string, error) {
	named = cmp.Or(named, pattern.All)
	if err := checkPattern(field, named, streamPatternRule); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool {
		return !pattern.Covers([]string{named}, name) || caller.May(method, name) != nil
	}), nil
}

func isListed(one *api.StreamStatus, request *api.ListStreamsRequest) bool {
	return (len(request.Conditions) == 0 || slices.Contains(request.Conditions, one.Condition)) &&
		(request.Drain == "" || one.Assignment.GetDrain() == request.Drain) &&
		(request.Target == "" || slices.ContainsFunc(one.RingSpecs,
			func(ring *api.RingSpec) bool { return ring.Target == request.Target }))
}

// GetStream implements farlog.v1.ControlService.
func (s *Server) GetStream(ctx context.Context, request *api.GetStreamRequest) (*api.GetStreamResponse, error) {
	now := s.view()
	if now.Streams[request.Name] == nil {
		return nil, unknownStream(now, callerOf(ctx), request.Name)
	}
	return &api.GetStreamResponse{Stream: now.Status(request.Name)}, nil
}

// WatchStreams implements farlog.v1.ControlService. A stream carries the revision of its last change, and one that is
// gone leaves its deletion, so that whoever tells the last revision it has learned of is told the rest, however long
// ago that was.
func (s *Server) WatchStreams(request *api.WatchStreamsRequest,
	stream grpc.ServerStreamingServer[api.WatchStreamsResponse],
) error {
	ctx, last := stream.Context(), request.Revision
	begun, _ := s.mirror.Load()
	// learned of another etcd, or of an instance that is further: nobody knows here what came since
	isAll := last == 0 || last > begun.FabricRevision
	if isAll {
		last = 0
	}
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, changed := s.mirror.Load()
		if now.FabricRevision <= last && !isAll {
			return changed, nil
		}
		response, err := streamsChangedSince(now, callerOf(ctx), request.Name, last)
		if err == nil && (len(response.Streams)+len(response.Deleted) > 0 || isAll) {
			response.Snapshot = isAll
			err = stream.Send(response)
		}
		last, isAll = now.FabricRevision, false
		return changed, err
	})
}

// streamsChangedSince lists the streams that were created or changed after a revision, the oldest change first.
func streamsChangedSince(v *state.View, caller access.Caller, named string, revision int64) (*api.WatchStreamsResponse,
	error,
) {
	names, err := streamsNamed(v, caller, api.ControlService_WatchStreams_FullMethodName, "name", named)
	if err != nil {
		return nil, err
	}
	response := &api.WatchStreamsResponse{Revision: v.FabricRevision}
	for _, name := range names {
		if v.Streams[name].Revision > revision {
			response.Streams = append(response.Streams, v.Streams[name])
		}
	}
	slices.SortStableFunc(response.Streams, func(a, b *api.Stream) int { return int(a.Revision - b.Revision) })
	response.Deleted = deletedSince(v, caller, named, revision)
	return response, nil
}

// ApplyFabric implements farlog.v1.ControlService.
func (s *Server) ApplyFabric(ctx context.Context, request *api.ApplyFabricRequest) (*api.ApplyFabricResponse, error) {
	now := s.view()
	if request.Revision != 0 && request.Revision != now.FabricRevision {
		return nil, refusal.StaleRevision("the fabric", now.FabricRevision, request.Revision)
	}
	var pruner *access.Caller
	if caller := callerOf(ctx); request.Prune {
		pruner = &caller
	}
	plan, err := fabric.NewPlan(now, request.Fabric, pruner)
	if err != nil {
		return nil, err
	}
	if err := mayApply(callerOf(ctx), plan); err != nil {
		return nil, err
	}
	if len(plan.Problems) > 0 {
		count := "1 problem"
		if len(plan.Problems) > 1 {
			count = fmt.Sprintf("%d problems", len(plan.Problems))
		}
		return nil, refusal.InvalidArgument("the fabric has "+count+", nothing is changed: ", plan.Problems)
	}
	response := &api.ApplyFabricResponse{
		Changes: plan.Changes, Undeclared: plan.Undeclared,
		Revision: now.FabricRevision, Drift: fabric.DriftFrom(now, callerOf(ctx), request.Fabric),
	}
	if request.DryRun || len(plan.Changes) == 0 {
		return response, nil
	}
	if response.Revision, err = s.fabric.ApplyPlan(ctx, now, plan); err != nil {
		return nil, err
	}
	for _, change := range plan.Changes {
		s.config.Logger.Info("applied", "kind", change.Kind, "name", change.Name, "created", change.Created, "deleted",
			change.Deleted, "by", callerOf(ctx).ID)
	}
	if err := s.mirror.WaitRevision(ctx, response.Revision); err != nil {
		return nil, err
	}
	now, _ = s.mirror.Load()
	response.Drift = fabric.DriftBehind(now, callerOf(ctx), request.Fabric, plan.Created)
	return response, nil
}

// mayApply asks for the role on every stream and route that would change; a host is every stream's, and a quota is not
// its tenant's to raise.
func mayApply(caller access.Caller, plan *fabric.Plan) error {
	for _, change := range plan.Changes {
		isOfAll := change.Kind == "target" || change.Kind == "drain" || change.Kind == "tenant"
		if isOfAll && !slices.Contains(caller.Streams(access.RoleAdmin), pattern.All) {
			return status.Errorf(codes.PermissionDenied,
				"%s has not the role admin on all streams, which a change of %s %q needs", caller.ID, change.Kind,
				change.Name)
		}
		if !isOfAll {
			if err := caller.May(api.ControlService_ApplyFabric_FullMethodName, change.Name); err != nil {
				return status.Error(codes.PermissionDenied, err.Error())
			}
		}
	}
	plan.Undeclared = slices.DeleteFunc(plan.Undeclared, func(one string) bool {
		kind, name, _ := strings.Cut(one, " ")
		return kind != "target" && kind != "drain" && kind != "tenant" &&
			caller.May(api.ControlService_ApplyFabric_FullMethodName, name) != nil
	})
	return nil
}

// GetFabric implements farlog.v1.ControlService.
func (s *Server) GetFabric(ctx context.Context, _ *api.GetFabricRequest) (*api.GetFabricResponse, error) {
	now := s.view()
	wanted := fabric.Declared(now)
	wanted.Streams = slices.DeleteFunc(wanted.Streams, func(spec *api.StreamSpec) bool {
		return callerOf(ctx).May(api.ControlService_GetFabric_FullMethodName, spec.Name) != nil
	})
	wanted.Routes = slices.DeleteFunc(wanted.Routes, func(spec *api.RouteSpec) bool {
		return callerOf(ctx).May(api.ControlService_GetFabric_FullMethodName, spec.Name) != nil
	})
	return &api.GetFabricResponse{Fabric: wanted, Revision: now.FabricRevision, Tenants: fabric.TenantUses(now)}, nil
}
