package service

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/report"
	"github.com/farlog/farlog/pkg/control/state"
)

const (
	agentTextLenMax = 128
	storeDirLenMax  = 4096
	storeUUIDLenMax = 16
)

// WatchRings implements farlog.v1.TargetService: the rings wanted of one target, again whenever they change.
func (s *Server) WatchRings(request *api.WatchRingsRequest, stream api.TargetService_WatchRingsServer) error {
	if err := s.begin(stream.Context(), access.RoleTarget, request.Agent); err != nil {
		return err
	}
	wanted := func(v *state.View) *api.WatchRingsResponse { return grant.RingsOf(v, request.Agent) }
	return watch(s, stream.Context(), etcd.KeyLiveTargets+request.Agent.Id, wanted, stream.Send)
}

// WatchAssignments implements farlog.v1.DrainService: the rings given to one drain, again whenever they change.
func (s *Server) WatchAssignments(request *api.WatchAssignmentsRequest, stream api.DrainService_WatchAssignmentsServer,
) error {
	if err := s.begin(stream.Context(), access.RoleDrain, request.Agent); err != nil {
		return err
	}
	wanted := func(v *state.View) *api.WatchAssignmentsResponse { return grant.AssignmentsOf(v, request.Agent) }
	return watch(s, stream.Context(), etcd.KeyLiveDrains+request.Agent.Id, wanted, stream.Send)
}

// ReportTarget implements farlog.v1.TargetService.
func (s *Server) ReportTarget(ctx context.Context, request *api.ReportTargetRequest) (*api.ReportTargetResponse,
	error,
) {
	if request.State == nil && request.Unchanged != nil {
		isKnown, err := s.unchanged(ctx, access.RoleTarget, request.Unchanged)
		return &api.ReportTargetResponse{Interval: durationpb.New(s.config.ReportInterval), StateRequested: !isKnown},
			err
	}
	agent := request.GetState().GetAgent()
	if err := s.register(ctx, access.RoleTarget, agent); err != nil {
		return nil, err
	}
	now, _ := s.mirror.Load()
	report.KeepSigns(now, request.State)
	report, err := report.Keep(ctx, s.reports, &state.TargetKind, agent.Id, request.State)
	if err == nil {
		err = s.touch(ctx, access.RoleTarget, agent)
	}
	if err != nil {
		return nil, err
	}
	return &api.ReportTargetResponse{
		Interval: durationpb.New(s.config.ReportInterval), FiguresEach: s.figuresEach(now),
		Report: report,
	}, nil
}

// ReportDrain implements farlog.v1.DrainService.
func (s *Server) ReportDrain(ctx context.Context, request *api.ReportDrainRequest) (*api.ReportDrainResponse, error) {
	if request.State == nil && request.Unchanged != nil {
		isKnown, err := s.unchanged(ctx, access.RoleDrain, request.Unchanged)
		return &api.ReportDrainResponse{
			Interval:       durationpb.New(s.config.ReportInterval),
			StateRequested: !isKnown,
		}, err
	}
	agent := request.GetState().GetAgent()
	if err := s.register(ctx, access.RoleDrain, agent); err != nil {
		return nil, err
	}
	if err := s.keepAnchors(ctx, request.State); err != nil {
		return nil, err
	}
	bases := s.bases.Take(request.State)
	report, err := report.Keep(ctx, s.reports, &state.DrainKind, agent.Id, request.State)
	if err == nil {
		err = s.touch(ctx, access.RoleDrain, agent)
	}
	if err != nil {
		return nil, err
	}
	if s.recordRemovals(ctx, request.State, bases) {
		report = 0 // so that the next one has the bases again that wait
	}
	now, _ := s.mirror.Load()
	return &api.ReportDrainResponse{
		Interval: durationpb.New(s.config.ReportInterval), FiguresEach: s.figuresEach(now),
		Report: report,
	}, nil
}

// unchanged reports whether the state of an agent is known that it says it has, and renews its life if so.
func (s *Server) unchanged(ctx context.Context, role access.Role, unchanged *api.Unchanged) (bool, error) {
	if err := s.register(ctx, role, unchanged.Agent); err != nil {
		return false, err
	}
	now, _ := s.mirror.Load()
	id, isKnown := unchanged.Agent.Id, false
	if role == access.RoleTarget {
		isKnown = s.reports.IsKnown(etcd.KeyTargets+id, unchanged.Report, now.Targets[id])
	} else {
		isKnown = s.reports.IsKnown(etcd.KeyDrains+id, unchanged.Report, now.Drains[id])
	}
	if !isKnown {
		return false, nil
	}
	return true, s.touch(ctx, role, unchanged.Agent)
}

// figuresEach is with how many reports agents tell figures once: with each, unless there are so many rings that it
// would be most of what is done here.
func (s *Server) figuresEach(v *state.View) uint32 {
	return uint32(min(max(1, (len(v.Rings)+s.config.FiguresRate-1)/s.config.FiguresRate), figuresEachMost))
}

// livePrefix is where the agents of a role live.
var livePrefix = map[access.Role]string{access.RoleTarget: etcd.KeyLiveTargets, access.RoleDrain: etcd.KeyLiveDrains}

// register checks who calls. It renews no life: who cannot store what it reports is not alive with what it said before.
func (s *Server) register(ctx context.Context, role access.Role, agent *api.Agent) error {
	if agent.GetId() == "" || strings.Contains(agent.Id, "/") {
		return refusal.InvalidArgument("", []*api.Problem{{
			Field: "agent.id", Value: fmt.Sprintf("%q", agent.GetId()),
			Rule: "expected a name without a slash",
		}})
	}
	for _, text := range []string{agent.Id, agent.Host, agent.MetricsAddress} {
		if len(text) > agentTextLenMax || strings.IndexFunc(text, unicode.IsControl) >= 0 {
			return refusal.InvalidArgument("agent ", []*api.Problem{{
				Field: "agent", Value: fmt.Sprintf("%q", text),
				Rule: fmt.Sprintf("expected at most %d bytes without control characters", agentTextLenMax),
			}})
		}
	}
	if len(agent.StoreDir) > storeDirLenMax || len(agent.StoreUuid) > storeUUIDLenMax {
		return refusal.InvalidArgument(fmt.Sprintf("agent %q: ", agent.Id),
			[]*api.Problem{{
				Field: "agent.store_dir", Value: fmt.Sprintf("%.40q", agent.StoreDir),
				Rule: fmt.Sprintf("expected a store directory of at most %d bytes and a uuid of at most %d",
					storeDirLenMax, storeUUIDLenMax),
			}})
	}
	if err := checkAddresses("agent "+agent.Id, agent.Addresses); err != nil {
		return err
	}
	return speaksFor(ctx, role, agent)
}

// begin checks who opens a watch, and lets it live for one lease: by then it has reported.
func (s *Server) begin(ctx context.Context, role access.Role, agent *api.Agent) error {
	if err := s.register(ctx, role, agent); err != nil {
		return err
	}
	return s.touch(ctx, role, agent)
}

// touch renews the life of an agent whose report is stored.
func (s *Server) touch(ctx context.Context, role access.Role, agent *api.Agent) error {
	s.tellSecond(ctx, role, agent)
	return s.liveness.Touch(ctx, livePrefix[role]+agent.Id, agent)
}

// tellSecond logs that an agent comes which is not the one of its role that lives on its host. A host may have two,
// each with a directory of its own; whoever has a copy of the host's certificate can have one as well.
func (s *Server) tellSecond(ctx context.Context, role access.Role, agent *api.Agent) {
	now, _ := s.mirror.Load()
	live := now.LiveTargets
	if role == access.RoleDrain {
		live = now.LiveDrains
	}
	if live[agent.Id] != nil {
		return
	}
	for id, other := range live {
		if other.Host != agent.Host {
			continue
		}
		party := string(role) + " " + agent.Host
		if suppressed, isAllowed := s.seconds.Allow(party, time.Now()); isAllowed {
			s.config.Logger.Warn(
				"a second agent of a role has come on a host: if it was not started there, revoke its "+
					"certificate",
				"agent_role",
				role,
				"host",
				agent.Host,
				"agent",
				agent.Id,
				"agent_pid",
				agent.Pid,
				"beside",
				id,
				"beside_pid",
				other.Pid,
				"by",
				callerOf(ctx).ID,
				"not_logged",
				suppressed,
			)
		}
		return
	}
}
