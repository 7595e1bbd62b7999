package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// Status joins what is wanted and what is seen of one stream.
func (v *View) Status(name string) *api.StreamStatus {
	status := &api.StreamStatus{
		Stream:       v.Streams[name],
		EpochGranted: v.Epochs[name],
		LastGrant:    v.Grants[name],
		Assignment:   v.Assignments[name],
		Anchor:       v.Anchors[name],
	}
	specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[name])
	for _, spec := range specs {
		if spec == nil {
			continue
		}
		status.RingSpecs = append(status.RingSpecs, spec)
		if v.LiveTargets[spec.Target] != nil {
			status.TargetsAlive = append(status.TargetsAlive, spec.Target)
		}
		if seen := reconcile.SeenRing(v.Targets, spec); seen != nil {
			status.Rings = append(status.Rings, seen)
		}
	}
	v.addWear(status)
	status.SlowConsumers = v.SlowConsumers(name)
	status.TargetAlive = len(status.TargetsAlive) > 0 && len(status.TargetsAlive) >= reconcile.Quorum(status.Stream)
	if assignment := status.Assignment; assignment != nil {
		drain := v.LiveDrains[assignment.Drain]
		status.DrainAlive = reconcile.WritesStore(drain, assignment)
		status.DrainRefused = drain != nil && !reconcile.MayDrain(drain, name)
		for _, progress := range v.Drains[assignment.Drain].GetProgress() {
			if progress.Stream == name {
				status.Drain = progress
			}
		}
	}
	if deletion := v.Deletions[name]; reconcile.IsBeingDeleted(deletion) {
		status.Deletion = deletion
		status.Condition, status.Reason = api.Condition_CONDITION_DELETING, deletionText(status)
		return status
	}
	status.Condition, status.Reason = ConditionOf(status, len(v.LiveTargets))
	status.Reason = v.WithUnstored(status)
	world, now := v.World(), time.Now()
	v.WarnOfWriter(status, now)
	v.warnOfClocks(status)
	v.measure(world, status, now)
	isMovable := func(ring *api.RingSpec) bool { return reconcile.IsMovable(world, ring) }
	if len(status.RingSpecs) < reconcile.MemberCount(status.Stream) ||
		slices.ContainsFunc(status.RingSpecs, isMovable) {
		if reason := v.WhyNotPlaced(world, name, now); reason != "" {
			status.Reason = reason
		}
	}
	if status.Condition == api.Condition_CONDITION_DRAIN_GONE && status.Assignment == nil {
		v.measureOnce(world)
		if reason := reconcile.WhyNotDrained(world, name, v.loads); reason != "" {
			status.Reason = reason
		}
	}
	return status
}

// WhyNotPlaced says why a stream has no target; "": it has, or may have.
func (v *View) WhyNotPlaced(world reconcile.World, name string, now time.Time) string {
	v.measureOnce(world)
	return reconcile.WhyNotPlaced(world, name, v.freeSpace, now)
}

func (v *View) measureOnce(world reconcile.World) {
	v.measured.Do(func() {
		v.freeSpace, v.loads = reconcile.FreeSpace(world, world.TargetSpecs), reconcile.CountAssigned(world)
	})
}

// addWear tells of the most worn device below its rings: what wears out first there.
func (v *View) addWear(status *api.StreamStatus) {
	for _, spec := range status.RingSpecs {
		for _, one := range v.Targets[spec.Target].GetMedia() {
			if status.Worn == nil || one.UsedRatio > status.Worn.UsedRatio {
				status.Worn, status.WornTarget = one, spec.Target
			}
		}
	}
}

// ConditionOf is the worst thing that can be said about a stream. A ring that cannot be written comes before one
// that cannot be seen, that before one that fills, and that before one whose writer is merely absent.
func ConditionOf(status *api.StreamStatus, targetCount int) (api.Condition, string) {
	if len(status.RingSpecs) == 0 {
		if targetCount == 0 {
			return api.Condition_CONDITION_PENDING, "no target is registered: start farlogd target"
		}
		return api.Condition_CONDITION_PENDING, "not placed yet"
	}
	if reconcile.MemberCount(status.Stream) > 1 {
		return conditionOfMembers(status)
	}
	target := status.RingSpecs[0].Target
	if len(status.Rings) == 0 || len(status.Rings[0].RingUuid) == 0 {
		return conditionWithoutRing(status, target)
	}
	ring := status.Rings[0]
	if bound := status.RingSpecs[0]; len(bound.RingUuid) > 0 && !reconcile.IsBoundRing(bound, ring) {
		return api.Condition_CONDITION_ERROR,
			fmt.Sprintf("%s is another ring (%x) than the stream's (%x), which may hold acknowledged records: "+
				"put the former ring back, or create the stream under another "+
				"name", ring.Uri, ring.RingUuid, bound.RingUuid)
	}
	if wanted, given := status.Stream.Spec.Level, ring.Contract.GetLevel(); given < wanted {
		return api.Condition_CONDITION_ERROR, fmt.Sprintf("level %s is wanted, region %s gives %s",
			check.LevelName(wanted), ring.Uri, check.LevelName(given))
	}
	text := status.Drain.GetLastError()
	if !status.DrainAlive {
		text = ""
	}
	switch {
	case text != "" && status.TargetAlive:
		return api.Condition_CONDITION_ERROR, "drain: " + text
	case ring.Error != "":
		return api.Condition_CONDITION_ERROR, ring.Error
	}
	condition, reason := conditionOfRing(status, ring, target)
	if text != "" { // which is mostly what its drain sees of a target that is gone
		reason += "; drain: " + text
	}
	return condition, reason
}

// WithUnstored adds to the reason whose reports could not be stored: what is shown of these agents is old.
func (v *View) WithUnstored(status *api.StreamStatus) string {
	texts := []string{}
	if status.Reason != "" {
		texts = append(texts, status.Reason)
	}
	for _, spec := range status.RingSpecs {
		if why := v.Unstored[etcd.KeyTargets+spec.Target]; why != "" {
			texts = append(texts, fmt.Sprintf("the report of target %s could not be stored: %s", spec.Target, why))
		}
	}
	if why := v.Unstored[etcd.KeyDrains+status.Assignment.GetDrain()]; why != "" {
		texts = append(texts, fmt.Sprintf("the report of drain %s could not be stored: %s", status.Assignment.Drain,
			why))
	}
	return strings.Join(texts, "; ")
}

func conditionWithoutRing(status *api.StreamStatus, target string) (api.Condition, string) {
	if len(status.Rings) > 0 && status.Rings[0].Error != "" {
		return api.Condition_CONDITION_ERROR, status.Rings[0].Error
	}
	if !status.TargetAlive {
		return api.Condition_CONDITION_TARGET_GONE, fmt.Sprintf("target %s does not report", target)
	}
	return api.Condition_CONDITION_PENDING, fmt.Sprintf("target %s has not created the ring yet", target)
}

func conditionOfRing(status *api.StreamStatus, ring *api.RingState, target string) (api.Condition, string) {
	full := api.UseOf(ring)
	switch {
	case full >= api.FullAlarm:
		return api.Condition_CONDITION_ALARM, fmt.Sprintf("ring is %.0f %% full", full*100)
	case !status.TargetAlive:
		return api.Condition_CONDITION_TARGET_GONE, fmt.Sprintf("target %s has not reported since %s", target,
			ClockTime(ring.ObserveTime.AsTime()))
	case status.Assignment == nil:
		return api.Condition_CONDITION_DRAIN_GONE, "no drain has been given it yet"
	case !status.DrainAlive:
		return api.Condition_CONDITION_DRAIN_GONE, drainGoneText(status, ring)
	case status.DrainRefused:
		return api.Condition_CONDITION_DRAIN_GONE, fmt.Sprintf("drain %s has not the role drain on this stream: give "+
			"it in the control plane's --access-file", status.Assignment.Drain)
	case full >= api.FullWarn:
		return api.Condition_CONDITION_WARN, fmt.Sprintf("ring is %.0f %% full", full*100)
	case ring.WriterEpoch > 0 && !ring.WriterHeld && !isClosedBy(status.LastGrant, ring):
		return api.Condition_CONDITION_WRITER_GONE, "nobody holds the ring for writing"
	}
	return api.Condition_CONDITION_OK, ""
}

// stalledWarn is how long no acknowledgement may come to a writer before its stream warns of that.
const stalledWarn = time.Second

// WarnOfWriter says what is known of a stream's writer, and has one that is well otherwise warn of what that meets.
func (v *View) WarnOfWriter(status *api.StreamStatus, now time.Time) {
	if told, age := v.writerReport(status, now); age < countersMissed*HostInterval {
		status.Writer = told.GetCounters()
	}
	stalled := v.stalledFor(status, now)
	if stalled > 0 {
		status.StalledFor = durationpb.New(stalled)
	}
	if status.Condition == api.Condition_CONDITION_OK && stalled >= stalledWarn {
		status.Condition = api.Condition_CONDITION_WARN
		status.Reason = fmt.Sprintf("no acknowledgement has come to its writer for %s",
			stalled.Round(100*time.Millisecond))
	}
	warnOfLevel(status)
	warnOfClients(status)
}

// warnOfClocks has a stream that is well otherwise warn of a clock that jumped, on the host of its writer, of its
// targets or of its drain: the times of its records, the lag, and the ages in its store go by them.
func (v *View) warnOfClocks(status *api.StreamStatus) {
	if status.Condition != api.Condition_CONDITION_OK {
		return
	}
	warn := func(who, jump string) {
		if jump != "" && status.Condition == api.Condition_CONDITION_OK {
			status.Condition = api.Condition_CONDITION_WARN
			status.Reason = fmt.Sprintf("%s: %s: check chrony or ptp4l there (farlog doctor)", who, jump)
		}
	}
	writer := status.LastGrant.GetHolder().GetHost()
	warn("host "+writer+" of its writer", v.HostReport(writer).GetClockJump())
	for _, spec := range status.RingSpecs {
		warn("target "+spec.Target, v.Targets[spec.Target].GetAgent().GetClockJump())
	}
	drain := status.Assignment.GetDrain()
	warn("drain "+drain, v.Drains[drain].GetAgent().GetClockJump())
}

// stalledFor is for how long at least records of the stream's writer have waited in vain, as the target tells of a
// writer beside it, and the host agent of one on another host.
func (v *View) stalledFor(status *api.StreamStatus, now time.Time) (longest time.Duration) {
	for _, ring := range status.Rings {
		if ring.WriterHeld && slices.Contains(status.TargetsAlive, ring.Target) {
			longest = max(longest, ring.Counters.GetStalledFor().AsDuration())
		}
	}
	if told, age := v.writerReport(status, now); told.GetStalledFor() != nil && age < hostMissed*HostInterval {
		longest = max(longest, told.StalledFor.AsDuration()+age)
	}
	return longest
}

// warnOfLevel has a stream that is well otherwise warn of a writer that has lowered the level for itself. That of a
// writer on another host than its rings the agent there tells.
func warnOfLevel(status *api.StreamStatus) {
	wanted := status.Stream.Spec.Level
	for _, ring := range status.Rings {
		level := ring.Counters.GetLevel()
		if level == api.Level_LEVEL_UNSPECIFIED && ring.WriterEpoch == status.LastGrant.GetEpoch() {
			level = status.Writer.GetLevel()
		}
		if status.Condition == api.Condition_CONDITION_OK && ring.WriterHeld &&
			level != api.Level_LEVEL_UNSPECIFIED && level < wanted {
			status.Condition = api.Condition_CONDITION_WARN
			status.Reason = fmt.Sprintf("its writer acknowledges at level %s, and the stream asks for %s",
				check.LevelName(level), check.LevelName(wanted))
		}
	}
}

// warnOfClients has a stream that is well otherwise warn of what a client of its rings did.
func warnOfClients(status *api.StreamStatus) {
	for _, ring := range status.Rings {
		if ring.Warning != "" && status.Condition == api.Condition_CONDITION_OK {
			status.Condition, status.Reason = api.Condition_CONDITION_WARN, ring.Warning
		}
	}
}

// isClosedBy tells that the ring's last writer has said that it ended by itself: that is no trouble of the stream's.
func isClosedBy(grant *api.Grant, ring *api.RingState) bool {
	return grant.GetCloseTime() != nil && grant.Epoch == ring.WriterEpoch
}

// drainGoneText names the store, where only that will do.
func drainGoneText(status *api.StreamStatus, ring *api.RingState) string {
	given := status.Assignment
	if len(given.StoreUuid) == 0 || !reconcile.IsStoreBound(status.EpochGranted, ring) {
		return fmt.Sprintf("drain %s does not report", given.Drain)
	}
	return fmt.Sprintf("no drain of store %s (%x) reports, and no other may take the stream: start farlogd drain "+
		"--store-dir %s; where that store is lost for good: farlog stream rebind",
		given.StoreDir, given.StoreUuid, given.StoreDir)
}

// ClockTime is a time of day as texts for people give it.
func ClockTime(t time.Time) string { return t.UTC().Format("15:04:05Z") }
