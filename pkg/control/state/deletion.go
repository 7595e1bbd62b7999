package state

import (
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
)

// HolderText names who has a ring, as far as it is known: the last grant is the writer's only when its epoch is.
func HolderText(grant *api.Grant, ring *api.RingState) string {
	if holder := grant.GetHolder(); holder != nil && grant.Epoch == ring.GetWriterEpoch() {
		return fmt.Sprintf("%s, pid %d on host %s", holder.Name, holder.Pid, holder.Host)
	}
	return fmt.Sprintf("%s, epoch %d", ring.GetWriterId(), ring.GetWriterEpoch())
}

// NotDeleted refuses a stream that is gone or going, and gives the condition that it is neither still.
func NotDeleted(name string, deletions, streams *etcdserverpb.RangeResponse) (clientv3.Cmp, error) {
	key, revision := etcd.KeyDeletions+name, int64(0)
	if streams.Count == 0 {
		return clientv3.Cmp{}, status.Errorf(codes.NotFound, "stream %q: there is none of that name", name)
	}
	if len(deletions.Kvs) > 0 {
		deletion := new(api.Deletion)
		if err := etcd.Decode(key, deletions.Kvs[0].Value, deletion); err != nil {
			return clientv3.Cmp{}, err
		}
		if reconcile.IsBeingDeleted(deletion) {
			return clientv3.Cmp{}, beingDeleted(name)
		}
		revision = deletions.Kvs[0].ModRevision
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", revision), nil
}

// CheckNotDeleted refuses a stream that is being deleted.
func (v *View) CheckNotDeleted(name string) error {
	if reconcile.IsBeingDeleted(v.Deletions[name]) {
		return beingDeleted(name)
	}
	return nil
}

func beingDeleted(name string) error {
	return refusal.Precondition(refusal.ReasonDeleting, "name", refusal.Quote(name),
		"expected a stream that is not being deleted").Errorf("stream %q is being deleted: a new one may have its "+
		"name when it is gone", name)
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
	case ring.Removed:
		return ""
	case !slices.Contains(one.TargetsAlive, target):
		return fmt.Sprintf("target %s does not report", target)
	case ring.Error != "":
		return ring.Error
	case one.Deletion.Stage == api.DeletionStage_DELETION_STAGE_REMOVING:
		return fmt.Sprintf("target %s removes its ring", target)
	case ring.WriterHeld:
		return fmt.Sprintf("a writer (%s) still has the ring, end it", HolderText(one.LastGrant, ring))
	case ring.LagBytes > 0 && !one.DrainAlive:
		return fmt.Sprintf("%d records are not stored, and no drain reports", ring.LagRecords)
	case ring.LagBytes > 0:
		return fmt.Sprintf("%d records are still to be stored", ring.LagRecords)
	case !ring.Closed:
		return fmt.Sprintf("target %s fences writers", target)
	}
	return ""
}
