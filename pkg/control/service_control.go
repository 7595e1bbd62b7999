package control

import (
	"context"
	"fmt"
	"maps"
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

// blindText is what a control plane says that cannot do anything.
const blindText = "the control plane cannot read its etcd"

// namesToldMax bounds how many streams an error lists.
const namesToldMax = 5

// ListAgents implements farlog.v1.ControlService.
func (s *Server) ListAgents(context.Context, *api.ListAgentsRequest) (*api.ListAgentsResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	response := &api.ListAgentsResponse{TargetsAlive: slices.Sorted(maps.Keys(now.liveTargets)), DrainsAlive: slices.Sorted(maps.Keys(now.liveDrains))}
	for _, id := range slices.Sorted(maps.Keys(now.targets)) {
		response.Targets = append(response.Targets, now.targets[id])
	}
	for _, id := range slices.Sorted(maps.Keys(now.drains)) {
		response.Drains = append(response.Drains, now.drains[id])
	}
	return response, nil
}

// AcquireWriter implements farlog.v1.ControlService. The order matters: the rings must be there, then the epoch is
// persisted, then for far rings the writers before are fenced and that is confirmed, then it is told.
func (s *Server) AcquireWriter(ctx context.Context, request *api.AcquireWriterRequest) (*api.AcquireWriterResponse, error) {
	if err := completeHolder(ctx, request); err != nil {
		return nil, err
	}
	if answer, err := s.grantedBefore(ctx, request); answer != nil || err != nil {
		return answer, err
	}
	var now *view
	var rings []*api.RingState
	err := inSpan(ctx, "wait for the ring", request.Stream, func(ctx context.Context) (err error) {
		now, rings, err = s.waitRings(ctx, request.Stream)
		return err
	})
	if err != nil {
		return nil, err
	}
	admitting, err := now.admitting(rings, request)
	if err != nil {
		return nil, err
	}
	if request.SparesWriter {
		if err := s.spare(ctx, request, admitting); err != nil {
			return nil, err
		}
	}
	// A ring can be ahead of the control plane: whoever opens it by its URI alone raises its epoch too.
	// The caller may have seen that before the target has.
	known := knownEpoch(rings)
	seen := uint32(min(uint64(request.EpochSeen), uint64(known)+epochSeenMax))
	granted, revision, err := nextEpoch(ctx, s.config.Client, now, now.grantOf(rings, admitting, request), max(known, seen), len(rings), admitting.admit, nil)
	if err != nil {
		return nil, err
	}
	if s.config.OnGrant != nil {
		s.config.OnGrant(request.Stream)
	}
	s.config.Logger.Info("granted", "stream", granted.Stream, "epoch", granted.Epoch, "host", granted.Holder.GetHost(), "pid", granted.Holder.GetPid(),
		"is_far", slices.Contains(admitting.isFar, true), "by", callerOf(ctx).ID)
	if err := s.mirror.waitRevision(ctx, revision); err != nil {
		return nil, err
	}
	return s.confirmed(ctx, request, now, granted, admitting)
}

// confirmed is the answer, when the targets have fenced and admitted.
func (s *Server) confirmed(ctx context.Context, request *api.AcquireWriterRequest, now *view, granted *api.Grant, admitting *admitting) (*api.AcquireWriterResponse, error) {
	wanted := admitting.confirmation(now, request.Stream, granted.Epoch)
	if slices.Contains(wanted.isAsked, true) {
		err := inSpan(ctx, "wait for the target to fence and admit", request.Stream, func(ctx context.Context) (err error) {
			now, err = wanted.wait(ctx, s.mirror)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for i, member := range granted.Members {
		if ring := reconcile.SeenRing(now.targets, now.rings[reconcile.MemberKey(request.Stream, i)]); admitting.isFar[i] {
			member.Token = admitting.tokens[i]
			if uri := reconcile.FarURI(ring.GetFarUris(), request.Transport, request.Stream, i); uri != "" {
				member.Uri = uri
			}
		}
	}
	return &api.AcquireWriterResponse{Grant: granted}, nil
}

// admitting is what a grant changes at the doors of a stream's rings.
type admitting struct {
	isFar  []bool
	hadFar []bool // there was a writer from another host before
	tokens [][]byte
	from   [][]string // the addresses from which each token may be brought
}

func (v *view) admitting(rings []*api.RingState, request *api.AcquireWriterRequest) (*admitting, error) {
	a := &admitting{hadFar: make([]bool, len(rings))}
	for _, ring := range rings {
		isFar, err := v.isFar(ring, request)
		if err != nil {
			return nil, err
		}
		token, err := newToken()
		if err != nil {
			return nil, err
		}
		a.isFar, a.tokens = append(a.isFar, isFar), append(a.tokens, token)
		a.from = append(a.from, v.origins(request.Holder.GetAddresses(), request.Holder.GetHost(), ring))
	}
	return a, nil
}

func (a *admitting) admit(i int, admission *api.Admission, epoch uint32) error {
	a.hadFar[i] = slices.ContainsFunc(admission.Grants, isWriter)
	if a.isFar[i] {
		admitWriter(admission, epoch, a.tokens[i], a.from[i], time.Now().Add(grantUnusedMax))
	} else if a.hadFar[i] {
		endWriters(admission, epoch)
	}
	return nil
}

func (a *admitting) confirmation(v *view, stream string, epoch uint32) *confirmation {
	c := &confirmation{stream: stream, epoch: epoch, isLetIn: a.isFar, required: reconcile.Quorum(v.streams[stream]), fences: reconcile.FenceCount(v.streams[stream])}
	for i := range a.isFar {
		isAlive := v.liveTargets[v.rings[reconcile.MemberKey(stream, i)].GetTarget()] != nil
		c.isAsked = append(c.isAsked, a.isFar[i] || a.hadFar[i] && isAlive)
	}
	return c
}

// grantOf is a grant without its epoch and, because it is kept and shown, without a token.
func (v *view) grantOf(rings []*api.RingState, admitting *admitting, request *api.AcquireWriterRequest) *api.Grant {
	stream := v.streams[request.Stream]
	grant := &api.Grant{
		Stream:       request.Stream,
		StreamId:     stream.StreamId,
		K:            stream.K,
		Level:        stream.Spec.Level,
		Policy:       stream.Spec.Policy,
		RecordLenMax: stream.Spec.RecordLenMax,
		Deadline:     stream.Spec.Deadline,
		Holder:       request.Holder,
		RequestId:    request.RequestId,
	}
	for i, ring := range rings {
		member := &api.Member{Uri: ring.Uri, RingUuid: uuidOf(v.rings[reconcile.MemberKey(request.Stream, i)]), Target: ring.Target}
		if admitting.isFar[i] {
			member.Uri = reconcile.FarURI(ring.FarUris, request.Transport, request.Stream, i)
		}
		grant.Members = append(grant.Members, member)
	}
	return grant
}

// waitRings waits, within the call's deadline and acquireWaitMax, for a stream's rings to be ready. One of several that was there once may be gone.
func (s *Server) waitRings(ctx context.Context, name string) (*view, []*api.RingState, error) {
	if err := s.checkStream(ctx, name); err != nil {
		return nil, nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, acquireWaitMax)
	defer cancel()
	now, err := s.mirror.wait(waiting, func(v *view) bool { return v.areRingsDecided(name) })
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		reason := now.status(name).Reason
		return nil, nil, status.Errorf(codes.Unavailable, "stream %q has no ring: %s", name, reason)
	}
	specs, _ := reconcile.RingSpecs(now.rings, now.streams[name])
	var rings []*api.RingState
	ready := 0
	for _, spec := range specs {
		ring := reconcile.SeenRing(now.targets, spec)
		if reconcile.IsBoundRing(spec, ring) {
			ready++
		}
		rings = append(rings, ring)
	}
	if ready < reconcile.Quorum(now.streams[name]) {
		_, reason := conditionOf(now.status(name), len(now.liveTargets))
		return nil, nil, unmet(reasonNoRing, "stream", quoted(name), "expected a stream whose rings are there: %s", reason).errorf("stream %q has no ring: %s", name, reason)
	}
	return now, rings, nil
}

// areRingsDecided tells whether each of a stream's rings was seen, and is bound or cannot be made. A ring is granted only after the stream was bound to it:
// one that a writer has used must never be made anew.
func (v *view) areRingsDecided(name string) bool {
	if v.streams[name] == nil {
		return false
	}
	specs, isWhole := reconcile.RingSpecs(v.rings, v.streams[name])
	for _, spec := range specs {
		ring := reconcile.SeenRing(v.targets, spec)
		if spec == nil || ring == nil || len(spec.RingUuid) == 0 && (len(ring.RingUuid) > 0 || ring.Error == "") {
			return false
		}
	}
	return isWhole
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
	if s.isBlind() {
		return nil, api.Blind(blindText)
	}
	now, _ := s.mirror.load()
	return now, nil
}

func (v *view) statuses() []*api.StreamStatus {
	list := make([]*api.StreamStatus, 0, len(v.streams))
	for _, name := range slices.Sorted(maps.Keys(v.streams)) {
		list = append(list, v.status(name))
	}
	return list
}

// unknownStream names some of the streams that there are for this caller.
func (v *view) unknownStream(caller access.Caller, name string) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(v.streams)), func(one string) bool {
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
			return invalid("holder ", []*api.Problem{{Field: "holder", Value: fmt.Sprintf("%q", text), Rule: fmt.Sprintf("expected at most %d bytes without control characters", holderNameLenMax)}})
		}
	}
	return checkAddresses("holder "+holder.GetHost(), holder.GetAddresses())
}
