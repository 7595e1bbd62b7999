package reconcile

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
)

func emptyWorld() World {
	return World{
		Streams: map[string]*api.Stream{}, Rings: map[string]*api.RingSpec{}, Assignments: map[string]*api.Assignment{},
		Admissions: map[string]*api.Admission{}, Epochs: map[string]uint32{}, LiveTargets: map[string]*api.Agent{},
		LiveDrains: map[string]*api.Agent{}, Targets: map[string]*api.TargetState{},
	}
}

func (w World) withStream(name string) World {
	w.Streams[name] = &api.Stream{Spec: &api.StreamSpec{Name: name}}
	return w
}

func (w World) withTarget(id, host string) World {
	w.LiveTargets[id] = &api.Agent{Id: id, Host: host}
	w.Targets[id] = &api.TargetState{Agent: w.LiveTargets[id]}
	return w
}

func (w World) withDrain(id, host string) World {
	w.LiveDrains[id] = &api.Agent{Id: id, Host: host}
	return w
}

// withRing places a ring and, with a uuid, lets its target report it.
func (w World) withRing(stream, target, uuid string) World {
	w.Rings[stream] = &api.RingSpec{Target: target, Stream: w.Streams[stream]}
	if uuid != "" {
		w.Targets[target].Rings = append(w.Targets[target].Rings,
			&api.RingState{Stream: stream, Uri: "mem:/" + stream, RingUuid: []byte(uuid)})
	}
	return w
}

// bound says that the ring of a stream was reported before.
func (w World) bound(stream, uuid string) World {
	w.Rings[stream].RingUuid = []byte(uuid)
	return w
}

func (w World) granted(stream string) World {
	w.Epochs[stream] = 1
	return w
}

// listening lets the target of a stream's ring offer it to other hosts.
func (w World) listening(stream string, uris ...string) World {
	for _, state := range w.Targets[w.Rings[stream].Target].Rings {
		if state.Stream == stream {
			state.RemoteUris = uris
		}
	}
	return w
}

// reachingBy names the transport of a drain.
func (w World) reachingBy(drain, transport string) World {
	w.LiveDrains[drain].Transport = transport
	return w
}

// admitted lets a writer in that has so long to come; opened says which epoch the ring has seen.
func (w World) admitted(stream string, epoch, opened uint32) World {
	w.Admissions[stream] = &api.Admission{
		EpochMin: epoch,
		Grants: []*api.RemoteGrant{{
			Token: []byte("0123456789abcdef"), Role: api.GrantRole_GRANT_ROLE_WRITER,
			Epoch: epoch, ExpireTime: timestamppb.New(time.Unix(1, 0)),
		}},
	}
	SeenRing(w.Targets, w.Rings[stream]).WriterEpoch = opened
	return w
}

// assignedTo changes the URI of an assignment.
func (w World) assignedTo(stream, uri string) World {
	w.Assignments[stream].Uri = uri
	return w
}

// storing names the store of a drain, or of a stream's assignment when there is one.
func (w World) storing(drain, store string) World {
	w.LiveDrains[drain].StoreUuid = []byte(store)
	return w
}

func (w World) givenStore(stream, store string) World {
	w.Assignments[stream].StoreUuid = []byte(store)
	return w
}

func (w World) withAssignment(stream, drain, uuid string) World {
	w.Assignments[stream] = &api.Assignment{
		Stream: stream, Drain: drain, Target: w.Rings[stream].Target,
		Uri: "mem:/" + stream, RingUuid: []byte(uuid), Generation: 5,
	}
	return w
}

func describe(actions []Action) string {
	text := ""
	for _, action := range actions {
		if ring := action.Place; ring != nil {
			text += fmt.Sprintf("place %s on %s;", ring.Stream.Spec.Name, ring.Target)
		}
		if ring := action.Bind; ring != nil {
			text += fmt.Sprintf("bind %s to %s;", ring.Stream.Spec.Name, ring.RingUuid)
		}
		if ring := action.Renew; ring != nil {
			text += fmt.Sprintf("renew %s(%s) on %s;", ring.Stream.Spec.Name, ring.LostUuid, ring.Target)
		}
		if to := action.Assign; to != nil {
			text += fmt.Sprintf("assign %s(%s) to %s #%d", to.Stream, to.RingUuid, to.Drain, to.Generation)
			if IsRemote(to.Uri) {
				text += " by " + to.Uri
			}
			text += ";"
		}
		if writer := action.Keep; writer != nil {
			text += fmt.Sprintf("keep %s #%d;", writer.Stream, writer.Epoch)
		}
		if action.Retire != "" {
			text += fmt.Sprintf("retire %s;", action.Retire)
		}
		if action.Forget != "" {
			text += fmt.Sprintf("forget %s;", action.Forget)
		}
	}
	return text
}

// remoteWorld has one ring that is bound and listens by two transports.
func remoteWorld() World {
	return emptyWorld().withStream("a").withTarget("t1", testHost).withRing("a", "t1", "u").bound("a", "u").
		listening("a", "ofi:tcp://x:2/a", "verbs://x:1/a")
}
