package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// MeasuredMax is how old a measurement may be that placement goes by. Host agents measure every few seconds, and what
// they told stands in etcd for some minutes.
const MeasuredMax = 15 * time.Minute

// What counts as near as the nearest: among such targets wear and rings decide, so that one target that is nearer by
// what a measurement varies does not get all.
const (
	alikePercent = 25
	alikeLeast   = 5 * time.Microsecond
)

// PathTo is the shortest path that a host's agent measured to a target, by any of its listeners. why says why there is
// none: then path is nil, or one that failed.
func PathTo(world World, host, target string, now time.Time) (path *api.NetworkPath, why string) {
	if agent := world.LiveTargets[target]; agent != nil && agent.Host == host {
		return &api.NetworkPath{
			Target:    target,
			RttMin:    durationpb.New(0),
			RttMedian: durationpb.New(0),
		}, "" // by memory
	}
	state := world.Hosts[host]
	if state == nil {
		return nil, fmt.Sprintf("no host agent on host %s has reported: start farlogd host there", host)
	}
	why = fmt.Sprintf("host %s has not measured the round-trip time to it: does the target have --listen, and is "+
		"its agent newer?",
		host)
	for _, one := range state.Paths {
		switch {
		case one.Target != target:
		case one.RttMin == nil:
			if path == nil || path.RttMin == nil {
				path, why = one, fmt.Sprintf("host %s cannot reach it at %s: %s", host, one.Listener, one.Error)
			}
		case now.Sub(one.MeasureTime.AsTime()) > MeasuredMax:
			if path == nil {
				why = fmt.Sprintf("host %s measured the round-trip time last at %s, more than %s ago: is its host "+
					"agent "+
					"running?", host, one.MeasureTime.AsTime().UTC().Format(time.RFC3339), MeasuredMax)
			}
		case path == nil || path.RttMin == nil || one.RttMin.AsDuration() < path.RttMin.AsDuration():
			path = one
		}
	}
	if path.GetRttMin() != nil {
		return path, ""
	}
	return path, why
}

// whyTooSlow says why a stream's limit keeps a target out; "": it does not.
func whyTooSlow(world World, spec *api.StreamSpec, target string, now time.Time) string {
	if spec.GetLatencyLimit() == nil {
		return ""
	}
	limit, host := spec.LatencyLimit.AsDuration(), hostOf(world, target)
	path, why := PathTo(world, spec.WriterHost, target, now)
	switch {
	case why != "":
		return fmt.Sprintf(
			"target %s on host %s: with a latency limit of %s its round-trip time has to be measured, and %s",
			target,
			host,
			limit,
			why,
		)
	case path.RttMin.AsDuration() > limit:
		return fmt.Sprintf("target %s on host %s is %s from host %s, the stream's limit is %s: raise latency_limit, "+
			"or start a target that is nearer", target, host, path.RttMin.AsDuration(), spec.WriterHost, limit)
	}
	return ""
}

// LatencyText says what is to be known of the times from a stream's writer to the targets that have its rings; "":
// nothing.
func LatencyText(world World, stream *api.Stream, target string, now time.Time) string {
	spec := stream.GetSpec()
	if spec.GetWriterHost() == "" || world.LiveTargets[target] == nil {
		return ""
	}
	if path, why := PathTo(world, spec.WriterHost, target, now); why != "" {
		return fmt.Sprintf("target %s was not chosen by its latency, or its latency is not known any more: %s", target,
			why)
	} else if limit := spec.GetLatencyLimit().AsDuration(); limit > 0 && path.RttMin.AsDuration() > limit {
		return fmt.Sprintf("target %s is %s from host %s now, the stream's limit is %s: farlog stream members "+
			"replace moves a member", target, path.RttMin.AsDuration(), spec.WriterHost, limit)
	}
	return ""
}

// nearest leaves of the targets those that are as near to a stream's writer as any. Where none is measured, or nobody
// is said to write, it leaves all.
func nearest(world World, spec *api.StreamSpec, targets []string, now time.Time) []string {
	if spec.GetWriterHost() == "" {
		return targets
	}
	times := map[string]time.Duration{}
	for _, target := range targets {
		if path, why := PathTo(world, spec.WriterHost, target, now); why == "" {
			times[target] = path.RttMin.AsDuration()
		}
	}
	if len(times) == 0 {
		return targets
	}
	fastest := time.Duration(-1)
	for _, path := range times {
		if fastest < 0 || path < fastest {
			fastest = path
		}
	}
	reach := fastest + max(fastest*alikePercent/100, alikeLeast)
	return slices.DeleteFunc(slices.Clone(targets), func(target string) bool {
		path, isMeasured := times[target]
		return !isMeasured || path > reach
	})
}

// best is the target that a ring goes to, of those that fit: near to the writer first, then little worn and with few
// rings.
func best(world World, spec *api.StreamSpec, targets []string, loads map[string]int, now time.Time) (string, bool) {
	return leastWorn(world, nearest(world, spec, targets, now), loads)
}

// IsMoved reports whether what a host measured differs from what it measured before by so much that other targets may
// be nearer.
func IsMoved(before, now *api.HostState) bool {
	if before == nil || len(before.Paths) != len(now.Paths) {
		return true
	}
	byDoor := func(a, b *api.NetworkPath) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Listener, b.Listener))
	}
	isSame := func(a, b *api.NetworkPath) bool {
		if byDoor(a, b) != 0 || (a.RttMin == nil) != (b.RttMin == nil) {
			return false
		}
		apart := (a.RttMin.AsDuration() - b.RttMin.AsDuration()).Abs()
		return apart <= max(a.RttMin.AsDuration()*alikePercent/100, alikeLeast)
	}
	return !slices.EqualFunc(slices.SortedFunc(slices.Values(before.Paths), byDoor),
		slices.SortedFunc(slices.Values(now.Paths), byDoor), isSame)
}
