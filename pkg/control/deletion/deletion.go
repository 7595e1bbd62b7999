// Package deletion begins and ends the deletion of a stream; the reconciler carries it through.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// fenceStepMax is how far a fence may lie above a ring's last epoch (farlog_ring_fence).
const fenceStepMax = 1 << 16

// WhyNot says why a stream may not end; "": it may.
func WhyNot(v *state.View, name string, isRingLost bool) string {
	if pattern.IsSystem(name) {
		return "names that begin with " + pattern.SystemPrefix + " are the control plane's own"
	}
	lost := 0
	for _, spec := range v.Status(name).RingSpecs {
		if isRingLost && reconcile.IsLost(v.LiveTargets, spec, reconcile.SeenRing(v.Targets, spec)) {
			lost++
			continue
		}
		if reason := whyKeepRing(v, name, spec); reason != "" {
			return reason
		}
	}
	if isRingLost && lost == 0 {
		return "its ring is not lost: it is reported by its target"
	}
	return ""
}

// whyKeepRing finds who has a ring, and what is in it that the store has not.
func whyKeepRing(v *state.View, name string, spec *api.RingSpec) string {
	ring := reconcile.SeenRing(v.Targets, spec)
	const lost = "; if it is lost for good, with what was not stored: farlog stream delete --ring-lost"
	switch {
	case v.LiveTargets[spec.Target] == nil:
		return fmt.Sprintf("target %s does not report, so nobody sees whether its ring holds records that are not "+
			"stored: start it"+lost, spec.Target)
	case ring == nil && (len(spec.RingUuid) > 0 || v.Epochs[name] > 0): // else nobody was ever let in
		return fmt.Sprintf("target %s reports, and has not reported its ring yet: delete again in a moment",
			spec.Target)
	case wasNeverMade(v, name, spec, ring):
		return "" // the target looks once more: a ring that is there after all is closed and drained first
	case ring.GetError() != "":
		return fmt.Sprintf("target %s: %s%s", spec.Target, ring.Error, lost)
	case ring.GetWriterHeld():
		return fmt.Sprintf("a writer has its ring (%s): end it, and delete again",
			state.HolderText(v.Grants[name], ring))
	case ring.GetLagBytes() > 0:
		return fmt.Sprintf(
			"%d records (%d bytes) of its ring are not stored yet: farlog status %s reports whether its "+
				"drain gets on, and what to do when not",
			ring.LagRecords,
			ring.LagBytes,
			name,
		)
	}
	return ""
}

// wasNeverMade tells a ring that its target could not make, as it says itself: nobody was ever let in, and no target
// has ever shown one.
func wasNeverMade(v *state.View, name string, spec *api.RingSpec, ring *api.RingState) bool {
	return v.Epochs[name] == 0 && v.Assignments[name] == nil && len(spec.RingUuid) == 0 && spec.Replacement == nil &&
		len(spec.LostUuid) == 0 &&
		ring.GetError() != "" && len(ring.RingUuid) == 0 && !ring.Missing && ring.WriterEpoch == 0 &&
		ring.AppendedLsn == 0
}

// New is the end of a stream as it begins. The fence is above every epoch that was granted, as far as a ring takes such
// a fence.
func New(v *state.View, name string, isRingLost bool, by string) *api.Deletion {
	epoch, limit := uint64(v.Epochs[name])+1, uint64(math.MaxUint32)
	rings, _ := reconcile.RingSpecs(v.Rings, v.Streams[name])
	for _, spec := range rings {
		if ring := reconcile.SeenRing(v.Targets, spec); ring != nil {
			epoch, limit = max(epoch, uint64(ring.WriterEpoch)+1, uint64(ring.EpochMin)),
				min(limit, uint64(ring.WriterEpoch)+fenceStepMax)
		}
	}
	given := v.Assignments[name]
	return &api.Deletion{
		Name: name, StreamId: v.Streams[name].StreamId, Stage: api.DeletionStage_DELETION_STAGE_DRAINING,
		EpochMin:  uint32(min(epoch, limit)),
		StartTime: timestamppb.New(time.Now()), By: by, RingLost: isRingLost, StoreUuid: given.GetStoreUuid(),
		StoreDir: given.GetStoreDir(),
	}
}

// Begin fences what was granted and lets nobody come after, in one step, unless a grant was given or the stream changed
// since the view, or a route since a revision.
func Begin(ctx context.Context, client *clientv3.Client, v *state.View, routesSince int64, deletion *api.Deletion,
) (revision int64, err error) {
	name := deletion.Name
	guards, writes, err := beginWrites(ctx, client, v, deletion)
	if err != nil {
		return 0, err
	}
	return state.Commit(ctx, client, fmt.Sprintf("begin to delete stream %q", name),
		fmt.Sprintf("stream %q, or its grant,", name), append(guards, state.NoRouteSince(routesSince)), writes)
}

func beginWrites(ctx context.Context, client *clientv3.Client, v *state.View, deletion *api.Deletion,
) (guards []clientv3.Cmp, writes []clientv3.Op, err error) {
	name := deletion.Name
	value, err := etcd.Encode(deletion)
	if err != nil {
		return nil, nil, err
	}
	guards = append(state.RingsUnchanged(v, name), state.UnchangedSince(v, etcd.KeyDeletions+name),
		state.UnchangedSince(v, etcd.KeyEpochs+name))
	epoch := max(deletion.EpochMin, v.Epochs[name])
	writes = []clientv3.Op{
		clientv3.OpPut(etcd.KeyDeletions+name, value),
		clientv3.OpPut(etcd.KeyEpochs+name, strconv.FormatUint(uint64(epoch), 10)),
	}
	for i := range reconcile.MemberCount(v.Streams[name]) {
		unchanged, write, err := grant.AdmissionWrite(ctx, client, reconcile.MemberKey(name, i),
			func(admission *api.Admission) error {
				grant.EndWriters(admission, max(admission.EpochMin, deletion.EpochMin))
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

// EndWrites is what Retire and Forget write.
func EndWrites(v *state.View, action reconcile.Action) (key string, writes []clientv3.Op, err error) {
	name := action.Retire + action.Forget
	key = etcd.KeyDeletions + name
	if v.Deletions[name] == nil {
		return key, nil, errors.New("the deletion is not known any more")
	}
	deletion := proto.Clone(v.Deletions[name]).(*api.Deletion)
	deletion.Stage = api.DeletionStage_DELETION_STAGE_REMOVING
	deletion.Revision = 0
	gone := []string{etcd.KeyAssignments + name}
	if action.Forget != "" {
		deletion.Stage, deletion.EndTime = api.DeletionStage_DELETION_STAGE_ENDED, timestamppb.New(time.Now())
		gone = append(gone, etcd.KeyEpochs+name, etcd.KeyGrants+name, etcd.KeyPastEpochs+name, etcd.KeyPastBases+name,
			etcd.KeyStreams+name)
		for i := range reconcile.MemberCount(v.Streams[name]) {
			member := reconcile.MemberKey(name, i)
			gone = append(gone, etcd.KeyAdmissions+member, etcd.KeyRings+member)
		}
	}
	value, err := etcd.Encode(deletion)
	writes = []clientv3.Op{clientv3.OpPut(key, value)}
	for _, one := range gone {
		writes = append(writes, clientv3.OpDelete(one))
	}
	return key, writes, err
}
