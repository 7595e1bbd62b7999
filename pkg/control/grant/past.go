package grant

import (
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

const (
	// epochs of a stream that are kept behind its last: at 10,000 streams with so many each about 20 MiB of etcd's
	// file, and none of the mirror's memory
	PastMost = 16
)

// Takeover is who takes a stream from its holder, and why.
type Takeover struct{ By, Reason string }

// withPast adds an epoch to those of its stream that were before, as read; it is written with the epoch that takes its
// place, so that there is nobody else who writes it.
func withPast(before *etcdserverpb.RangeResponse, one *api.PastEpoch, stream string) (clientv3.Op, error) {
	past := new(api.PastEpochs)
	for _, kv := range before.GetKvs() {
		if err := etcd.Decode(string(kv.Key), kv.Value, past); err != nil {
			past.Reset() // what has been is told to people alone, and stops no writer
		}
	}
	if last := len(past.Epochs) - 1; last >= 0 && one.GrantTime == nil {
		one.GrantTime = past.Epochs[last].EndTime
	}
	past.Epochs = append(past.Epochs, one)
	past.Epochs = past.Epochs[max(0, len(past.Epochs)-PastMost):]
	value, err := etcd.EncodeBytes(past)
	return clientv3.OpPut(etcd.KeyPastEpochs+stream, value), err
}

// pastEpoch is an epoch as it ends, because another one is handed out; grants are the stream's last grant, as read.
func pastEpoch(v *state.View, ended uint32, grants *etcdserverpb.RangeResponse, next *api.Grant, taken *Takeover,
) *api.PastEpoch {
	one := &api.PastEpoch{Epoch: ended, EndTime: next.GrantTime, By: next.GetHolder().GetIdentity()}
	for _, kv := range grants.GetKvs() {
		last := new(api.Grant)
		// another one's epoch was for nobody
		if err := etcd.Decode(string(kv.Key), kv.Value, last); err == nil && last.Epoch == ended && last.Holder != nil {
			one.Holder = &api.Holder{
				Host: last.Holder.Host, Pid: last.Holder.Pid, Name: last.Holder.Name,
				Identity: last.Holder.Identity,
			}
			one.GrantTime = last.GrantTime
		}
	}
	switch {
	case taken != nil:
		one.End, one.By, one.Reason = api.EpochEnd_EPOCH_END_TAKEN_OVER, taken.By, taken.Reason
	case one.Holder != nil && !wasOpened(v, next.Stream, ended):
		one.End = api.EpochEnd_EPOCH_END_UNUSED
	case one.Holder != nil && one.Holder.Host == next.GetHolder().GetHost() &&
		one.Holder.Name == next.GetHolder().GetName():
		one.End = api.EpochEnd_EPOCH_END_RESTARTED
	default:
		one.End = api.EpochEnd_EPOCH_END_REPLACED
	}
	return one
}

// wasOpened reports whether a target has reported a ring that was opened with an epoch, or a later one.
func wasOpened(v *state.View, stream string, epoch uint32) bool {
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[stream])
	return slices.ContainsFunc(specs, func(spec *api.RingSpec) bool {
		seen := reconcile.SeenRing(v.Targets, spec)
		return max(seen.GetWriterEpoch(), seen.GetLastEpoch()) >= epoch
	})
}
