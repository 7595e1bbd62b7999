package control

import (
	"maps"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/pattern"
)

// agentsOn are the ids of the agents of each host, in order: those that live and those that have reported. A host of which only something is declared has none.
type agentsOn map[string][]string

func (a agentsOn) add(host, id string) {
	if host == "" {
		return
	}
	if _, isThere := a[host]; !isThere {
		a[host] = []string{}
	}
	if id != "" && !slices.Contains(a[host], id) {
		a[host] = append(a[host], id)
		slices.Sort(a[host])
	}
}

// targetHosts are all hosts with targets.
func (v *view) targetHosts() agentsOn {
	hosts := agentsOn{}
	for host := range v.targetSpecs {
		hosts.add(host, "")
	}
	for id, agent := range v.liveTargets {
		hosts.add(agent.Host, id)
	}
	for id, state := range v.targets {
		if v.liveTargets[id] == nil {
			hosts.add(state.GetAgent().GetHost(), id)
		}
	}
	return hosts
}

// drainHosts are all hosts with drains.
func (v *view) drainHosts() agentsOn {
	hosts := agentsOn{}
	for host := range v.drainSpecs {
		hosts.add(host, "")
	}
	for id, agent := range v.liveDrains {
		hosts.add(agent.Host, id)
	}
	for id, state := range v.drains {
		if v.liveDrains[id] == nil {
			hosts.add(state.GetAgent().GetHost(), id)
		}
	}
	return hosts
}

// rings is how many rings there are, of so many bytes.
type rings struct {
	count uint32
	bytes uint64
}

// ringCounts counts the rings that are wanted of each target.
func (v *view) ringCounts() map[string]rings {
	counts := map[string]rings{}
	for _, ring := range v.rings {
		have := counts[ring.Target]
		counts[ring.Target] = rings{have.count + 1, have.bytes + ring.GetStream().GetSpec().GetRingSizeBytes()}
	}
	return counts
}

// streamsOf counts the streams that are assigned to each drain.
func (v *view) streamsOf() map[string]uint32 {
	counts := map[string]uint32{}
	for _, assignment := range v.assignments {
		counts[assignment.Drain]++
	}
	return counts
}

func presenceOf(isAlive bool) api.Presence {
	if isAlive {
		return api.Presence_PRESENCE_ALIVE
	}
	return api.Presence_PRESENCE_GONE
}

// target joins what is declared and seen of one host.
func (v *view) target(host string, ids []string, counts map[string]rings) *api.Target {
	target := &api.Target{Host: host, Spec: v.targetSpecs[host]}
	isAlive := false
	for _, id := range ids {
		state, live := v.targets[id], v.liveTargets[id]
		one := &api.TargetAgent{Agent: live, IsAlive: live != nil, Reported: state.GetReported(), Media: state.GetMedia()}
		if live == nil {
			one.Agent = state.GetAgent()
		}
		isAlive = isAlive || one.IsAlive
		target.RingCount += counts[id].count
		target.RingSizeBytes += counts[id].bytes
		target.Agents = append(target.Agents, one)
	}
	target.Presence = presenceOf(isAlive)
	return target
}

// drain joins what is declared and seen of one host.
func (v *view) drain(host string, ids []string, counts map[string]uint32, isDetailed bool) *api.Drain {
	drain := &api.Drain{Host: host, Spec: v.drainSpecs[host]}
	isAlive := false
	for _, id := range ids {
		state, live := v.drains[id], v.liveDrains[id]
		one := &api.DrainAgent{Agent: live, IsAlive: live != nil, Reported: state.GetReported(), StreamCount: counts[id]}
		if live == nil {
			one.Agent = state.GetAgent()
		}
		one.StoreDir = one.Agent.GetStoreDir()
		for _, progress := range state.GetProgress() {
			one.Records += progress.Records
			one.Bytes += progress.Bytes
		}
		if isDetailed {
			one.Progress = state.GetProgress()
		}
		isAlive = isAlive || one.IsAlive
		drain.StreamCount += one.StreamCount
		drain.Agents = append(drain.Agents, one)
	}
	drain.Presence = presenceOf(isAlive)
	return drain
}

// hostsNamed lists the hosts that a name or pattern means, in order.
func hostsNamed(hosts agentsOn, named string) ([]string, error) {
	if named == "" {
		named = pattern.All
	}
	if err := checkPattern("host", named, "expected a host or a pattern such as storage*"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(hosts)), func(host string) bool { return !pattern.Covers([]string{named}, host) }), nil
}
