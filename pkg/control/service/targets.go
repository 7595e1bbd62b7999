package service

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// targets are the hosts of targets.
func (s *Server) targets() hostKind[*api.TargetSpec, *api.Target] {
	return hostKind[*api.TargetSpec, *api.Target]{
		server: s, kind: "target", changed: state.ChangedTarget, declared: state.ChangedTargetSpec,
		prefix: etcd.KeyTargetSpecs,
		specs:  func(v *state.View) map[string]*api.TargetSpec { return v.TargetSpecs },
		each: func(v *state.View, _ bool) (state.AgentsByHost, func(string) *api.Target) {
			hosts, counts := v.TargetHosts(), v.CountRings()
			return hosts, func(host string) *api.Target {
				one := v.Target(host, hosts[host], counts)
				if one.Spec != nil {
					one.Revision = s.mirror.History.Revision(state.ChangedTargetSpec, host)
				}
				return one
			}
		},
		with: func(one *api.Target, declared *api.TargetSpec) *api.Target {
			one.Spec = declared
			return one
		},
		check: func(v *state.View, asked *api.TargetSpec) error {
			specs := maps.Clone(v.TargetSpecs)
			specs[asked.Host] = asked
			problems := append(check.Namespaces(v.TargetSpecs[asked.Host], asked, specs, "spec."),
				check.NamespacesInUse(v.Rings, v.TargetSpecs[asked.Host], asked, "spec.")...)
			if len(problems) == 0 {
				return nil
			}
			return refusal.InvalidArgument(fmt.Sprintf("target %q: ", asked.Host), problems)
		},
	}
}

// ListTargets implements farlog.v1.FabricService.
func (s *Server) ListTargets(_ context.Context, request *api.ListTargetsRequest) (*api.ListTargetsResponse, error) {
	now := s.view()
	items, next, err := s.targets().list(now, request, true, func(one *api.Target) bool {
		return isTargetListed(one, request)
	})
	return &api.ListTargetsResponse{Revision: now.Revision, Targets: items, NextPageToken: next}, err
}

// GetTarget implements farlog.v1.FabricService.
func (s *Server) GetTarget(_ context.Context, request *api.GetTargetRequest) (*api.GetTargetResponse, error) {
	one, err := s.targets().get(request.Host)
	return &api.GetTargetResponse{Target: one}, err
}

// CreateTarget implements farlog.v1.FabricService.
func (s *Server) CreateTarget(ctx context.Context, request *api.CreateTargetRequest) (*api.CreateTargetResponse,
	error,
) {
	one, isNew, err := s.targets().create(ctx, request.Spec, request.DryRun)
	return &api.CreateTargetResponse{Target: one, Created: isNew}, err
}

// UpdateTarget implements farlog.v1.FabricService.
func (s *Server) UpdateTarget(ctx context.Context, request *api.UpdateTargetRequest) (*api.UpdateTargetResponse,
	error,
) {
	one, fields, err := s.targets().update(ctx, request.Spec, request.Revision, request.DryRun)
	return &api.UpdateTargetResponse{Target: one, Fields: fields}, err
}

// DeleteTarget implements farlog.v1.FabricService.
func (s *Server) DeleteTarget(ctx context.Context, request *api.DeleteTargetRequest) (*api.DeleteTargetResponse,
	error,
) {
	now := s.view()
	if problems := check.NamespacesInUse(now.Rings, now.TargetSpecs[request.Host], nil, ""); len(problems) > 0 {
		return nil, refusal.Precondition(refusal.ReasonNotDeletable, "host", refusal.Quote(request.Host), "%s",
			problems[0].Rule).Errorf("target %q: %s", request.Host, problems[0].Rule)
	}
	one, err := s.targets().remove(ctx, request.Host, request.Revision, request.DryRun)
	return &api.DeleteTargetResponse{Target: one}, err
}

// WatchTargets implements farlog.v1.FabricService.
func (s *Server) WatchTargets(request *api.WatchTargetsRequest,
	stream grpc.ServerStreamingServer[api.WatchTargetsResponse],
) error {
	return s.targets().watch(stream.Context(), request.Host, request.Revision,
		func(now *state.View, items []*api.Target, gone []string, isAll bool) error {
			return stream.Send(&api.WatchTargetsResponse{
				Revision: now.Revision, Snapshot: isAll, Gone: gone, Targets: items,
			})
		})
}

func isTargetListed(one *api.Target, request *api.ListTargetsRequest) bool {
	return (request.Presence == 0 || one.Presence == request.Presence) &&
		(request.Rack == "" || one.Spec.GetRack() == request.Rack) &&
		(request.Site == "" || one.Spec.GetSite() == request.Site)
}
