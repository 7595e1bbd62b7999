package control

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

const (
	// hostInterval is how often host agents measure and report.
	hostInterval = 5 * time.Second
	// hostMissed is after how many intervals without a report what a host says of its writers is too old.
	hostMissed = 3
	// hostKept is how old a host's measurements in etcd become while they do not move: placement goes by them for reconcile.MeasuredMax.
	hostKept = reconcile.MeasuredMax / 3
)

// ReportHost implements farlog.v1.HostService: it takes what was measured, and tells where to go.
func (s *Server) ReportHost(ctx context.Context, request *api.ReportHostRequest) (*api.ReportHostResponse, error) {
	state := request.GetState()
	if state.GetHost() == "" {
		return nil, invalid("", []*api.Problem{{Field: "state.host", Value: `""`, Rule: "expected the host's name"}})
	}
	if err := callerOf(ctx).MayReport(state.Host); err != nil {
		return nil, status.Error(codes.PermissionDenied, err.Error())
	}
	toOurClock(state, time.Now())
	if err := s.reports.keepHost(ctx, state); err != nil {
		return nil, err
	}
	now, _ := s.mirror.load()
	return &api.ReportHostResponse{Interval: durationpb.New(hostInterval), Doors: now.doorsFor(state.Host)}, nil
}

// toOurClock moves a report's times by as much as the host's clock is off, or the report was under way.
func toOurClock(state *api.HostState, now time.Time) {
	if state.Reported != nil {
		off := now.Sub(state.Reported.AsTime())
		for _, way := range state.Ways {
			if way.Measured != nil {
				way.Measured = measuredAt(way.Measured.AsTime().Add(off), now)
			}
		}
	}
	state.Reported = timestamppb.New(now)
}

// measuredAt is when something was measured by our clock: not behind its report, and not at a time that there is none of, as a host may say that sets its clock meanwhile.
func measuredAt(at, now time.Time) *timestamppb.Timestamp {
	if at.After(now) {
		at = now
	}
	if measured := timestamppb.New(at); measured.IsValid() {
		return measured
	}
	return nil
}

// doorsFor lists where clients of a host come in: on its own targets they do not.
func (v *view) doorsFor(host string) (doors []*api.Door) {
	for _, id := range slices.Sorted(maps.Keys(v.liveTargets)) {
		if target := v.liveTargets[id]; target.Host != host {
			for _, uri := range target.Doors {
				doors = append(doors, &api.Door{Target: id, Uri: uri})
			}
		}
	}
	return doors
}

// keepHost shows what a host measured to those who ask this instance. What is in etcd, by which every instance places, is what it was while it differs by little: so a way that drifts slowly is
// compared with what is decided by, and not with the report before.
func (r *reports) keepHost(ctx context.Context, state *api.HostState) error {
	r.mutex.Lock()
	r.hosts[state.Host] = state
	r.mutex.Unlock()
	now, _ := r.mirror.load()
	before := now.hosts[state.Host]
	if len(state.Stalled)+len(before.GetStalled()) == 0 && !reconcile.IsMoved(before, state) && state.Reported.AsTime().Sub(before.Reported.AsTime()) < hostKept {
		return nil
	}
	value, err := encode(state)
	if err != nil {
		return invalid("", []*api.Problem{{Field: "state", Rule: "expected texts in UTF-8: " + err.Error()}})
	}
	put, err := r.client.Put(ctx, keyHosts+state.Host, value)
	if err != nil {
		return fmt.Errorf("keep %s: %w", keyHosts+state.Host, err)
	}
	return r.mirror.waitRevision(ctx, put.Header.Revision)
}

// lastOfHost is the newest that is known here of a host.
func (r *reports) lastOfHost(now *view, host string) *api.HostState {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	kept, told := now.hosts[host], r.hosts[host]
	if kept == nil || told != nil && told.Reported.AsTime().After(kept.Reported.AsTime()) {
		return told
	}
	return kept
}

// ListHosts implements farlog.v1.FabricService.
func (s *Server) ListHosts(_ context.Context, request *api.ListHostsRequest) (*api.ListHostsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	hosts := agentsOn{}
	for host := range now.hosts {
		hosts.add(host, "")
	}
	names, err := hostsNamed(hosts, request.Host)
	if err != nil {
		return nil, err
	}
	response := &api.ListHostsResponse{Revision: now.revision}
	response.Hosts, response.NextPageToken, err = onePage(request, names, func(host string) (*api.HostState, bool) { return s.reports.lastOfHost(now, host), true })
	return response, err
}

// measure says of a stream how far its targets are from its writer's host, and what of that is not as wanted.
func (v *view) measure(world reconcile.World, status *api.StreamStatus, now time.Time) {
	host := status.Stream.GetSpec().GetWriterHost()
	if host == "" {
		return
	}
	for _, ring := range status.RingSpecs {
		if way, _ := reconcile.WayTo(world, host, ring.Target, now); way != nil {
			status.Ways = append(status.Ways, way)
		}
		if text := reconcile.Far(world, status.Stream, ring.Target, now); text != "" && status.Reason == "" {
			status.Reason = text
		}
	}
}
