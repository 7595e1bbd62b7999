package control

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// fenceStepMax is how far a fence may lie above a ring's last epoch (farlog_ring_fence).
const fenceStepMax = 1 << 16

// DeleteStream implements farlog.v1.ControlService. What is decided here is only that the end begins; the reconciler goes on from there (reconcile/delete.go).
func (s *Server) DeleteStream(ctx context.Context, request *api.DeleteStreamRequest) (*api.DeleteStreamResponse, error) {
	now, err := s.fresh()
	if err != nil {
		return nil, err
	}
	have := now.streams[request.Name]
	if have == nil {
		return nil, now.unknownStream(callerOf(ctx), request.Name)
	}
	if request.Revision != 0 && request.Revision != have.Revision {
		return nil, staleRevision(fmt.Sprintf("stream %q", request.Name), have.Revision, request.Revision)
	}
	if deletion := now.deletions[request.Name]; reconcile.IsBeingDeleted(deletion) && deletion.IsRingLost == request.IsRingLost {
		return &api.DeleteStreamResponse{Deletion: deletion}, nil
	}
	if by := now.routeSpecs().WhoSelects(request.Name, ""); by != "" {
		return nil, unmet(reasonSelected, "name", quoted(request.Name), "expected a stream that no route selects: route %q does", by).
			errorf("stream %q is not deleted: route %q selects it: change or delete that first", request.Name, by)
	}
	if reason := now.whyNotDelete(request.Name, request.IsRingLost); reason != "" {
		return nil, unmet(reasonNotDeletable, "name", quoted(request.Name), "expected a stream that nobody writes and whose records are all stored: %s", reason).
			errorf("stream %q is not deleted: %s", request.Name, reason)
	}
	deletion := now.deletion(request.Name, request.IsRingLost, string(callerOf(ctx).ID))
	if request.IsDryRun {
		return &api.DeleteStreamResponse{Deletion: deletion}, nil
	}
	if deletion.Revision, err = beginDeletion(ctx, s.config.Client, now, now.revision, deletion); err != nil {
		return nil, err
	}
	s.config.Logger.Info("deleting", "stream", request.Name, "stream_id", deletion.StreamId, "is_ring_lost", request.IsRingLost, "by", callerOf(ctx).ID)
	return &api.DeleteStreamResponse{Deletion: deletion}, s.mirror.waitRevision(ctx, deletion.Revision)
}

// whyNotDelete says why a stream may not end; "": it may.
func (v *view) whyNotDelete(name string, isRingLost bool) string {
	if pattern.IsSystem(name) {
		return "names that begin with " + pattern.SystemPrefix + " are the control plane's own"
	}
	lost := 0
	for _, spec := range v.status(name).RingSpecs {
		if isRingLost && reconcile.IsLost(v.liveTargets, spec, reconcile.SeenRing(v.targets, spec)) {
			lost++
			continue
		}
		if reason := v.whyKeepRing(name, spec); reason != "" {
			return reason
		}
	}
	if isRingLost && lost == 0 {
		return "its ring is not lost: it is reported by its target"
	}
	return ""
}

// whyKeepRing finds who has a ring, and what is in it that the store has not.
func (v *view) whyKeepRing(name string, spec *api.RingSpec) string {
	ring := reconcile.SeenRing(v.targets, spec)
	const lost = "; if it is lost for good, with what was not stored: farlog stream delete --ring-lost"
	switch {
	case v.liveTargets[spec.Target] == nil:
		return fmt.Sprintf("target %s does not report, so nobody sees whether its ring holds records that are not stored: start it"+lost, spec.Target)
	case v.wasNeverMade(name, spec, ring):
		return "" // the target looks once more: a ring that is there after all is closed and drained first
	case ring.GetError() != "":
		return fmt.Sprintf("target %s: %s%s", spec.Target, ring.Error, lost)
	case ring.GetIsWriterHeld():
		return fmt.Sprintf("a writer has its ring (%s): end it, and delete again", holderText(v.grants[name], ring))
	case ring.GetLagBytes() > 0:
		return fmt.Sprintf("%d records (%d bytes) of its ring are not stored yet: farlog status %s says whether its drain gets on, and what to do when not", ring.LagRecords, ring.LagBytes, name)
	}
	return ""
}

// wasNeverMade tells a ring that its target could not make, as it says itself: nobody was ever let in, and no target has ever shown one.
func (v *view) wasNeverMade(name string, spec *api.RingSpec, ring *api.RingState) bool {
	return v.epochs[name] == 0 && v.assignments[name] == nil && len(spec.RingUuid) == 0 && spec.Replacement == nil && len(spec.LostUuid) == 0 &&
		ring.GetError() != "" && len(ring.RingUuid) == 0 && !ring.IsMissing && ring.WriterEpoch == 0 && ring.AppendedLsn == 0
}

// holderText names who has a ring, as far as it is known: the last grant is the writer's only when its epoch is.
func holderText(grant *api.Grant, ring *api.RingState) string {
	if holder := grant.GetHolder(); holder != nil && grant.Epoch == ring.GetWriterEpoch() {
		return fmt.Sprintf("%s, pid %d on host %s", holder.Name, holder.Pid, holder.Host)
	}
	return fmt.Sprintf("%s, epoch %d", ring.GetWriterId(), ring.GetWriterEpoch())
}

// deletion is the end of a stream as it begins. The fence is above every epoch that was granted, as far as a ring takes such a fence.
func (v *view) deletion(name string, isRingLost bool, by string) *api.Deletion {
	epoch, limit := uint64(v.epochs[name])+1, uint64(math.MaxUint32)
	rings, _ := reconcile.RingSpecs(v.rings, v.streams[name])
	for _, spec := range rings {
		if ring := reconcile.SeenRing(v.targets, spec); ring != nil {
			epoch, limit = max(epoch, uint64(ring.WriterEpoch)+1, uint64(ring.EpochMin)), min(limit, uint64(ring.WriterEpoch)+fenceStepMax)
		}
	}
	given := v.assignments[name]
	return &api.Deletion{
		Name: name, StreamId: v.streams[name].StreamId, Stage: api.DeletionStage_DELETION_STAGE_DRAINING, EpochMin: uint32(min(epoch, limit)),
		Began: timestamppb.New(time.Now()), By: by, IsRingLost: isRingLost, StoreUuid: given.GetStoreUuid(), StoreDir: given.GetStoreDir(),
	}
}

// beginDeletion fences what was granted and lets nobody come after, in one step, unless a grant was given or the stream changed since the view, or a route
// since a revision.
func beginDeletion(ctx context.Context, client *clientv3.Client, v *view, routesSince int64, deletion *api.Deletion) (revision int64, err error) {
	name := deletion.Name
	guards, writes, err := deletionWrites(ctx, client, v, deletion)
	if err != nil {
		return 0, err
	}
	put, err := client.Txn(ctx).If(append(guards, noRouteSince(routesSince))...).Then(writes...).Commit()
	if err != nil {
		return 0, fmt.Errorf("begin to delete stream %q: %w", name, err)
	}
	if !put.Succeeded {
		return 0, changedMeanwhile(fmt.Sprintf("stream %q, or its grant,", name))
	}
	return put.Header.Revision, nil
}

func deletionWrites(ctx context.Context, client *clientv3.Client, v *view, deletion *api.Deletion) (guards []clientv3.Cmp, writes []clientv3.Op, err error) {
	name := deletion.Name
	value, err := encode(deletion)
	if err != nil {
		return nil, nil, err
	}
	guards = append(ringsUnchanged(v, name), unchangedSince(v, keyDeletions+name), unchangedSince(v, keyEpochs+name))
	epoch := max(deletion.EpochMin, v.epochs[name])
	writes = []clientv3.Op{clientv3.OpPut(keyDeletions+name, value), clientv3.OpPut(keyEpochs+name, strconv.FormatUint(uint64(epoch), 10))}
	for i := range reconcile.MemberCount(v.streams[name]) {
		unchanged, write, err := admissionWrite(ctx, client, reconcile.MemberKey(name, i), func(admission *api.Admission) error {
			endWriters(admission, max(admission.EpochMin, deletion.EpochMin))
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	return guards, writes, nil
}

// withoutDrains lets no drain into any of so many rings.
func withoutDrains(members int) map[int]func(*api.Admission) error {
	changes := map[int]func(*api.Admission) error{}
	for i := range members {
		changes[i] = func(admission *api.Admission) error {
			admitDrain(admission, 0, nil)
			return nil
		}
	}
	return changes
}

// endWrites is what Retire and Forget write.
func endWrites(v *view, action reconcile.Action) (key string, writes []clientv3.Op, err error) {
	name := action.Retire + action.Forget
	key = keyDeletions + name
	if v.deletions[name] == nil {
		return key, nil, errors.New("the deletion is not known any more")
	}
	deletion := proto.Clone(v.deletions[name]).(*api.Deletion)
	deletion.Stage = api.DeletionStage_DELETION_STAGE_REMOVING
	deletion.Revision = 0
	gone := []string{keyAssignments + name}
	if action.Forget != "" {
		deletion.Stage, deletion.Ended = api.DeletionStage_DELETION_STAGE_ENDED, timestamppb.New(time.Now())
		gone = append(gone, keyEpochs+name, keyGrants+name, keyPast+name, keyStreams+name)
		for i := range reconcile.MemberCount(v.streams[name]) {
			member := reconcile.MemberKey(name, i)
			gone = append(gone, keyAdmissions+member, keyRings+member)
		}
	}
	value, err := encode(deletion)
	writes = []clientv3.Op{clientv3.OpPut(key, value)}
	for _, one := range gone {
		writes = append(writes, clientv3.OpDelete(one))
	}
	return key, writes, err
}

// stays refuses a stream that is gone or going, and gives the condition that it is neither still.
func stays(name string, deletions, streams *etcdserverpb.RangeResponse) (clientv3.Cmp, error) {
	key, revision := keyDeletions+name, int64(0)
	if streams.Count == 0 {
		return clientv3.Cmp{}, status.Errorf(codes.NotFound, "stream %q: there is none of that name", name)
	}
	if len(deletions.Kvs) > 0 {
		deletion := new(api.Deletion)
		if err := decode(key, deletions.Kvs[0].Value, deletion); err != nil {
			return clientv3.Cmp{}, err
		}
		if reconcile.IsBeingDeleted(deletion) {
			return clientv3.Cmp{}, beingDeleted(name)
		}
		revision = deletions.Kvs[0].ModRevision
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision), nil
}

// isStaying refuses a stream that is being deleted.
func (v *view) isStaying(name string) error {
	if reconcile.IsBeingDeleted(v.deletions[name]) {
		return beingDeleted(name)
	}
	return nil
}

func beingDeleted(name string) error {
	return unmet(reasonDeleting, "name", quoted(name), "expected a stream that is not being deleted").errorf("stream %q is being deleted: a new one may have its name when it is gone", name)
}

// deletionText says what the end of a stream waits for.
func deletionText(one *api.StreamStatus) string {
	for _, spec := range one.RingSpecs {
		ring := new(api.RingState)
		for _, seen := range one.Rings {
			if seen.Target == spec.Target {
				ring = seen
			}
		}
		if text := ringEndText(one, spec.Target, ring); text != "" {
			return "being deleted: " + text
		}
	}
	return "being deleted"
}

func ringEndText(one *api.StreamStatus, target string, ring *api.RingState) string {
	switch {
	case ring.IsRemoved:
		return ""
	case !slices.Contains(one.TargetsAlive, target):
		return fmt.Sprintf("target %s does not report", target)
	case ring.Error != "":
		return ring.Error
	case one.Deletion.Stage == api.DeletionStage_DELETION_STAGE_REMOVING:
		return fmt.Sprintf("target %s removes its ring", target)
	case ring.IsWriterHeld:
		return fmt.Sprintf("a writer (%s) still has the ring, end it", holderText(one.LastGrant, ring))
	case ring.LagBytes > 0 && !one.IsDrainAlive:
		return fmt.Sprintf("%d records are not stored, and no drain reports", ring.LagRecords)
	case ring.LagBytes > 0:
		return fmt.Sprintf("%d records are still to be stored", ring.LagRecords)
	case !ring.IsClosed:
		return fmt.Sprintf("target %s fences writers", target)
	}
	return ""
}

// deletedSince lists the ends of streams after a revision, the oldest first.
func (v *view) deletedSince(caller access.Caller, named string, revision int64) (list []*api.Deletion) {
	if named == "" {
		named = pattern.All
	}
	for name, deletion := range v.deletions {
		isGone := deletion.Stage == api.DeletionStage_DELETION_STAGE_ENDED && deletion.Revision > revision
		if isGone && pattern.Covers([]string{named}, name) && caller.May(api.ControlService_WatchStreams_FullMethodName, name) == nil {
			list = append(list, deletion)
		}
	}
	slices.SortFunc(list, func(a, b *api.Deletion) int { return int(a.Revision - b.Revision) })
	return list
}
