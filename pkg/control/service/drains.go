package service

import (
	"context"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// drains are the hosts of drains.
func (s *Server) drains() hostKind[*api.DrainSpec, *api.Drain] {
	return hostKind[*api.DrainSpec, *api.Drain]{
		server: s, kind: "drain", changed: state.ChangedDrain, declared: state.ChangedDrainSpec,
		prefix: etcd.KeyDrainSpecs,
		specs:  func(v *state.View) map[string]*api.DrainSpec { return v.DrainSpecs },
		each: func(v *state.View, isDetailed bool) (state.AgentsByHost, func(string) *api.Drain) {
			hosts, counts := v.DrainHosts(), v.CountStreams()
			return hosts, func(host string) *api.Drain {
				one := v.Drain(host, hosts[host], counts, isDetailed)
				if one.Spec != nil {
					one.Revision = s.mirror.History.Revision(state.ChangedDrainSpec, host)
				}
				return one
			}
		},
		with: func(one *api.Drain, declared *api.DrainSpec) *api.Drain {
			one.Spec = declared
			return one
		},
	}
}

// ListDrains implements farlog.v1.FabricService.
func (s *Server) ListDrains(_ context.Context, request *api.ListDrainsRequest) (*api.ListDrainsResponse, error) {
	now := s.view()
	items, next, err := s.drains().list(now, request, request.IncludeProgress, func(one *api.Drain) bool {
		return request.Presence == 0 || one.Presence == request.Presence
	})
	return &api.ListDrainsResponse{Revision: now.Revision, Drains: items, NextPageToken: next}, err
}

// GetDrain implements farlog.v1.FabricService.
func (s *Server) GetDrain(_ context.Context, request *api.GetDrainRequest) (*api.GetDrainResponse, error) {
	one, err := s.drains().get(request.Host)
	return &api.GetDrainResponse{Drain: one}, err
}

// CreateDrain implements farlog.v1.FabricService.
func (s *Server) CreateDrain(ctx context.Context, request *api.CreateDrainRequest) (*api.CreateDrainResponse, error) {
	one, isNew, err := s.drains().create(ctx, request.Spec, request.DryRun)
	return &api.CreateDrainResponse{Drain: one, Created: isNew}, err
}

// UpdateDrain implements farlog.v1.FabricService.
func (s *Server) UpdateDrain(ctx context.Context, request *api.UpdateDrainRequest) (*api.UpdateDrainResponse, error) {
	one, fields, err := s.drains().update(ctx, request.Spec, request.Revision, request.DryRun)
	return &api.UpdateDrainResponse{Drain: one, Fields: fields}, err
}

// DeleteDrain implements farlog.v1.FabricService.
func (s *Server) DeleteDrain(ctx context.Context, request *api.DeleteDrainRequest) (*api.DeleteDrainResponse, error) {
	one, err := s.drains().remove(ctx, request.Host, request.Revision, request.DryRun)
	return &api.DeleteDrainResponse{Drain: one}, err
}

// WatchDrains implements farlog.v1.FabricService.
func (s *Server) WatchDrains(request *api.WatchDrainsRequest,
	stream grpc.ServerStreamingServer[api.WatchDrainsResponse],
) error {
	return s.drains().watch(stream.Context(), request.Host, request.Revision,
		func(now *state.View, items []*api.Drain, gone []string, isAll bool) error {
			return stream.Send(&api.WatchDrainsResponse{
				Revision: now.Revision, Snapshot: isAll, Gone: gone, Drains: items,
			})
		})
}
