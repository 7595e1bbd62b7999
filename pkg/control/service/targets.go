package service

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/fabric"
	"github.com/farlog/farlog/pkg/control/state"
)

// ListTargets implements farlog.v1.FabricService.
func (s *Server) ListTargets(_ context.Context, request *api.ListTargetsRequest) (*api.ListTargetsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	hosts := now.TargetHosts()
	names, err := hostsNamed(hosts, request.Host)
	if err != nil {
		return nil, err
	}
	response := &api.ListTargetsResponse{Revision: now.Revision}
	counts := now.CountRings()
	response.Targets, response.NextPageToken, err = onePage(request, names, func(host string) (*api.Target, bool) {
		one := s.targetOf(now, hosts, counts, host)
		return one, isTargetListed(one, request)
	})
	return response, err
}

// targetOf is a host with the revision of what is declared of it.
func (s *Server) targetOf(now *state.View, hosts state.AgentsByHost, counts map[string]state.RingTotals,
	host string,
) *api.Target {
	one := now.Target(host, hosts[host], counts)
	if one.Spec != nil {
		one.Revision = s.mirror.History.Revision(state.ChangedTargetSpec, host)
	}
	return one
}

// GetTarget implements farlog.v1.FabricService.
func (s *Server) GetTarget(_ context.Context, request *api.GetTargetRequest) (*api.GetTargetResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	hosts := now.TargetHosts()
	if hosts[request.Host] == nil {
		return nil, unknownHost("target", request.Host, slices.Sorted(maps.Keys(hosts)))
	}
	return &api.GetTargetResponse{Target: s.targetOf(now, hosts, now.CountRings(), request.Host)}, nil
}

// declaredTargets are what operators say of the hosts of targets.
func (s *Server) declaredTargets() declared[*api.TargetSpec] {
	return declared[*api.TargetSpec]{
		server: s, kind: "target", changed: state.ChangedTargetSpec, prefix: etcd.KeyTargetSpecs,
		changes: fabric.Changes[*api.TargetSpec],
		of:      func(v *state.View) map[string]*api.TargetSpec { return v.TargetSpecs },
	}
}

// CreateTarget implements farlog.v1.FabricService.
func (s *Server) CreateTarget(ctx context.Context, request *api.CreateTargetRequest) (*api.CreateTargetResponse,
	error,
) {
	isNew, err := s.declaredTargets().create(ctx, request.Spec, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.CreateTargetResponse{Target: s.declaredTarget(request.Spec), Created: isNew}, nil
}

// declaredTarget is a host as it is, with a spec that it may only come to have.
func (s *Server) declaredTarget(spec *api.TargetSpec) *api.Target {
	now, _ := s.mirror.Load()
	one := s.targetOf(now, now.TargetHosts(), now.CountRings(), spec.Host)
	one.Spec = spec
	return one
}

// UpdateTarget implements farlog.v1.FabricService.
func (s *Server) UpdateTarget(ctx context.Context, request *api.UpdateTargetRequest) (*api.UpdateTargetResponse,
	error,
) {
	fields, err := s.declaredTargets().update(ctx, request.Spec, request.Revision, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.UpdateTargetResponse{Target: s.declaredTarget(request.Spec), Fields: fields}, nil
}

// DeleteTarget implements farlog.v1.FabricService.
func (s *Server) DeleteTarget(ctx context.Context, request *api.DeleteTargetRequest) (*api.DeleteTargetResponse,
	error,
) {
	spec, err := s.declaredTargets().remove(ctx, request.Host, request.Revision, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.DeleteTargetResponse{Target: s.declaredTarget(spec)}, nil
}

// WatchTargets implements farlog.v1.FabricService.
func (s *Server) WatchTargets(request *api.WatchTargetsRequest,
	stream grpc.ServerStreamingServer[api.WatchTargetsResponse],
) error {
	return s.watchHosts(stream.Context(), state.ChangedTarget, request.Revision,
		func(now *state.View, changed []string, isAll bool) error {
			hosts, counts := now.TargetHosts(), now.CountRings()
			named, err := namedAmong(hosts, request.Host, changed, isAll)
			if err != nil {
				return err
			}
			response := &api.WatchTargetsResponse{Revision: now.Revision, Snapshot: isAll}
			for _, host := range named {
				if hosts[host] == nil {
					response.Gone = append(response.Gone, host)
					continue
				}
				response.Targets = append(response.Targets, s.targetOf(now, hosts, counts, host))
			}
			if len(named) == 0 && !isAll {
				return nil
			}
			return stream.Send(response)
		})
}

func isTargetListed(one *api.Target, request *api.ListTargetsRequest) bool {
	return (request.Presence == 0 || one.Presence == request.Presence) &&
		(request.Rack == "" || one.Spec.GetRack() == request.Rack) &&
		(request.Site == "" || one.Spec.GetSite() == request.Site)
}
