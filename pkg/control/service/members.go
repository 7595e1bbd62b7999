package service

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// ReplaceMember implements farlog.v1.ControlService. What a member is changes in one step, which holds only if no grant
// was given and no ring changed since it was decided on; every later grant names the new ring. Until an opening has
// brought that what the others have it counts nowhere, so that who writes by an earlier grant is fenced, and found,
// at the others.
func (s *Server) ReplaceMember(ctx context.Context, request *api.ReplaceMemberRequest) (*api.ReplaceMemberResponse,
	error,
) {
	now, stream, err := s.membersOf(request.Stream)
	if err != nil {
		return nil, err
	}
	rings, _ := reconcile.RingSpecs(now.Rings, stream)
	member := reconcile.MemberOn(rings, targetNamed(now, rings, request.Member))
	if member < 0 {
		return nil, refusal.WithProblems(codes.InvalidArgument,
			fmt.Sprintf("stream %q: no member is on target %q; they are on %s", request.Stream, request.Member,
				targetsText(rings)),
			[]*api.Problem{{
				Field: "member", Value: fmt.Sprintf("%q", request.Member),
				Rule: "expected one of " + targetsText(rings),
			}})
	}
	if why := reconcile.WhyNotReplace(now.World(), request.Stream, member); why != "" {
		return nil, refusal.Precondition(refusal.ReasonNotReplaceable, "member", refusal.Quote(request.Member),
			"expected a member that may be replaced: %s", why).
			Errorf("stream %q: the ring of target %s is not replaced: %s", request.Stream, request.Member, why)
	}
	target, why := reconcile.ReplacementTarget(now.World(), request.Stream, member, liveTargetNamed(now, request.With),
		time.Now())
	if why != "" {
		return nil, refusal.Precondition(refusal.ReasonNoTarget, "with", refusal.Quote(request.With),
			"expected a target that takes the ring: %s", why).
			Errorf("stream %q: nobody makes a ring in the place of that of target %s: %s", request.Stream,
				request.Member, why)
	}
	by := &api.Replacement{StartTime: timestamppb.New(time.Now()), By: string(callerOf(ctx).ID), Reason: request.Reason}
	ring := reconcile.Replaced(rings[member], target, by)
	response := &api.ReplaceMemberResponse{
		Ring: ring, WriterHeld: hasWriter(now, rings),
		AcceptLossRequired: reconcile.KnowingCount(isReported(now, rings), member) < reconcile.FenceCount(stream),
	}
	if request.DryRun {
		return response, nil
	}
	revision, err := setRings(ctx, s.config.Client, now, request.Stream, map[int]*api.RingSpec{member: ring})
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("replacing member", "stream", request.Stream, "member", member, "former", request.Member,
		"with", target, "reason", request.Reason, "by", by.By)
	return response, s.mirror.WaitRevision(ctx, revision)
}

// AcceptLoss implements farlog.v1.ControlService. The rings' targets do it: the next look finds that they count.
func (s *Server) AcceptLoss(ctx context.Context, request *api.AcceptLossRequest) (*api.AcceptLossResponse, error) {
	now, stream, err := s.membersOf(request.Stream)
	if err != nil {
		return nil, err
	}
	rings, _ := reconcile.RingSpecs(now.Rings, stream)
	if hasWriter(now, rings) {
		return nil, refusal.Precondition(refusal.ReasonWriterHeld, "stream", refusal.Quote(request.Stream),
			"expected a stream that no writer has").
			Errorf("stream %q: a writer has it, and holds what is not drained: nothing has to be lost", request.Stream)
	}
	if telling := reconcile.KnowingCount(isReported(now, rings), -1); telling >= reconcile.FenceCount(stream) {
		return nil, refusal.Precondition(refusal.ReasonNothingLost, "stream", refusal.Quote(request.Stream),
			"expected fewer than %d members that know what was acknowledged", reconcile.FenceCount(stream)).
			Errorf("stream %q: nothing is lost: %d of its members know what was acknowledged, and %d are enough",
				request.Stream, telling, reconcile.FenceCount(stream))
	}
	response, changed := new(api.AcceptLossResponse), map[int]*api.RingSpec{}
	for i, ring := range toBeCounted(now, stream, rings) {
		changed[i] = accepted(ring, request.Reason, string(callerOf(ctx).ID))
		response.Members = append(response.Members, ring.Target)
		response.Losses = append(response.Losses, lossText(now, request.Stream, ring))
	}
	if request.DryRun {
		return response, nil
	}
	revision, err := setRings(ctx, s.config.Client, now, request.Stream, changed)
	if err != nil {
		return nil, err
	}
	s.config.Logger.Warn("loss accepted", "stream", request.Stream, "targets", response.Members, "losses",
		response.Losses, "reason", request.Reason, "by", callerOf(ctx).ID)
	return response, s.mirror.WaitRevision(ctx, revision)
}

// membersOf is a stream that has several, and stays.
func (s *Server) membersOf(name string) (*state.View, *api.Stream, error) {
	now := s.view()
	stream := now.Streams[name]
	if stream == nil {
		return nil, nil, status.Errorf(codes.NotFound, "stream %q: there is none of that name", name)
	}
	if err := now.CheckNotDeleted(name); err != nil {
		return nil, nil, err
	}
	if reconcile.MemberCount(stream) == 1 {
		return nil, nil, refusal.Precondition(refusal.ReasonOneRing, "stream", refusal.Quote(name),
			"expected a stream with several members").
			Errorf("stream %q has one ring, and nothing else has its records: where that is lost for good, farlog "+
				"stream delete --ring-lost, and create it again", name)
	}
	return now, stream, nil
}

// targetNamed is one of the rings' targets by its id, or by its host, as an operator knows it.
func targetNamed(v *state.View, rings []*api.RingSpec, name string) string {
	for _, ring := range rings {
		if v.Targets[ring.GetTarget()].GetAgent().GetHost() == name && reconcile.MemberOn(rings, name) < 0 {
			return ring.Target
		}
	}
	return name
}

// liveTargetNamed is that of one that reports, where its host has no other.
func liveTargetNamed(v *state.View, name string) string {
	var found []string
	for id, agent := range v.LiveTargets {
		if agent.GetHost() == name {
			found = append(found, id)
		}
	}
	if v.LiveTargets[name] != nil || len(found) != 1 {
		return name
	}
	return found[0]
}

func targetsText(rings []*api.RingSpec) string {
	var targets []string
	for _, ring := range rings {
		targets = append(targets, ring.GetTarget())
	}
	return strings.Join(targets, ", ")
}

// hasWriter reports whether somebody writes to one of the rings, as far as living targets say.
func hasWriter(v *state.View, rings []*api.RingSpec) bool {
	return slices.ContainsFunc(rings, func(ring *api.RingSpec) bool {
		return v.LiveTargets[ring.GetTarget()] != nil && reconcile.SeenRing(v.Targets, ring).GetWriterHeld()
	})
}

// isReported lists which of the rings tell an opening what was acknowledged.
func isReported(v *state.View, rings []*api.RingSpec) []bool {
	return reconcile.KnowAcknowledged(rings, func(ring *api.RingSpec) *api.RingState {
		return reconcile.SeenRing(v.Targets, ring)
	})
}

// toBeCounted are the rings that are to count as they are. One that nobody replaced, and that was never told an epoch,
// holds nothing, and nothing was ever acknowledged with it: where such are enough, no new one need be taken for what
// the ring before it was.
func toBeCounted(v *state.View, stream *api.Stream, rings []*api.RingSpec) iter.Seq2[int, *api.RingSpec] {
	tells := isReported(v, rings)
	enough := reconcile.KnowingCount(tells, -1)
	for i, ring := range rings {
		if !tells[i] && ring.Replacement == nil && v.LiveTargets[ring.Target] != nil {
			enough++
		}
	}
	return func(yield func(int, *api.RingSpec) bool) {
		for i, ring := range rings {
			isWanted := !tells[i] && (ring.Replacement == nil || enough < reconcile.FenceCount(stream))
			if isWanted && !yield(i, ring) {
				return
			}
		}
	}
}

// accepted is a ring that its target makes count as it is.
func accepted(ring *api.RingSpec, reason, by string) *api.RingSpec {
	after := proto.Clone(ring).(*api.RingSpec)
	if after.Replacement == nil {
		after.Replacement = &api.Replacement{
			FormerTarget: ring.Target, StartTime: timestamppb.New(time.Now()), By: by,
			Reason: reason,
		}
	}
	after.Replacement.LossAccepted = true
	return after
}

// lossText says what a former ring had, as its target last reported it, and how far the other members and the store
// have it.
func lossText(v *state.View, name string, ring *api.RingSpec) string {
	replacement := ring.GetReplacement()
	if replacement == nil {
		return fmt.Sprintf("the ring of target %s never received an epoch: it holds no record, and nothing is lost "+
			"with it", ring.Target)
	}
	text := fmt.Sprintf("the ring of target %s, replaced at %s (%s)", replacement.FormerTarget,
		state.ClockTime(replacement.StartTime.AsTime()), replacement.Reason)
	var former *api.RingState
	for _, state := range v.Targets[replacement.FormerTarget].GetRings() {
		if state.Stream == name && slices.ContainsFunc(replacement.FormerUuids,
			func(uuid []byte) bool { return bytes.Equal(uuid, state.RingUuid) }) {
			former = state
		}
	}
	if former == nil {
		return text + ": what it had is not known any more; all that was acknowledged and is neither stored nor in " +
			"another member may be lost"
	}
	return text + fmt.Sprintf(": its target last reported records up to lsn %d at %s, %d of them (%d bytes) not "+
		"stored then; those that no other member has are lost", former.AppendedLsn,
		state.ClockTime(former.ObserveTime.AsTime()), former.LagRecords, former.LagBytes)
}

// setRings changes what rings are wanted, unless the stream was granted or one of its rings changed since the view. A
// new ring's listener has the fence of the former one, and lets no writer in that was granted that.
func setRings(ctx context.Context, client *clientv3.Client, v *state.View, name string,
	rings map[int]*api.RingSpec,
) (revision int64, err error) {
	guards := append(state.RingsUnchanged(v, name), state.UnchangedSince(v, etcd.KeyDeletions+name),
		state.UnchangedSince(v, etcd.KeyEpochs+name))
	var writes []clientv3.Op
	for member, ring := range rings {
		value, err := etcd.Encode(ring)
		if err != nil {
			return 0, err
		}
		writes = append(writes, clientv3.OpPut(etcd.KeyRings+reconcile.MemberKey(name, member), value))
		unchanged, write, err := grant.AdmissionWrite(ctx, client, reconcile.MemberKey(name, member),
			func(admission *api.Admission) error {
				grant.EndWriters(admission, max(admission.EpochMin, v.Epochs[name]))
				return nil
			})
		if err != nil {
			return 0, err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	return state.Commit(ctx, client, fmt.Sprintf("change rings of stream %q", name),
		fmt.Sprintf("stream %q, or its grant,", name), guards, writes)
}
