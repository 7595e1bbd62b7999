package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/identity"
)

// agents are a target and a drain on each host, each with a connection of its own. They say what the daemons say, as
// often.
type agents struct {
	targets []*targetAgent
	drains  []*drainAgent
	reports atomic.Int64
	states  atomic.Int64 // reports that had the state

	opened    *timestamppb.Timestamp // when writers opened their epochs
	busySince atomic.Pointer[time.Time]
}

type targetAgent struct {
	all    *agents
	client api.TargetServiceClient
	agent  *api.Agent
	news   chan struct{}

	mutex  sync.Mutex
	rings  []*api.RingSpec
	epochs map[string]uint32 // by stream, of those that are written
	told   int               // how many of those a report has said
}

type drainAgent struct {
	all    *agents
	client api.DrainServiceClient
	agent  *api.Agent

	mutex sync.Mutex
	given []*api.Assignment
}

func hostName(i int) string { return fmt.Sprintf("host%03d", i) }

func startAgents(ctx context.Context, hosts int, credentialsOf func(identity.Kind) credentials.TransportCredentials,
) (*agents, error) {
	all := new(agents)
	for i := range hosts {
		var conns [2]*grpc.ClientConn
		for j, kind := range []identity.Kind{identity.KindTarget, identity.KindDrain} {
			conn, err := api.Dial(fabricAddress, credentialsOf(kind))
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { conn.Close() })
			conns[j] = conn
		}
		target := &targetAgent{
			all: all, client: api.NewTargetServiceClient(conns[0]),
			agent: &api.Agent{Id: fmt.Sprintf("t%03d", i), Host: hostName(i), Pid: uint32(i + 1)},
			news:  make(chan struct{}, 1), epochs: map[string]uint32{},
		}
		drain := &drainAgent{
			all: all, client: api.NewDrainServiceClient(conns[1]),
			agent: &api.Agent{
				Id: fmt.Sprintf("d%03d", i), Host: hostName(i), Pid: uint32(i + 1),
				StoreDir: "/var/lib/farlog/store", StoreUuid: uuidOf(hostName(i)),
			},
		}
		all.targets, all.drains = append(all.targets, target), append(all.drains, drain)
		go target.follow(ctx)
		go target.run(ctx)
		go drain.follow(ctx)
		go drain.run(ctx)
	}
	return all, nil
}

func uuidOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:16]
}

func (t *targetAgent) follow(ctx context.Context) {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchRingsResponse], error) {
		return t.client.WatchRings(ctx, &api.WatchRingsRequest{Agent: t.agent})
	}
	api.Follow(ctx, open, func(message *api.WatchRingsResponse) {
		t.mutex.Lock()
		t.rings = message.Rings
		t.mutex.Unlock()
		select {
		case t.news <- struct{}{}:
		default:
		}
	}, func(error) {})
}

// run reports each second, with all or without what has not changed as the daemons do, and at once when other rings are
// wanted: a daemon looks at them then, and has made them.
func (t *targetAgent) run(ctx context.Context) {
	reporter := &api.Reporter[*api.TargetState]{
		IsSame: func(told, now *api.TargetState) bool {
			return api.IsSameTarget(told, now) && api.AreSameMarks(told.Rings, now.Rings)
		},
		Send: func(ctx context.Context, state *api.TargetState, unchanged *api.Unchanged) (api.ReportAnswer, error) {
			answer, err := t.client.ReportTarget(ctx, &api.ReportTargetRequest{State: state, Unchanged: unchanged})
			t.all.count(state != nil, err)
			return answer, err
		},
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		state, written := t.state()
		if err := reporter.Report(call, state); err == nil {
			t.mutex.Lock()
			t.told = written
			t.mutex.Unlock()
		}
		cancel()
		select {
		case <-tick.C:
		case <-t.news:
		case <-ctx.Done():
		}
	}
}

// open has a writer in a ring.
func (t *targetAgent) open(stream string, epoch uint32) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.epochs[stream] = epoch
}

// state is what a target tells of its rings, with all that it tells, and how many of them are written.
func (t *targetAgent) state() (*api.TargetState, int) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now := timestamppb.Now()
	state := &api.TargetState{Agent: t.agent, ReportTime: now}
	for _, spec := range t.rings {
		name := spec.Stream.Spec.Name
		state.Rings = append(state.Rings, &api.RingState{
			Stream: name, StreamId: spec.Stream.StreamId, Target: t.agent.Id,
			Uri: "mem:/var/lib/farlog/target/" + name + ".ring", RingUuid: uuidOf(name), ObserveTime: now,
			CapacityBytes: 1 << 20, Contract: &api.Contract{
				Kind: "file", FlushMethod: "msync", Probe: "file on ext4",
				Level: api.Level_LEVEL_PERSISTENT, GranularityBytes: 1,
				AtomicUnitBytes: 8, SizeBytes: 1 << 20, DeadlineDefault: durationpb.New(time.Second),
			},
		})
		t.all.write(state.Rings[len(state.Rings)-1], t.epochs[name], now)
	}
	return state, len(t.epochs)
}

func (d *drainAgent) follow(ctx context.Context) {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchAssignmentsResponse], error) {
		return d.client.WatchAssignments(ctx, &api.WatchAssignmentsRequest{Agent: d.agent})
	}
	api.Follow(ctx, open, func(message *api.WatchAssignmentsResponse) {
		d.mutex.Lock()
		d.given = message.Assignments
		d.mutex.Unlock()
	}, func(error) {})
}

func (d *drainAgent) run(ctx context.Context) {
	reporter := &api.Reporter[*api.DrainState]{
		IsSame: api.IsSameDrain,
		Send: func(ctx context.Context, state *api.DrainState, unchanged *api.Unchanged) (api.ReportAnswer, error) {
			answer, err := d.client.ReportDrain(ctx, &api.ReportDrainRequest{State: state, Unchanged: unchanged})
			d.all.count(state != nil, err)
			return answer, err
		},
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		_ = reporter.Report(call, d.state()) // one that fails is not counted
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (d *drainAgent) state() *api.DrainState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	state := &api.DrainState{Agent: d.agent, ReportTime: timestamppb.Now(), StoreDir: d.agent.StoreDir}
	for _, given := range d.given {
		progress := &api.DrainProgress{Stream: given.Stream, RingUuid: given.RingUuid}
		d.all.drain(progress)
		state.Progress = append(state.Progress, progress)
	}
	return state
}

// count notes a report that was answered.
func (a *agents) count(hasState bool, err error) {
	if err != nil {
		return
	}
	a.reports.Add(1)
	if hasState {
		a.states.Add(1)
	}
}

// wanted counts the rings that targets have been told of, bound those of which they know that the control plane holds
// them to be the stream's.
func (a *agents) wanted() (count int) {
	for _, target := range a.targets {
		target.mutex.Lock()
		count += len(target.rings)
		target.mutex.Unlock()
	}
	return count
}

func (a *agents) bound() (count int) {
	for _, target := range a.targets {
		target.mutex.Lock()
		for _, ring := range target.rings {
			if len(ring.RingUuid) > 0 {
				count++
			}
		}
		target.mutex.Unlock()
	}
	return count
}

// written counts the rings with a writer of which the control plane has been told.
func (a *agents) written() (count int) {
	for _, target := range a.targets {
		target.mutex.Lock()
		count += target.told
		target.mutex.Unlock()
	}
	return count
}

// given counts the streams that drains have been told of.
func (a *agents) given() (count int) {
	for _, drain := range a.drains {
		drain.mutex.Lock()
		for _, given := range drain.given {
			if !strings.HasPrefix(given.Stream, fabricOwn) {
				count++
			}
		}
		drain.mutex.Unlock()
	}
	return count
}
