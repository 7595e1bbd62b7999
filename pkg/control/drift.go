package control

import (
	"fmt"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/access"
)

// drifts are the conditions of a stream that is declared and not so: not made, not of its level, not there, or drained by nobody. That a ring fills or has no writer is no drift: nobody
// has declared it otherwise.
var drifts = []api.Condition{
	api.Condition_CONDITION_PENDING, api.Condition_CONDITION_ERROR, api.Condition_CONDITION_TARGET_GONE, api.Condition_CONDITION_DRAIN_GONE,
	api.Condition_CONDITION_MEMBER_GONE, api.Condition_CONDITION_MEMBER_NEW,
}

// driftFrom compares what was declared before, and is declared in the fabric, with what is seen.
func (v *view) driftFrom(caller access.Caller, fabric *api.Fabric) (list []*api.Drift) {
	for _, target := range fabric.GetTargets() {
		if v.targetSpecs[target.Host] != nil && !v.hasTargetOn(target.Host) {
			list = append(list, &api.Drift{Kind: "target", Name: target.Host, Reason: fmt.Sprintf("no target on host %s reports: start farlogd target there", target.Host)})
		}
	}
	for _, target := range fabric.GetTargets() {
		if reason := v.overfullOf(target); reason != "" {
			list = append(list, &api.Drift{Kind: "target", Name: target.Host, Reason: reason})
		}
	}
	for _, spec := range fabric.GetStreams() {
		if v.streams[spec.Name] == nil || caller.May(api.ControlService_GetStream_FullMethodName, spec.Name) != nil {
			continue
		}
		if one := v.status(spec.Name); slices.Contains(drifts, one.Condition) {
			list = append(list, &api.Drift{Kind: "stream", Name: spec.Name, Condition: one.Condition, Reason: one.Reason})
		}
	}
	return list
}
