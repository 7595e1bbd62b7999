package control

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Agents report every second, and most of what they say is figures: cursors, lag, rates, times. Nothing is decided by figures, but for those of
// hosts (keepHost), so that those of a report are
// shown by the instance that got it and reach etcd, where other instances see them, only now and then. Whatever else has changed is in etcd before the
// report is answered.

// How old the figures in etcd become. Where no other instance reads them they are for after a restart, of agents that do not report any more.
const (
	figuresKept     = 10 * time.Second
	figuresKeptSole = time.Minute
)

// reports keeps what agents report.
type reports struct {
	client *clientv3.Client
	mirror *mirror
	every  time.Duration

	mutex sync.Mutex
	hosts map[string]*api.HostState // by name: what its agent told this instance last
	kept  map[string]time.Time      // by key: when the figures were last written; where they are not what they were then, and else absent
}

func newReports(client *clientv3.Client, mirror *mirror, isSole bool) *reports {
	every := figuresKept
	if isSole {
		every = figuresKeptSole
	}
	return &reports{client: client, mirror: mirror, every: every, kept: map[string]time.Time{}, hosts: map[string]*api.HostState{}}
}

func (r *reports) keepTarget(ctx context.Context, state *api.TargetState) error {
	key, isNews, isMoved := keyTargets+state.Agent.Id, true, false
	r.mirror.show(func(now, next *view) bool {
		before := now.targets[state.Agent.Id]
		isNews, isMoved = !isSameTarget(before, state), areTargetFiguresMoved(before, state)
		if !isNews {
			next.targets = maps.Clone(now.targets)
			next.owned[keyTargets] = true
			next.targets[state.Agent.Id] = state
		}
		return !isNews
	})
	return r.keep(ctx, key, state, isNews, isMoved)
}

func (r *reports) keepDrain(ctx context.Context, state *api.DrainState) error {
	key, isNews, isMoved := keyDrains+state.Agent.Id, true, false
	r.mirror.show(func(now, next *view) bool {
		before := now.drains[state.Agent.Id]
		isNews, isMoved = !isSameDrain(before, state), areDrainFiguresMoved(before, state)
		if !isNews {
			next.drains = maps.Clone(now.drains)
			next.owned[keyDrains] = true
			next.drains[state.Agent.Id] = state
		}
		return !isNews
	})
	return r.keep(ctx, key, state, isNews, isMoved)
}

// keep writes a state with news, or with figures whose turn it is. A state is not guarded: the last report is the truth.
func (r *reports) keep(ctx context.Context, key string, state proto.Message, isNews, isMoved bool) error {
	if !isNews && !r.isTurn(key, isMoved) {
		return nil
	}
	value, err := encodeBytes(state)
	if err != nil {
		return withProblems(codes.InvalidArgument, fmt.Sprintf("state of %s: %s", key, err), []*api.Problem{{Field: "state", Rule: "expected texts in UTF-8: " + err.Error()}})
	}
	put, err := r.client.Put(ctx, key, value)
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	r.mutex.Lock()
	delete(r.kept, key)
	r.mutex.Unlock()
	return r.mirror.waitRevision(ctx, put.Header.Revision) // the next report is compared with this one
}

// isTurn tells whether figures have waited long enough.
func (r *reports) isTurn(key string, isMoved bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	since, isWaiting := r.kept[key]
	if !isWaiting && isMoved {
		r.kept[key] = time.Now()
	}
	return isWaiting && time.Since(since) >= r.every
}

// isSameTarget tells that nothing but figures differs.
func isSameTarget(a, b *api.TargetState) bool {
	return a != nil && proto.Equal(a.Agent, b.Agent) && isSameMedia(a.Media, b.Media) && slices.EqualFunc(a.Rings, b.Rings, isSameRing)
}

// isSameMedia leaves out what devices count.
func isSameMedia(a, b []*api.MediaHealth) bool {
	return slices.EqualFunc(a, b, func(a, b *api.MediaHealth) bool {
		return a.Device == b.Device && a.UsedRatio == b.UsedRatio && a.SpareRatio == b.SpareRatio && a.SpareThresholdRatio == b.SpareThresholdRatio && a.CriticalWarning == b.CriticalWarning
	})
}

// isSameRing is written out because a control plane may be told of ten thousand rings a second. TestReport_EveryFieldCounts finds a field that was forgotten.
func isSameRing(a, b *api.RingState) bool {
	return a.Stream == b.Stream && a.StreamId == b.StreamId && a.Target == b.Target && a.Uri == b.Uri && bytes.Equal(a.RingUuid, b.RingUuid) && a.Error == b.Error &&
		isSameContract(a.Contract, b.Contract) && slices.Equal(a.FarUris, b.FarUris) && a.CapacityBytes == b.CapacityBytes &&
		a.WriterId == b.WriterId && a.IsWriterHeld == b.IsWriterHeld && a.IsDrainHeld == b.IsDrainHeld &&
		a.WriterEpoch == b.WriterEpoch && a.EpochMin == b.EpochMin && a.LastEpoch == b.LastEpoch && isSameTime(a.EpochOpened, b.EpochOpened) &&
		a.EpochFenced == b.EpochFenced && a.EpochAdmitted == b.EpochAdmitted && a.DrainGeneration == b.DrainGeneration && a.ReaderGeneration == b.ReaderGeneration &&
		a.IsClosed == b.IsClosed && a.IsRemoved == b.IsRemoved && a.IsMissing == b.IsMissing &&
		// The one thing that is decided by cursors is the end of a stream, and by whether there ever was anything.
		(a.HeadLsn > 0) == (b.HeadLsn > 0) && (a.AppendedLsn > 0) == (b.AppendedLsn > 0) && (!a.IsClosed || isAllStored(a) == isAllStored(b)) &&
		(a.IsWriterHeld || (a.LagBytes > 0) == (b.LagBytes > 0)) // of a ring that nobody writes: it may be deleted
}

func isAllStored(ring *api.RingState) bool {
	return ring.LagBytes == 0 && ring.HeadLsn == ring.AppendedLsn
}

func isSameContract(a, b *api.Contract) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.FlushMethod == b.FlushMethod && a.Probe == b.Probe && a.Level == b.Level && a.GranularityBytes == b.GranularityBytes &&
		a.AtomicUnitBytes == b.AtomicUnitBytes && a.IsReadBack == b.IsReadBack && a.SizeBytes == b.SizeBytes && a.Attestation == b.Attestation &&
		isSameDuration(a.DeadlineDefault, b.DeadlineDefault)
}

func isSameTime(a, b *timestamppb.Timestamp) bool {
	return (a == nil) == (b == nil) && a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

func isSameDuration(a, b *durationpb.Duration) bool {
	return (a == nil) == (b == nil) && a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

func isSameDrain(a, b *api.DrainState) bool {
	isSame := func(a, b *api.DrainProgress) bool {
		return a.Stream == b.Stream && bytes.Equal(a.RingUuid, b.RingUuid) && a.LastError == b.LastError
	}
	return a != nil && proto.Equal(a.Agent, b.Agent) && a.StoreDir == b.StoreDir && slices.EqualFunc(a.Progress, b.Progress, isSame)
}

// areTargetFiguresMoved looks at the cursors, which all other figures follow. Times alone are not worth a write.
func areTargetFiguresMoved(a, b *api.TargetState) bool {
	return !slices.EqualFunc(a.GetRings(), b.GetRings(), func(a, b *api.RingState) bool {
		return a.AppendedLsn == b.AppendedLsn && a.DurableLsn == b.DurableLsn && a.HeadLsn == b.HeadLsn && a.HeadSeq == b.HeadSeq && a.CreditLsn == b.CreditLsn &&
			a.LagBytes == b.LagBytes && a.LagRecords == b.LagRecords
	})
}

func areDrainFiguresMoved(a, b *api.DrainState) bool {
	return !slices.EqualFunc(a.GetProgress(), b.GetProgress(), func(a, b *api.DrainProgress) bool {
		return a.StoredLsn == b.StoredLsn && a.HeadLsn == b.HeadLsn && a.Records == b.Records && a.Bytes == b.Bytes && a.Batches == b.Batches && a.Duplicates == b.Duplicates
	})
}
