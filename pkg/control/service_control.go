package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// holderNameLenMax keeps a holder within the writer_id of the superblock.
const holderNameLenMax = 64

// epochSeenMax bounds how far an epoch that a caller says it has seen may lie above what is known: one wrong number must
// not use up the epochs of a stream.
const epochSeenMax = 1 << 16

// namesToldMax bounds how many streams an error lists.
const namesToldMax = 5

// ListAgents implements farlog.v1.ControlService.
func (s *Server) ListAgents(context.Context, *api.ListAgentsRequest) (*api.ListAgentsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	response := &api.ListAgentsResponse{TargetsAlive: sortedKeys(now.liveTargets), DrainsAlive: sortedKeys(now.liveDrains)}
	for _, id := range sortedKeys(now.targets) {
		response.Targets = append(response.Targets, now.targets[id])
	}
	for _, id := range sortedKeys(now.drains) {
		response.Drains = append(response.Drains, now.drains[id])
	}
	return response, nil
}

// AcquireWriter implements farlog.v1.ControlService. The order matters: the ring must be there, then the epoch is
// persisted, then for a far ring the writers before are fenced and that is confirmed, then it is told.
func (s *Server) AcquireWriter(ctx context.Context, request *api.AcquireWriterRequest) (*api.AcquireWriterResponse, error) {
	if err := completeHolder(ctx, request); err != nil {
		return nil, err
	}
	var now *view
	var ring *api.RingState
	err := inSpan(ctx, "wait for the ring", request.Stream, func(ctx context.Context) (err error) {
		now, ring, err = s.waitRing(ctx, request.Stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	isFar, err := now.isFar(ring, request)
	if err != nil {
		return nil, err
	}
	token, err := newToken()
	if err != nil {
		return nil, err
	}
	hadFar := false
	admit := func(admission *api.Admission, epoch uint32) error {
		hadFar = slices.ContainsFunc(admission.Grants, isWriter)
		if isFar {
			admitWriter(admission, epoch, token, time.Now().Add(grantUnusedMax))
		} else if hadFar {
			endWriters(admission, epoch)
		}
		return nil
	}
	// A ring can be ahead of the control plane: whoever opens it by its URI alone raises its epoch too.
	// The caller may have seen that before the target has.
	known := max(ring.WriterEpoch, ring.EpochMin)
	seen := uint32(min(uint64(request.EpochSeen), uint64(known)+epochSeenMax))
	uri := ring.Uri
	if isFar {
		uri = reconcile.FarURI(ring.FarUris, request.Transport)
	}
	granted, revision, err := s.specs.nextEpoch(ctx, now.grantOf(ring, uri, request), max(known, seen), admit)
	if err != nil {
		return nil, err
	}
	if s.config.OnGrant != nil {
		s.config.OnGrant(request.Stream)
	}
	s.config.Logger.Info("granted", "stream", granted.Stream, "epoch", granted.Epoch, "host", granted.Holder.GetHost(), "pid", granted.Holder.GetPid(),
		"is_far", isFar, "by", callerOf(ctx).ID)
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return nil, err
	}
	if isFar || hadFar && now.liveTargets[ring.Target] != nil {
		err := inSpan(ctx, "wait for the target to fence and admit", request.Stream, func(ctx context.Context) (err error) {
			ring, err = s.waitConfirmed(ctx, request.Stream, granted.Epoch, isFar)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if isFar {
		granted.Members[0].Uri, granted.Members[0].Token = reconcile.FarURI(ring.FarUris, request.Transport), token
	}
	return &api.AcquireWriterResponse{Grant: granted}, nil
}

// grantOf is a grant without its epoch and, because it is kept and shown, without a token.
func (v *view) grantOf(ring *api.RingState, uri string, request *api.AcquireWriterRequest) *api.Grant {
	stream := v.streams[request.Stream]
	return &api.Grant{
		Stream:       request.Stream,
		StreamId:     stream.StreamId,
		Members:      []*api.Member{{Uri: uri, RingUuid: ring.RingUuid, Target: ring.Target}},
		K:            stream.K,
		Level:        stream.Spec.Level,
		Policy:       stream.Spec.Policy,
		RecordLenMax: stream.Spec.RecordLenMax,
		Deadline:     stream.Spec.Deadline,
		Holder:       request.Holder,
	}
}

// waitRing waits, within the call's deadline and acquireWaitMax, for a stream's ring to be ready.
func (s *Server) waitRing(ctx context.Context, name string) (*view, *api.RingState, error) {
	if err := s.checkStream(ctx, name); err != nil {
		return nil, nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, acquireWaitMax)
	defer cancel()
	isDecided := func(v *view) bool {
		ring := reconcile.SeenRing(v.targets, v.rings[name])
		if v.streams[name] == nil || ring == nil {
			return false
		}
		// A ring is granted only after the stream was bound to it: one that a writer has used must never be made anew.
		return len(v.rings[name].RingUuid) > 0 || len(ring.RingUuid) == 0 && ring.Error != ""
	}
	now, err := s.mirror.wait(waiting, isDecided)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		_, reason := conditionOf(now.status(name), len(now.liveTargets))
		return nil, nil, status.Errorf(codes.Unavailable, "stream %q has no ring: %s", name, reason)
	}
	ring := reconcile.SeenRing(now.targets, now.rings[name])
	if !reconcile.IsBoundRing(now.rings[name], ring) {
		_, reason := conditionOf(now.status(name), len(now.liveTargets))
		return nil, nil, status.Errorf(codes.FailedPrecondition, "stream %q has no ring: %s", name, reason)
	}
	return now, ring, nil
}

// checkStream asks etcd itself, so that a stream made through another instance a moment ago is known.
func (s *Server) checkStream(ctx context.Context, name string) error {
	got, err := s.config.Client.Get(ctx, keyStreams+name, clientv3.WithCountOnly())
	if err != nil {
		return status.Errorf(codes.Unavailable, "read stream %q: %s", name, err)
	}
	if got.Count == 0 {
		now, _ := s.mirror.load()
		return now.unknownStream(callerOf(ctx), name)
	}
	return nil
}

// fresh is the view, unless it is known to be old.
func (s *Server) fresh() (*view, error) {
	if !s.IsHealthy() {
		return nil, status.Error(codes.Unavailable, "the control plane cannot read its etcd")
	}
	now, _ := s.mirror.load()
	return now, nil
}

func (v *view) statuses() []*api.StreamStatus {
	list := make([]*api.StreamStatus, 0, len(v.streams))
	for _, name := range sortedKeys(v.streams) {
		list = append(list, v.status(name))
	}
	return list
}

// unknownStream names some of the streams that there are for this caller.
func (v *view) unknownStream(caller access.Caller, name string) error {
	names := slices.DeleteFunc(sortedKeys(v.streams), func(one string) bool {
		return caller.May(api.ControlService_ListStreams_FullMethodName, one) != nil
	})
	known := "there are none yet: farlog stream create makes one"
	if len(names) > 0 {
		known = "there is " + strings.Join(names[:min(len(names), namesToldMax)], ", ")
	}
	if len(names) > namesToldMax {
		known += fmt.Sprintf(" and %d more", len(names)-namesToldMax)
	}
	return status.Errorf(codes.NotFound, "stream %q: there is none of that name; %s", name, known)
}

// completeHolder checks who asks for a grant, and for which host.
func completeHolder(ctx context.Context, request *api.AcquireWriterRequest) error {
	if err := checkHolder(request.Holder); err != nil {
		return err
	}
	if request.Holder == nil {
		request.Holder = new(api.Holder)
	}
	if err := callerOf(ctx).MayHold(request.Holder.Host); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	request.Holder.Identity = string(callerOf(ctx).ID)
	return nil
}

func checkHolder(holder *api.Holder) error {
	for _, text := range []string{holder.GetHost(), holder.GetName()} {
		if len(text) > holderNameLenMax || strings.IndexFunc(text, unicode.IsControl) >= 0 {
			return status.Errorf(codes.InvalidArgument, "holder %q: expected at most %d bytes without control characters", text, holderNameLenMax)
		}
	}
	return nil
}

func sortedKeys[V any](things map[string]V) []string {
	keys := make([]string, 0, len(things))
	for key := range things {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
