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

// ListDrains implements farlog.v1.FabricService.
func (s *Server) ListDrains(_ context.Context, request *api.ListDrainsRequest) (*api.ListDrainsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	hosts := now.DrainHosts()
	names, err := hostsNamed(hosts, request.Host)
	if err != nil {
		return nil, err
	}
	response := &api.ListDrainsResponse{Revision: now.Revision}
	counts := now.CountStreams()
	response.Drains, response.NextPageToken, err = onePage(request, names, func(host string) (*api.Drain, bool) {
		one := s.drainOf(now, hosts, counts, host, request.IncludeProgress)
		return one, request.Presence == 0 || one.Presence == request.Presence
	})
	return response, err
}

// drainOf is a host with the revision of what is declared of it.
func (s *Server) drainOf(now *state.View, hosts state.AgentsByHost, counts map[string]uint32, host string,
	isDetailed bool,
) *api.Drain {
	one := now.Drain(host, hosts[host], counts, isDetailed)
	if one.Spec != nil {
		one.Revision = s.mirror.History.Revision(state.ChangedDrainSpec, host)
	}
	return one
}

// GetDrain implements farlog.v1.FabricService.
func (s *Server) GetDrain(_ context.Context, request *api.GetDrainRequest) (*api.GetDrainResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	hosts := now.DrainHosts()
	if hosts[request.Host] == nil {
		return nil, unknownHost("drain", request.Host, slices.Sorted(maps.Keys(hosts)))
	}
	return &api.GetDrainResponse{Drain: s.drainOf(now, hosts, now.CountStreams(), request.Host, true)}, nil
}

// declaredDrains are what operators say of the hosts of drains.
func (s *Server) declaredDrains() declared[*api.DrainSpec] {
	return declared[*api.DrainSpec]{
		server: s, kind: "drain", changed: state.ChangedDrainSpec, prefix: etcd.KeyDrainSpecs,
		changes: fabric.Changes[*api.DrainSpec],
		of:      func(v *state.View) map[string]*api.DrainSpec { return v.DrainSpecs },
	}
}

// CreateDrain implements farlog.v1.FabricService.
func (s *Server) CreateDrain(ctx context.Context, request *api.CreateDrainRequest) (*api.CreateDrainResponse, error) {
	isNew, err := s.declaredDrains().create(ctx, request.Spec, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.CreateDrainResponse{Drain: s.declaredDrain(request.Spec), Created: isNew}, nil
}

// declaredDrain is a host as it is, with a spec that it may only come to have.
func (s *Server) declaredDrain(spec *api.DrainSpec) *api.Drain {
	now, _ := s.mirror.Load()
	one := s.drainOf(now, now.DrainHosts(), now.CountStreams(), spec.Host, true)
	one.Spec = spec
	return one
}

// UpdateDrain implements farlog.v1.FabricService.
func (s *Server) UpdateDrain(ctx context.Context, request *api.UpdateDrainRequest) (*api.UpdateDrainResponse, error) {
	fields, err := s.declaredDrains().update(ctx, request.Spec, request.Revision, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.UpdateDrainResponse{Drain: s.declaredDrain(request.Spec), Fields: fields}, nil
}

// DeleteDrain implements farlog.v1.FabricService.
func (s *Server) DeleteDrain(ctx context.Context, request *api.DeleteDrainRequest) (*api.DeleteDrainResponse, error) {
	spec, err := s.declaredDrains().remove(ctx, request.Host, request.Revision, request.DryRun)
	if err != nil {
		return nil, err
	}
	return &api.DeleteDrainResponse{Drain: s.declaredDrain(spec)}, nil
}

// WatchDrains implements farlog.v1.FabricService.
func (s *Server) WatchDrains(request *api.WatchDrainsRequest,
	stream grpc.ServerStreamingServer[api.WatchDrainsResponse],
) error {
	return s.watchHosts(stream.Context(), state.ChangedDrain, request.Revision,
		func(now *state.View, changed []string, isAll bool) error {
			hosts, counts := now.DrainHosts(), now.CountStreams()
			named, err := namedAmong(hosts, request.Host, changed, isAll)
			if err != nil {
				return err
			}
			response := &api.WatchDrainsResponse{Revision: now.Revision, Snapshot: isAll}
			for _, host := range named {
				if hosts[host] == nil {
					response.Gone = append(response.Gone, host)
					continue
				}
				response.Drains = append(response.Drains, s.drainOf(now, hosts, counts, host, false))
			}
			if len(named) == 0 && !isAll {
				return nil
			}
			return stream.Send(response)
		})
}
