package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// CreateRoute implements farlog.v1.ControlService.
func (s *Server) CreateRoute(ctx context.Context, request *api.CreateRouteRequest) (*api.CreateRouteResponse, error) {
	now, spec, err := s.checkRoute(request.Spec)
	if err != nil {
		return nil, err
	}
	if have := now.Routes[spec.Name]; have != nil {
		if changes := fabric.RouteChanges(have.Spec, spec); len(changes) > 0 {
			return nil, alreadyExists("route", spec.Name, changes)
		}
		return &api.CreateRouteResponse{Route: have}, nil
	}
	made := fabric.RouteWith(nil, spec)
	if request.DryRun {
		return &api.CreateRouteResponse{Route: made, Created: true}, nil
	}
	if made.Revision, err = fabric.WriteRoute(ctx, s.config.Client, now, spec); err != nil {
		return nil, err
	}
	s.config.Logger.Info("created", "route", spec.Name, "by", callerOf(ctx).ID)
	return &api.CreateRouteResponse{Route: made, Created: true}, s.mirror.WaitRevision(ctx, made.Revision)
}

// UpdateRoute implements farlog.v1.ControlService.
func (s *Server) UpdateRoute(ctx context.Context, request *api.UpdateRouteRequest) (*api.UpdateRouteResponse, error) {
	now, spec, err := s.checkRoute(request.Spec)
	if err != nil {
		return nil, err
	}
	have, err := routeAt(now, callerOf(ctx), spec.Name, request.Revision)
	if err != nil {
		return nil, err
	}
	made, fields := fabric.RouteWith(have, spec), fabric.RouteChanges(have.Spec, spec)
	made.Revision = have.Revision
	if len(fields) == 0 || request.DryRun {
		return &api.UpdateRouteResponse{Route: made, Fields: fields}, nil
	}
	if made.Revision, err = fabric.WriteRoute(ctx, s.config.Client, now, spec); err != nil {
		return nil, err
	}
	s.config.Logger.Info("changed", "route", spec.Name, "by", callerOf(ctx).ID)
	return &api.UpdateRouteResponse{Route: made, Fields: fields}, s.mirror.WaitRevision(ctx, made.Revision)
}

// checkRoute completes a spec and looks at it among all other routes.
func (s *Server) checkRoute(asked *api.RouteSpec) (*state.View, *api.RouteSpec, error) {
	spec, err := fabric.CompleteRoute(asked)
	if err != nil {
		return nil, nil, err
	}
	now := s.view()
	if problems := check.Route(now.Declared(), spec); len(problems) > 0 {
		return nil, nil, refusal.InvalidArgument(fmt.Sprintf("route %q: ", spec.Name), problems)
	}
	return now, spec, nil
}

// routeAt is the route of that name, as somebody has seen it who tells its revision.
func routeAt(v *state.View, caller access.Caller, name string, revision int64) (*api.Route, error) {
	have := v.Routes[name]
	if have == nil {
		return nil, unknownRoute(v, caller, name)
	}
	if revision != 0 && revision != have.Revision {
		return nil, refusal.StaleRevision(fmt.Sprintf("route %q", name), have.Revision, revision)
	}
	return have, nil
}

// unknownRoute names some of the routes that there are for this caller.
func unknownRoute(v *state.View, caller access.Caller, name string) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(v.Routes)), func(one string) bool {
		return caller.May(api.ControlService_ListRoutes_FullMethodName, one) != nil
	})
	return status.Errorf(codes.NotFound, "route %q: there is none of that name; %s", name,
		someOf(names, ": farlog route create makes one"))
}

// DeleteRoute implements farlog.v1.ControlService.
func (s *Server) DeleteRoute(ctx context.Context, request *api.DeleteRouteRequest) (*api.DeleteRouteResponse, error) {
	now := s.view()
	have, err := routeAt(now, callerOf(ctx), request.Name, request.Revision)
	if err != nil {
		return nil, err
	}
	if by := now.RouteSpecs().WhoSelects("", request.Name); by != "" {
		return nil, refusal.Precondition(refusal.ReasonSelected, "name", refusal.Quote(request.Name),
			"expected a route that no other selects: route %q does", by).
			Errorf("route %q is not deleted: route %q selects it: change or delete that first", request.Name, by)
	}
	if request.DryRun {
		return &api.DeleteRouteResponse{Route: have}, nil
	}
	revision, err := fabric.DeleteRoute(ctx, s.config.Client, now, request.Name)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Info("deleted", "route", request.Name, "by", callerOf(ctx).ID)
	return &api.DeleteRouteResponse{Route: have}, s.mirror.WaitRevision(ctx, revision)
}

// ListRoutes implements farlog.v1.ControlService.
func (s *Server) ListRoutes(ctx context.Context, request *api.ListRoutesRequest) (*api.ListRoutesResponse, error) {
	now := s.view()
	names, err := routesNamed(now, callerOf(ctx), api.ControlService_ListRoutes_FullMethodName, request.Name)
	if err != nil {
		return nil, err
	}
	all := now.RouteSpecs()
	response := &api.ListRoutesResponse{Revision: now.RouteRevision}
	response.Routes, response.NextPageToken, err = onePage(request, names, func(name string) (*api.Route, bool) {
		return now.Routes[name], request.Stream == "" || hasLeg(all, name, request.Stream)
	})
	return response, err
}

func hasLeg(all check.Routes, name, stream string) bool {
	return slices.ContainsFunc(check.LegsOf(all.Resolve(name)),
		func(leg *api.RouteLeg) bool { return leg.Stream == stream })
}

// routesNamed lists the routes that a name or pattern means, and on which a caller has a role for a call.
func routesNamed(v *state.View, caller access.Caller, method, named string) ([]string, error) {
	return namesAmong(v.Routes, caller, method, "name", named)
}

// GetRoute implements farlog.v1.ControlService.
func (s *Server) GetRoute(ctx context.Context, request *api.GetRouteRequest) (*api.GetRouteResponse, error) {
	now := s.view()
	have, err := routeAt(now, callerOf(ctx), request.Name, 0)
	if err != nil {
		return nil, err
	}
	return &api.GetRouteResponse{Route: have, Resolved: now.RouteSpecs().Resolve(request.Name)}, nil
}

// WatchRoutes implements farlog.v1.ControlService. Each message is the whole truth, so that one that was missed does no
// harm.
func (s *Server) WatchRoutes(request *api.WatchRoutesRequest,
	stream grpc.ServerStreamingServer[api.WatchRoutesResponse],
) error {
	ctx, last, isFirst := stream.Context(), request.Revision, request.Revision == 0
	var told *api.WatchRoutesResponse // not again when a route has changed that the caller does not see
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, changed := s.mirror.Load()
		if now.RouteRevision == last && !isFirst {
			return changed, nil
		}
		last, isFirst = now.RouteRevision, false
		names, err := routesNamed(now, callerOf(ctx), api.ControlService_WatchRoutes_FullMethodName, request.Name)
		if err != nil {
			return nil, err
		}
		response, all := &api.WatchRoutesResponse{Revision: now.RouteRevision}, now.RouteSpecs()
		for _, name := range names {
			response.Routes = append(response.Routes, &api.GetRouteResponse{
				Route:    now.Routes[name],
				Resolved: all.Resolve(name),
			})
		}
		if told != nil && isSameRoutes(told.Routes, response.Routes) {
			return changed, nil
		}
		told = response
		return changed, stream.Send(response)
	})
}

func isSameRoutes(one, other []*api.GetRouteResponse) bool {
	return slices.EqualFunc(one, other, func(a, b *api.GetRouteResponse) bool { return proto.Equal(a, b) })
}

// AcquireRoute implements farlog.v1.ControlService. The streams are granted side by side: one whose fence has to be
// waited for holds up no other.
func (s *Server) AcquireRoute(ctx context.Context, request *api.AcquireRouteRequest) (*api.AcquireRouteResponse,
	error,
) {
	now := s.view()
	have, err := routeAt(now, callerOf(ctx), request.Route, 0)
	if err != nil {
		return nil, err
	}
	if err := checkHolder(request.Holder); err != nil {
		return nil, err
	}
	if err := callerOf(ctx).MayHoldRoute(request.Route, request.Holder.GetHost()); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	response := &api.AcquireRouteResponse{Route: have, Resolved: now.RouteSpecs().Resolve(request.Route)}
	for _, leg := range check.LegsOf(response.Resolved) {
		if len(request.Streams) == 0 || slices.Contains(request.Streams, leg.Stream) {
			response.Legs = append(response.Legs, &api.LegGrant{Stream: leg.Stream, Optional: leg.Optional})
		}
	}
	for _, stream := range request.Streams {
		if !slices.ContainsFunc(response.Legs, func(leg *api.LegGrant) bool { return leg.Stream == stream }) {
			return nil, refusal.InvalidArgument(fmt.Sprintf("route %q: ", request.Route),
				[]*api.Problem{{
					Field: "streams", Value: fmt.Sprintf("%q", stream),
					Rule: "expected streams that the route selects",
				}})
		}
	}
	for _, leg := range response.Legs {
		if err := callerOf(ctx).May(api.ControlService_AcquireWriter_FullMethodName, leg.Stream); err != nil {
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
		if err := mayHold(ctx, leg.Stream, request.Holder.GetHost()); err != nil {
			return nil, err
		}
	}
	var granting sync.WaitGroup
	for _, leg := range response.Legs {
		granting.Go(func() {
			answer, err := s.AcquireWriter(ctx, &api.AcquireWriterRequest{
				Stream: leg.Stream,
				Holder: copyOf(request.Holder), Transport: request.Transport,
				NoTakeover: request.NoTakeover,
			})
			if leg.Grant = answer.GetGrant(); err != nil {
				leg.Error = status.Convert(refusal.AsStatus(err)).Message()
			}
		})
	}
	granting.Wait()
	return response, nil
}

// copyOf is a holder that may be completed.
func copyOf(holder *api.Holder) *api.Holder {
	return &api.Holder{
		Host: holder.GetHost(), Pid: holder.GetPid(), Name: holder.GetName(),
		Addresses: holder.GetAddresses(),
	}
}
