package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/control/tracing"
)

// holderNameLenMax keeps a holder within the writer_id of the superblock.
const holderNameLenMax = 64

// epochSeenMax bounds how far an epoch that a caller says it has seen may lie above what is known: one wrong number
// must not use up the epochs of a stream.
const epochSeenMax = 1 << 16

// resyncingText is what a control plane says that cannot do anything.
const resyncingText = "the control plane cannot read its etcd"

// namesToldMax bounds how many streams an error lists.
const namesToldMax = 5

// ListAgents implements farlog.v1.ControlService.
func (s *Server) ListAgents(context.Context, *api.ListAgentsRequest) (*api.ListAgentsResponse, error) {
	now := s.view()
	response := &api.ListAgentsResponse{
		TargetsAlive: slices.Sorted(maps.Keys(now.LiveTargets)),
		DrainsAlive:  slices.Sorted(maps.Keys(now.LiveDrains)),
	}
	for _, id := range slices.Sorted(maps.Keys(now.Targets)) {
		response.Targets = append(response.Targets, now.Targets[id])
	}
	for _, id := range slices.Sorted(maps.Keys(now.Drains)) {
		response.Drains = append(response.Drains, now.Drains[id])
	}
	return response, nil
}

// AcquireWriter implements farlog.v1.ControlService. The order matters: the rings must be there, then the epoch is
// persisted, then for far rings the writers before are fenced and that is confirmed, then it is told.
func (s *Server) AcquireWriter(ctx context.Context, request *api.AcquireWriterRequest) (*api.AcquireWriterResponse,
	error,
) {
	if err := completeHolder(ctx, request); err != nil {
		return nil, err
	}
	if answer, err := s.grantedBefore(ctx, request); answer != nil || err != nil {
		return answer, err
	}
	var now *state.View
	var rings []*api.RingState
	err := tracing.InSpan(ctx, "wait for the ring", request.Stream, func(ctx context.Context) (err error) {
		now, rings, err = s.waitRings(ctx, request.Stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	admitting, err := grant.NewWriterAdmission(now, rings, request)
	if err != nil {
		return nil, err
	}
	if request.NoTakeover {
		if err := s.waitNoWriter(ctx, request, admitting); err != nil {
			return nil, err
		}
	}
	// A ring can be ahead of the control plane: whoever opens it by its URI alone raises its epoch too.
	// The caller may have seen that before the target has.
	known := grant.KnownEpoch(rings)
	seen := uint32(min(uint64(request.EpochSeen), uint64(known)+epochSeenMax))
	granted, revision, err := grant.NextEpoch(ctx, s.config.Client, now, grant.New(now, rings, admitting, request),
		max(known, seen), len(rings), admitting.Admit, nil)
	if err != nil {
		return nil, err
	}
	if s.config.OnGrant != nil {
		s.config.OnGrant(request.Stream)
	}
	s.config.Logger.Info("granted", "stream", granted.Stream, "epoch", granted.Epoch, "host", granted.Holder.GetHost(),
		"pid", granted.Holder.GetPid(), "remote", slices.Contains(admitting.IsFar, true), "by", callerOf(ctx).ID)
	if err := s.mirror.WaitRevision(ctx, revision); err != nil {
		return nil, err
	}
	return s.confirmed(ctx, request, now, granted, admitting)
}

// confirmed is the answer, when the targets have fenced and admitted.
func (s *Server) confirmed(ctx context.Context, request *api.AcquireWriterRequest, now *state.View, granted *api.Grant,
	admitting *grant.WriterAdmission,
) (*api.AcquireWriterResponse, error) {
	wanted := admitting.Confirmation(now, request.Stream, granted.Epoch)
	if slices.Contains(wanted.IsAsked, true) {
		err := tracing.InSpan(ctx, "wait for the target to fence and admit", request.Stream,
			func(ctx context.Context) (err error) {
				now, err = wanted.Wait(ctx, s.mirror)
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	for i, member := range granted.Members {
		if ring := reconcile.SeenRing(now.Targets, now.Rings[reconcile.MemberKey(request.Stream,
			i)]); admitting.IsFar[i] && !strings.HasPrefix(member.Uri, "nvme:") {
			member.Token = admitting.Tokens[i]
			if uri := reconcile.RemoteURI(ring.GetRemoteUris(), request.Transport, request.Stream, i); uri != "" {
				member.Uri = uri
			}
		}
	}
	return &api.AcquireWriterResponse{Grant: granted}, nil
}

// waitRings waits, within the call's deadline and acquireWaitMax, for a stream's rings to be ready. One of several that
// was there once may be gone.
func (s *Server) waitRings(ctx context.Context, name string) (*state.View, []*api.RingState, error) {
	if err := s.checkStream(ctx, name); err != nil {
		return nil, nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, acquireWaitMax)
	defer cancel()
	now, err := s.mirror.Wait(waiting, func(v *state.View) bool { return areRingsDecided(v, name) })
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		reason := now.Status(name).Reason
		return nil, nil, status.Errorf(codes.Unavailable, "stream %q has no ring: %s", name, reason)
	}
	specs, _ := reconcile.RingSpecs(now.Rings, now.Streams[name])
	var rings []*api.RingState
	ready := 0
	for _, spec := range specs {
		ring := reconcile.SeenRing(now.Targets, spec)
		if reconcile.IsBoundRing(spec, ring) {
			ready++
		}
		rings = append(rings, ring)
	}
	if ready < reconcile.Quorum(now.Streams[name]) {
		_, reason := state.ConditionOf(now.Status(name), len(now.LiveTargets))
		return nil, nil, refusal.Precondition(refusal.ReasonNoRing, "stream", refusal.Quote(name),
			"expected a stream whose rings are there: %s", reason).Errorf("stream %q has no ring: %s", name, reason)
	}
	return now, rings, nil
}

// areRingsDecided reports whether each of a stream's rings was seen, and is bound or cannot be made. A ring is granted
// only after the stream was bound to it: one that a writer has used must never be made again.
func areRingsDecided(v *state.View, name string) bool {
	if v.Streams[name] == nil {
		return false
	}
	specs, isWhole := reconcile.RingSpecs(v.Rings, v.Streams[name])
	for _, spec := range specs {
		ring := reconcile.SeenRing(v.Targets, spec)
		if spec == nil || ring == nil || len(spec.RingUuid) == 0 && (len(ring.RingUuid) > 0 || ring.Error == "") {
			return false
		}
	}
	return isWhole
}

// checkStream asks etcd itself, so that a stream made through another instance a moment ago is known.
func (s *Server) checkStream(ctx context.Context, name string) error {
	got, err := s.config.Client.Get(ctx, etcd.KeyStreams+name, clientv3.WithCountOnly())
	if err != nil {
		return status.Errorf(codes.Unavailable, "read stream %q: %s", name, err)
	}
	if got.Count == 0 {
		now, _ := s.mirror.Load()
		return unknownStream(now, callerOf(ctx), name)
	}
	return nil
}

// fresh is the view, unless it is known to be old: for what comes long after the guard has looked.
func (s *Server) fresh() (*state.View, error) {
	if s.isResyncing() {
		return nil, api.EtcdUnreachable(resyncingText)
	}
	return s.view(), nil
}

// view is the present one. A handler begins with it: the guard has just seen that it is no old one.
func (s *Server) view() *state.View {
	now, _ := s.mirror.Load()
	return now
}

// unknownStream names some of the streams that there are for this caller.
func unknownStream(v *state.View, caller access.Caller, name string) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(v.Streams)), func(one string) bool {
		return caller.May(api.ControlService_ListStreams_FullMethodName, one) != nil
	})
	return status.Errorf(codes.NotFound, "stream %q: there is none of that name; %s", name,
		someOf(names, ": farlog stream create makes one"))
}

// someOf names some of those that there are, or says that there are none yet, and what makes one.
func someOf(names []string, remedy string) string {
	if len(names) == 0 {
		return "there are none yet" + remedy
	}
	text := "there is " + strings.Join(names[:min(len(names), namesToldMax)], ", ")
	if len(names) > namesToldMax {
		text += fmt.Sprintf(" and %d more", len(names)-namesToldMax)
	}
	return text
}

// completeHolder checks who asks for a grant, and for which host.
func completeHolder(ctx context.Context, request *api.AcquireWriterRequest) error {
	if err := checkHolder(request.Holder); err != nil {
		return err
	}
	if request.Holder == nil {
		request.Holder = new(api.Holder)
	}
	if err := mayHold(ctx, request.Stream, request.Holder.Host); err != nil {
		return err
	}
	request.Holder.Identity = string(callerOf(ctx).ID)
	return nil
}

// mayHold refuses a grant of a stream for a host from which its caller does not write it.
func mayHold(ctx context.Context, stream, host string) error {
	if err := callerOf(ctx).MayHold(stream, host); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	return nil
}

func checkHolder(holder *api.Holder) error {
	for _, text := range []string{holder.GetHost(), holder.GetName()} {
		if len(text) > holderNameLenMax || strings.IndexFunc(text, unicode.IsControl) >= 0 {
			return refusal.InvalidArgument("holder ", []*api.Problem{{
				Field: "holder", Value: fmt.Sprintf("%q", text),
				Rule: fmt.Sprintf("expected at most %d bytes without control characters", holderNameLenMax),
			}})
		}
	}
	return checkAddresses("holder "+holder.GetHost(), holder.GetAddresses())
}
