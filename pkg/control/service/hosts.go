package service

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// ReportHost implements farlog.v1.HostService: it takes what was measured, and tells where to go.
func (s *Server) ReportHost(ctx context.Context, request *api.ReportHostRequest) (*api.ReportHostResponse, error) {
	reported := request.GetState()
	if reported.GetHost() == "" {
		return nil, refusal.InvalidArgument("", []*api.Problem{{
			Field: "state.host", Value: `""`,
			Rule: "expected the host's name",
		}})
	}
	if err := callerOf(ctx).MayReport(reported.Host); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	toOurClock(reported, time.Now())
	if err := s.reports.KeepHost(ctx, reported); err != nil {
		return nil, err
	}
	now, _ := s.mirror.Load()
	return &api.ReportHostResponse{
			Interval:  durationpb.New(state.HostInterval),
			Listeners: listenersFor(now, reported.Host), Namespaces: namespacesFor(now, reported.Host),
		},
		nil
}

// toOurClock moves a report's times by as much as the host's clock is off, or the report was on its way.
func toOurClock(state *api.HostState, now time.Time) {
	if state.ReportTime != nil {
		off := now.Sub(state.ReportTime.AsTime())
		for _, path := range state.Paths {
			if path.MeasureTime != nil {
				path.MeasureTime = measuredAt(path.MeasureTime.AsTime().Add(off), now)
			}
		}
	}
	state.ReportTime = timestamppb.New(now)
}

// measuredAt is when something was measured by our clock: not behind its report, and not at a time that there is none
// of, as a host may say that sets its clock meanwhile.
func measuredAt(at, now time.Time) *timestamppb.Timestamp {
	if at.After(now) {
		at = now
	}
	if measured := timestamppb.New(at); measured.IsValid() {
		return measured
	}
	return nil
}

// listenersFor lists where clients of a host come in: on its own targets they do not.
func listenersFor(v *state.View, host string) (listeners []*api.ListenerAddress) {
	for _, id := range slices.Sorted(maps.Keys(v.LiveTargets)) {
		if target := v.LiveTargets[id]; target.Host != host {
			for _, uri := range target.Listeners {
				listeners = append(listeners, &api.ListenerAddress{Target: id, Uri: uri})
			}
		}
	}
	return listeners
}

// namespacesFor lists what is declared for a host: what the targets let it connect.
func namespacesFor(v *state.View, host string) (namespaces []*api.HostNamespace) {
	for _, target := range slices.Sorted(maps.Keys(v.TargetSpecs)) {
		spec := v.TargetSpecs[target]
		for _, one := range spec.Namespaces {
			for _, admitted := range one.Hosts {
				if admitted.Host == host {
					namespaces = append(namespaces, &api.HostNamespace{
						TargetHost: target, Name: one.Name, Subsystem: one.Subsystem, HostNqn: admitted.Nqn,
						Auth: check.AuthOf(admitted), Ports: spec.Ports,
					})
				}
			}
		}
	}
	return namespaces
}

// ListHosts implements farlog.v1.FabricService.
func (s *Server) ListHosts(_ context.Context, request *api.ListHostsRequest) (*api.ListHostsResponse, error) {
	now := s.view()
	hosts := state.AgentsByHost{}
	for host := range now.Hosts {
		hosts.Add(host, "")
	}
	names, err := hostsNamed(hosts, request.Host)
	if err != nil {
		return nil, err
	}
	response := &api.ListHostsResponse{Revision: now.Revision}
	response.Hosts, response.NextPageToken, err = onePage(request, names,
		func(host string) (*api.HostState, bool) { return now.HostReport(host), true })
	return response, err
}
