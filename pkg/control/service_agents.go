package control

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

const (
	agentTextLenMax = 128
	storeDirLenMax  = 4096
	storeUUIDLenMax = 16
)

// WatchRings implements farlog.v1.TargetService: the rings wanted of one target, again whenever they change.
func (s *Server) WatchRings(request *api.WatchRingsRequest, stream api.TargetService_WatchRingsServer) error {
	if err := s.register(stream.Context(), access.RoleTarget, request.Agent); err != nil {
		return err
	}
	wanted := func(v *view) *api.WatchRingsResponse {
		response := new(api.WatchRingsResponse)
		for _, name := range sortedKeys(v.rings) {
			if v.rings[name].Target == request.Agent.Id {
				response.Rings = append(response.Rings, v.ringSpec(name))
			}
		}
		return response
	}
	return watch(s, stream.Context(), wanted, stream.Send)
}

// ringSpec is what a target is told of a ring.
func (v *view) ringSpec(name string) *api.RingSpec {
	spec := proto.Clone(v.rings[name]).(*api.RingSpec)
	spec.Admission = v.admissionOf(name)
	if deletion := v.deletions[spec.Stream.Spec.Name]; reconcile.IsBeingDeleted(deletion) {
		spec.Deletion = deletion.Stage
	}
	return spec
}

// WatchAssignments implements farlog.v1.DrainService: the rings given to one drain, again whenever they change.
func (s *Server) WatchAssignments(request *api.WatchAssignmentsRequest, stream api.DrainService_WatchAssignmentsServer) error {
	if err := s.register(stream.Context(), access.RoleDrain, request.Agent); err != nil {
		return err
	}
	wanted := func(v *view) *api.WatchAssignmentsResponse {
		response := new(api.WatchAssignmentsResponse)
		for _, name := range sortedKeys(v.assignments) {
			// The id survives a restart with another --store-dir; the right to the stream does not.
			if given := v.assignments[name]; given.Drain == request.Agent.Id && reconcile.WritesStore(request.Agent, given) && reconcile.MayDrain(request.Agent, name) {
				told := proto.Clone(given).(*api.Assignment)
				told.Token = v.drainToken(given, 0)
				for i, member := range told.Members {
					member.Token = v.drainToken(given, i)
				}
				response.Assignments = append(response.Assignments, told)
			}
		}
		return response
	}
	return watch(s, stream.Context(), wanted, stream.Send)
}

// ReportTarget implements farlog.v1.TargetService.
func (s *Server) ReportTarget(ctx context.Context, request *api.ReportTargetRequest) (*api.ReportTargetResponse, error) {
	agent := request.GetState().GetAgent()
	if err := s.register(ctx, access.RoleTarget, agent); err != nil {
		return nil, err
	}
	now, _ := s.mirror.load()
	now.keepSigns(request.State)
	if err := s.keep(ctx, keyTargets+agent.Id, request.State); err != nil {
		return nil, err
	}
	return &api.ReportTargetResponse{Interval: durationpb.New(s.config.ReportInterval)}, nil
}

// ReportDrain implements farlog.v1.DrainService.
func (s *Server) ReportDrain(ctx context.Context, request *api.ReportDrainRequest) (*api.ReportDrainResponse, error) {
	agent := request.GetState().GetAgent()
	if err := s.register(ctx, access.RoleDrain, agent); err != nil {
		return nil, err
	}
	if err := s.keep(ctx, keyDrains+agent.Id, request.State); err != nil {
		return nil, err
	}
	return &api.ReportDrainResponse{Interval: durationpb.New(s.config.ReportInterval)}, nil
}

// livePrefix is where the agents of a role live.
var livePrefix = map[access.Role]string{access.RoleTarget: keyLiveTargets, access.RoleDrain: keyLiveDrains}

// register checks who calls and renews its life.
func (s *Server) register(ctx context.Context, role access.Role, agent *api.Agent) error {
	if agent.GetId() == "" || strings.Contains(agent.Id, "/") {
		return status.Errorf(codes.InvalidArgument, "agent id %q: expected a name without a slash", agent.GetId())
	}
	for _, text := range []string{agent.Id, agent.Host, agent.MetricsAddress} {
		if len(text) > agentTextLenMax || strings.IndexFunc(text, unicode.IsControl) >= 0 {
			return status.Errorf(codes.InvalidArgument, "agent %q: %q: expected at most %d bytes without control characters", agent.Id, text, agentTextLenMax)
		}
	}
	if len(agent.StoreDir) > storeDirLenMax || len(agent.StoreUuid) > storeUUIDLenMax {
		return status.Errorf(codes.InvalidArgument, "agent %q: expected a store directory of at most %d bytes and a uuid of at most %d", agent.Id, storeDirLenMax, storeUUIDLenMax)
	}
	if err := checkAddresses("agent "+agent.Id, agent.Addresses); err != nil {
		return err
	}
	if err := speaksFor(ctx, role, agent); err != nil {
		return err
	}
	return s.liveness.touch(ctx, livePrefix[role]+agent.Id, agent)
}

// keep writes a state that was reported. A state is not guarded: the last report is the truth.
func (s *Server) keep(ctx context.Context, key string, state proto.Message) error {
	value, err := encode(state)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "state of %s: %s", key, err)
	}
	if _, err := s.config.Client.Put(ctx, key, value); err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	return nil
}

// watch sends what is wanted, first at once and then whenever it has become something else.
func watch[M proto.Message](s *Server, ctx context.Context, wanted func(*view) M, send func(M) error) error {
	var last M
	isFirst := true
	for {
		now, changed := s.mirror.load()
		if next := wanted(now); isFirst || !proto.Equal(last, next) {
			if err := send(next); err != nil {
				return err
			}
			last, isFirst = next, false
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "the control plane is stopping")
		}
	}
}
