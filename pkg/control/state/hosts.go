package state

import (
	"slices"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// HostInterval is how often host agents measure and report.
const HostInterval = 5 * time.Second

// hostMissed is after how many intervals without a report a stall that a host tells of is too old; countersMissed the
// same of its writers' figures, which other instances see less often.
const (
	hostMissed     = 3
	countersMissed = 2 * hostMissed
)

// HostReport is the newest that is known here of a host; nil: nothing is.
func (v *View) HostReport(host string) *api.HostState {
	kept, told := v.Hosts[host], v.HostsTold[host]
	if kept == nil || told != nil && told.ReportTime.AsTime().After(kept.ReportTime.AsTime()) {
		return told
	}
	return kept
}

// writerReport is what the agent of its host told last of a stream's writer, and how long ago; nil: nothing.
func (v *View) writerReport(status *api.StreamStatus, now time.Time) (*api.HostWriter, time.Duration) {
	host := v.HostReport(status.LastGrant.GetHolder().GetHost())
	for _, one := range host.GetWriters() {
		if one.Stream == status.Stream.Spec.Name && one.Epoch == status.LastGrant.Epoch {
			return one, max(0, now.Sub(host.ReportTime.AsTime()))
		}
	}
	return nil, 0
}

// AgentsByHost are the ids of the agents of each host, in order: those that live and those that have reported. A host
// of which only something is declared has none.
type AgentsByHost map[string][]string

// Add puts an agent on its host; an empty id declares the host alone.
func (a AgentsByHost) Add(host, id string) {
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

// TargetHosts are all hosts with targets.
func (v *View) TargetHosts() AgentsByHost {
	hosts := AgentsByHost{}
	for host := range v.TargetSpecs {
		hosts.Add(host, "")
	}
	for id, agent := range v.LiveTargets {
		hosts.Add(agent.Host, id)
	}
	for id, state := range v.Targets {
		if v.LiveTargets[id] == nil {
			hosts.Add(state.GetAgent().GetHost(), id)
		}
	}
	return hosts
}

// DrainHosts are all hosts with drains.
func (v *View) DrainHosts() AgentsByHost {
	hosts := AgentsByHost{}
	for host := range v.DrainSpecs {
		hosts.Add(host, "")
	}
	for id, agent := range v.LiveDrains {
		hosts.Add(agent.Host, id)
	}
	for id, state := range v.Drains {
		if v.LiveDrains[id] == nil {
			hosts.Add(state.GetAgent().GetHost(), id)
		}
	}
	return hosts
}

// RingTotals is how many rings there are, of so many bytes.
type RingTotals struct {
	count uint32
	bytes uint64
}

// CountRings counts the rings that are wanted of each target.
func (v *View) CountRings() map[string]RingTotals {
	counts := map[string]RingTotals{}
	for _, ring := range v.Rings {
		have := counts[ring.Target]
		counts[ring.Target] = RingTotals{have.count + 1, have.bytes + ring.GetStream().GetSpec().GetRingSizeBytes()}
	}
	return counts
}

// CountStreams counts the streams that are assigned to each drain.
func (v *View) CountStreams() map[string]uint32 {
	counts := map[string]uint32{}
	for _, assignment := range v.Assignments {
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

// Target joins what is declared and seen of one host.
func (v *View) Target(host string, ids []string, counts map[string]RingTotals) *api.Target {
	target := &api.Target{Host: host, Spec: v.TargetSpecs[host]}
	isAlive := false
	for _, id := range ids {
		state, live := v.Targets[id], v.LiveTargets[id]
		one := &api.TargetAgent{
			Agent: live, Alive: live != nil, ReportTime: state.GetReportTime(),
			Media: state.GetMedia(), Namespaces: state.GetNamespaces(),
		}
		if live == nil {
			one.Agent = state.GetAgent()
		}
		isAlive = isAlive || one.Alive
		target.RingCount += counts[id].count
		target.RingSizeBytes += counts[id].bytes
		target.Agents = append(target.Agents, one)
	}
	target.Presence = presenceOf(isAlive)
	return target
}

// Drain joins what is declared and seen of one host.
func (v *View) Drain(host string, ids []string, counts map[string]uint32, isDetailed bool) *api.Drain {
	drain := &api.Drain{Host: host, Spec: v.DrainSpecs[host]}
	isAlive := false
	for _, id := range ids {
		state, live := v.Drains[id], v.LiveDrains[id]
		one := &api.DrainAgent{
			Agent: live, Alive: live != nil, ReportTime: state.GetReportTime(),
			StreamCount: counts[id],
		}
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
		isAlive = isAlive || one.Alive
		drain.StreamCount += one.StreamCount
		drain.Agents = append(drain.Agents, one)
	}
	drain.Presence = presenceOf(isAlive)
	return drain
}
