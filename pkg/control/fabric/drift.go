package fabric

import (
	"fmt"
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
)

// drifts are the conditions of a stream that is declared and not so: not made, not of its level, not there, or drained
// by nobody. That a ring fills or has no writer is no drift: nobody has declared it otherwise.
var drifts = []api.Condition{
	api.Condition_CONDITION_PENDING, api.Condition_CONDITION_ERROR, api.Condition_CONDITION_TARGET_GONE,
	api.Condition_CONDITION_DRAIN_GONE,
	api.Condition_CONDITION_MEMBER_GONE, api.Condition_CONDITION_MEMBER_NEW,
}

// DriftFrom compares what was declared before, and is declared in the fabric, with what is seen.
func DriftFrom(v *state.View, caller access.Caller, fabric *api.Fabric) (list []*api.Drift) {
	for _, target := range fabric.GetTargets() {
		if v.TargetSpecs[target.Host] != nil && !hasTargetOn(v, target.Host) {
			list = append(list, &api.Drift{
				Kind: "target", Name: target.Host,
				Reason: fmt.Sprintf("no target on host %s reports: start farlogd target there", target.Host),
			})
		}
	}
	for _, target := range fabric.GetTargets() {
		if reason := overfullOf(v, target); reason != "" {
			list = append(list, &api.Drift{Kind: "target", Name: target.Host, Reason: reason})
		}
	}
	list = append(list, namespaceDrifts(v, fabric)...)
	used := check.Uses(v.Streams)
	for _, quota := range fabric.GetTenants() {
		if reason := check.WhyBeyond(quota, used[quota.Name]); reason != "" {
			list = append(list, &api.Drift{Kind: "tenant", Name: quota.Name, Reason: reason})
		}
	}
	for _, spec := range fabric.GetStreams() {
		if v.Streams[spec.Name] == nil || caller.May(api.ControlService_GetStream_FullMethodName, spec.Name) != nil {
			continue
		}
		if one := v.Status(spec.Name); slices.Contains(drifts, one.Condition) {
			list = append(list, &api.Drift{
				Kind: "stream", Name: spec.Name, Condition: one.Condition,
				Reason: one.Reason,
			})
		}
	}
	return list
}

// namespaceDrifts are the namespaces that are declared and not exported, as the targets of their hosts report them.
func namespaceDrifts(v *state.View, fabric *api.Fabric) (list []*api.Drift) {
	for _, target := range fabric.GetTargets() {
		if v.TargetSpecs[target.Host] == nil {
			continue
		}
		for _, one := range target.Namespaces {
			if reason := v.WhyNotExported(target.Host, one); reason != "" {
				list = append(list, &api.Drift{
					Kind: "target", Name: target.Host, Reason: fmt.Sprintf("namespace %s: %s", one.Name, reason),
				})
			}
		}
	}
	return list
}

// DriftBehind is DriftFrom when a fabric has just been applied. Of a stream that is new it has what nobody has begun to
// change: that no target takes its ring, or that no drain is there. What else it is not yet is being made.
func DriftBehind(v *state.View, caller access.Caller, fabric *api.Fabric, created []*api.StreamSpec,
) (list []*api.Drift) {
	isNew := make(map[string]bool, len(created))
	for _, spec := range created {
		isNew[spec.Name] = true
	}
	old := &api.Fabric{Targets: fabric.GetTargets(), Tenants: fabric.GetTenants()}
	for _, spec := range fabric.GetStreams() {
		if !isNew[spec.Name] {
			old.Streams = append(old.Streams, spec)
		}
	}
	list = DriftFrom(v, caller, old)
	drained, world, now, reasons := v.DrainHosts(), v.World(), time.Now(), map[string]string{}
	for _, spec := range created {
		if v.Streams[spec.Name] == nil {
			continue
		}
		specs, _ := reconcile.RingSpecs(v.Rings, v.Streams[spec.Name])
		one := &api.Drift{Kind: "stream", Name: spec.Name, Condition: api.Condition_CONDITION_PENDING}
		if slices.Contains(specs, nil) {
			alike := placedAs(spec)
			// some members have their places, which the others keep away from
			if slices.ContainsFunc(specs, func(ring *api.RingSpec) bool { return ring != nil }) {
				alike = "stream " + spec.Name
			}
			if _, isKnown := reasons[alike]; !isKnown {
				reasons[alike] = v.WhyNotPlaced(world, spec.Name, now)
			}
			one.Reason = reasons[alike]
		}
		if one.Reason == "" {
			one.Condition, one.Reason = api.Condition_CONDITION_DRAIN_GONE, whyNoDrain(v, drained, spec)
		}
		if one.Reason != "" {
			list = append(list, one)
		}
	}
	return list
}

// placedAs is all of a spec that its first rings are placed by: of ten thousand streams most are alike.
func placedAs(spec *api.StreamSpec) string {
	if reconcile.IsNamespaced(spec) {
		return "stream " + spec.Name // by its tenant and its drain as well
	}
	return fmt.Sprint(spec.RingSizeBytes, spec.Level, spec.Members, spec.FailureDomain, spec.LatencyLimit.AsDuration(),
		"|", spec.TargetHost, "|", spec.WriterHost)
}

// whyNoDrain says that no drain lives that a stream could be given to, whatever becomes of its rings; "": one may.
func whyNoDrain(v *state.View, hosts state.AgentsByHost, spec *api.StreamSpec) string {
	if host := spec.DrainHost; host != "" {
		if !slices.ContainsFunc(hosts[host], func(id string) bool { return v.LiveDrains[id] != nil }) {
			return fmt.Sprintf("no drain on host %s is registered: start farlogd drain there", host)
		}
	} else if len(v.LiveDrains) == 0 {
		return "no drain is registered: start farlogd drain"
	}
	return ""
}
