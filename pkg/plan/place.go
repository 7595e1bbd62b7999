package plan

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// never is the time of a world in which nothing was measured: then placement does not depend on it.
var never time.Time

// placing is where the control plane would put the rings of a fabric in which nothing is yet, and which drains it would
// give the streams to: its own functions say so, of a world in which every declared host has a target or a drain that
// lives.
type placing struct {
	world reconcile.World
	uuids uint64
}

func newPlacing(in Input, ringBytes map[string]uint64) *placing {
	p := &placing{world: reconcile.World{
		Streams: map[string]*api.Stream{}, Rings: map[string]*api.RingSpec{}, Assignments: map[string]*api.Assignment{},
		LiveTargets: map[string]*api.Agent{},
		LiveDrains:  map[string]*api.Agent{}, Targets: map[string]*api.TargetState{},
		TargetSpecs: map[string]*api.TargetSpec{}, DrainSpecs: map[string]*api.DrainSpec{},
		Hosts: map[string]*api.HostState{},
	}}
	for _, spec := range in.Fabric.Targets {
		agent := &api.Agent{Id: spec.Host, Host: spec.Host}
		p.world.LiveTargets[spec.Host], p.world.TargetSpecs[spec.Host], p.world.Targets[spec.Host] = agent, spec,
			&api.TargetState{Agent: agent}
		p.connect(spec)
	}
	for _, host := range in.drainHosts() {
		p.world.LiveDrains[host] = &api.Agent{Id: host, Host: host}
	}
	for _, spec := range in.Fabric.Drains {
		p.world.DrainSpecs[spec.Host] = spec
		p.world.LiveDrains[spec.Host].StoreDir = spec.StoreDir
	}
	for i, spec := range in.Fabric.Streams {
		wanted := proto.Clone(spec).(*api.StreamSpec)
		wanted.RingSizeBytes = ringBytes[spec.Name]
		wanted.WriterHost, wanted.LatencyLimit = "", nil // nobody has measured a way yet
		p.world.Streams[spec.Name] = &api.Stream{Spec: wanted, StreamId: uint32(i + 1), K: uint32(neededOf(spec))}
	}
	return p
}

// run lets the control plane act until it has nothing more to do.
func (p *placing) run() {
	for {
		actions, isChanged := reconcile.Plan(p.world, never), false
		for _, action := range actions {
			switch {
			case action.Place != nil:
				p.place(action.Place)
			case action.Bind != nil:
				p.world.Rings[reconcile.MemberKey(action.Bind.Stream.Spec.Name, int(action.Bind.Member))] = action.Bind
			case action.Assign != nil:
				p.world.Assignments[action.Assign.Stream] = action.Assign
			default:
				continue
			}
			isChanged = true
		}
		if !isChanged {
			return
		}
	}
}

// place makes a ring, as a target would that other hosts reach.
func (p *placing) place(ring *api.RingSpec) {
	name := ring.Stream.Spec.Name
	p.world.Rings[reconcile.MemberKey(name, int(ring.Member))] = ring
	p.uuids++
	state := p.world.Targets[ring.Target]
	seen := &api.RingState{
		Stream: name, StreamId: ring.Stream.StreamId, Target: ring.Target,
		RingUuid: binary.BigEndian.AppendUint64(make([]byte, 8), p.uuids), Uri: "mem:" + name,
		RemoteUris: []string{reconcile.TransportVerbs + ":" + name},
	}
	if ring.Subsystem != "" { // drained on the target's host alone
		seen.Uri, seen.RemoteUris = "nvme:"+name, nil
	}
	state.Rings = append(state.Rings, seen)
}

// connect has all namespaces of a target exported, and connected by the hosts that they admit.
func (p *placing) connect(spec *api.TargetSpec) {
	for _, one := range spec.Namespaces {
		state := p.world.Targets[spec.Host]
		state.Namespaces = append(state.Namespaces, &api.NamespaceState{
			Name: one.Name, Subsystem: one.Subsystem, Device: one.Device, Exported: true,
			Level: api.Level_LEVEL_PERSISTENT, FreeBytes: math.MaxInt64, // nobody knows how large it is
		})
		for _, host := range one.Hosts {
			if p.world.Hosts[host.Host] == nil {
				p.world.Hosts[host.Host] = &api.HostState{Host: host.Host, ReportTime: timestamppb.New(never)}
			}
			p.world.Hosts[host.Host].Namespaces = append(p.world.Hosts[host.Host].Namespaces,
				&api.NamespaceConnection{Subsystem: one.Subsystem, Device: one.Device})
		}
	}
}

// targets are the hosts with the rings of a stream, or why there are none.
func (p *placing) targets(name string) (hosts []string, whyNot string) {
	rings, isWhole := reconcile.RingSpecs(p.world.Rings, p.world.Streams[name])
	if !isWhole {
		if len(p.world.LiveTargets) == 0 {
			return nil, "expected a host under targets for its ring"
		}
		return nil, "expected targets that take it: " + reconcile.WhyNotPlaced(p.world, name,
			reconcile.FreeSpace(p.world, p.world.TargetSpecs), never)
	}
	for _, ring := range rings {
		hosts = append(hosts, ring.Target)
	}
	return hosts, ""
}

// drain is the host that stores a stream, or why there is none.
func (p *placing) drain(name string) (host, whyNot string) {
	if given := p.world.Assignments[name]; given != nil {
		return given.Drain, ""
	}
	if len(p.world.LiveDrains) == 0 {
		return "", "expected a drain under drains, or under plan.drains, to store it"
	}
	return "", fmt.Sprintf("expected a drain that takes it: of the %d that are declared all are closed, full or not "+
		"the one that it wants", len(p.world.LiveDrains))
}

// neededOf is how many members an acknowledgement of a stream waits for.
func neededOf(spec *api.StreamSpec) int {
	if spec.Needed > 0 {
		return int(spec.Needed)
	}
	return int(max(1, spec.Members))/2 + 1
}
