package apiv1

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Most of what agents report is figures: cursors, lag, rates, times. Nothing is decided by them, but for those of
// hosts. What else a report says is state. Agents go by these to tell what has changed at once, and the control plane
// to have it in etcd before it answers.

// Marks of a ring's use, as the writer's own defaults have them.
const (
	FullWarn  = 0.70
	FullAlarm = 0.85
)

// UseOf is how much of a ring is used, from 0 to 1.
func UseOf(ring *RingState) float64 {
	if ring.CapacityBytes == 0 {
		return 0
	}
	return float64(ring.AppendedLsn-ring.HeadLsn) / float64(ring.CapacityBytes)
}

// AreSameMarks tells that all rings of the same place are on the same side of each mark: use is a figure, but one that
// somebody waits for.
func AreSameMarks(a, b []*RingState) bool {
	return slices.EqualFunc(a, b, func(a, b *RingState) bool {
		before, now := UseOf(a), UseOf(b)
		return (before >= FullWarn) == (now >= FullWarn) && (before >= FullAlarm) == (now >= FullAlarm)
	})
}

// IsSameTarget tells that nothing but figures differs. a may be nil: there was no report.
func IsSameTarget(a, b *TargetState) bool {
	return a != nil && proto.Equal(a.Agent, b.Agent) && IsSameMedia(a.Media, b.Media) &&
		AreSameNamespaces(a.Namespaces, b.Namespaces) && slices.EqualFunc(a.Rings, b.Rings, IsSameRing)
}

// AreSameNamespaces compares all of them: nothing of a namespace is a figure.
func AreSameNamespaces(a, b []*NamespaceState) bool {
	return slices.EqualFunc(a, b, func(a, b *NamespaceState) bool { return proto.Equal(a, b) })
}

// IsSameMedia leaves out what devices count.
func IsSameMedia(a, b []*MediaHealth) bool {
	return slices.EqualFunc(a, b, func(a, b *MediaHealth) bool {
		return a.Device == b.Device && a.UsedRatio == b.UsedRatio && a.SpareRatio == b.SpareRatio &&
			a.SpareThresholdRatio == b.SpareThresholdRatio && a.CriticalWarning == b.CriticalWarning
	})
}

// IsSameRing is written out because a control plane may be told of ten thousand rings a second.
// TestReport_EveryFieldCounts finds a field that was forgotten.
func IsSameRing(a, b *RingState) bool {
	return a.Stream == b.Stream && a.StreamId == b.StreamId && a.Target == b.Target && a.Uri == b.Uri &&
		bytes.Equal(a.RingUuid, b.RingUuid) && a.Error == b.Error && a.Warning == b.Warning &&
		isSameContract(a.Contract, b.Contract) && slices.Equal(a.RemoteUris, b.RemoteUris) &&
		a.CapacityBytes == b.CapacityBytes &&
		a.WriterId == b.WriterId && a.WriterHeld == b.WriterHeld && a.DrainHeld == b.DrainHeld &&
		a.WriterEpoch == b.WriterEpoch && a.EpochMin == b.EpochMin && a.LastEpoch == b.LastEpoch &&
		isSameTime(a.EpochOpenTime, b.EpochOpenTime) &&
		a.EpochFenced == b.EpochFenced && a.EpochAdmitted == b.EpochAdmitted &&
		a.DrainGeneration == b.DrainGeneration && a.ReaderGeneration == b.ReaderGeneration &&
		a.Closed == b.Closed && a.Removed == b.Removed && a.Missing == b.Missing &&
		a.WriterHost == b.WriterHost && a.FenceError == b.FenceError &&
		// The one thing that is decided by cursors is the end of a stream, and by whether there ever was anything.
		(a.HeadLsn > 0) == (b.HeadLsn > 0) && (a.AppendedLsn > 0) == (b.AppendedLsn > 0) &&
		(!a.Closed || isAllStored(a) == isAllStored(b)) &&
		(a.WriterHeld || (a.LagBytes > 0) == (b.LagBytes > 0)) // of a ring that nobody writes: it may be deleted
}

func isAllStored(ring *RingState) bool {
	return ring.LagBytes == 0 && ring.HeadLsn == ring.AppendedLsn
}

func isSameContract(a, b *Contract) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.FlushMethod == b.FlushMethod && a.Probe == b.Probe && a.Level == b.Level &&
		a.GranularityBytes == b.GranularityBytes &&
		a.AtomicUnitBytes == b.AtomicUnitBytes && a.ReadBack == b.ReadBack && a.SizeBytes == b.SizeBytes &&
		a.Attestation == b.Attestation &&
		isSameDuration(a.DeadlineDefault, b.DeadlineDefault)
}

func isSameTime(a, b *timestamppb.Timestamp) bool {
	return (a == nil) == (b == nil) && a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

func isSameDuration(a, b *durationpb.Duration) bool {
	return (a == nil) == (b == nil) && a.GetSeconds() == b.GetSeconds() && a.GetNanos() == b.GetNanos()
}

// IsSameDrain tells that nothing but figures differs.
func IsSameDrain(a, b *DrainState) bool {
	return a != nil && proto.Equal(a.Agent, b.Agent) && a.StoreDir == b.StoreDir &&
		slices.EqualFunc(a.Progress, b.Progress, IsSameProgress)
}

// IsSameProgress is as IsSameRing.
func IsSameProgress(a, b *DrainProgress) bool {
	return a.Stream == b.Stream && bytes.Equal(a.RingUuid, b.RingUuid) && a.LastError == b.LastError &&
		proto.Equal(a.Base, b.Base)
}
