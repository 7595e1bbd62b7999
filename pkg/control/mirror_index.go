package control

import (
	"maps"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// index finds what was given to an agent, in the order of names. As the maps of a view it is shared with the view before until it changes, agent by agent.
type index struct {
	of    map[string][]string
	owned map[string]bool // agents whose names are not shared; nil: nothing of it is this view's alone
}

func (i *index) share(with index) { i.of, i.owned = with.of, nil }

func (i *index) change(agent string, change func(names []string) []string) {
	if i.owned == nil {
		i.of, i.owned = maps.Clone(i.of), map[string]bool{}
	}
	if i.of == nil {
		i.of = map[string][]string{}
	}
	names := i.of[agent]
	if !i.owned[agent] {
		names, i.owned[agent] = slices.Clone(names), true
	}
	if names = change(names); len(names) == 0 {
		delete(i.of, agent)
		return
	}
	i.of[agent] = names
}

func (i *index) add(agent, name string) {
	i.change(agent, func(names []string) []string {
		at, isThere := slices.BinarySearch(names, name)
		if isThere {
			return names
		}
		return slices.Insert(names, at, name)
	})
}

func (i *index) remove(agent, name string) {
	i.change(agent, func(names []string) []string {
		if at, isThere := slices.BinarySearch(names, name); isThere {
			return slices.Delete(names, at, at+1)
		}
		return names
	})
}

// reindex takes what lies under a key out of the indices before it changes, and puts it in again afterwards.
func (v *view) reindex(prefix, name string, change func()) {
	ring, given := v.rings[name], v.assignments[name]
	change()
	switch {
	case prefix == keyRings && ring.GetTarget() != v.rings[name].GetTarget():
		if ring != nil {
			v.ringsAt.remove(ring.Target, name)
		}
		if now := v.rings[name]; now != nil {
			v.ringsAt.add(now.Target, name)
		}
	case prefix == keyAssignments && given.GetDrain() != v.assignments[name].GetDrain():
		if given != nil {
			v.givenTo.remove(given.Drain, name)
		}
		if now := v.assignments[name]; now != nil {
			v.givenTo.add(now.Drain, name)
		}
	}
}

// touched is what changes of etcd concern: who is told something else than before, and which streams may need something.
type touched struct {
	agents  map[string]bool            // by the key of their life
	streams map[string]bool            // of which whoever watches is told
	writers map[string]map[string]bool // by host: of these, the streams whose writer is on it
	reconcile.Dirt
}

func newTouched() *touched {
	return &touched{agents: map[string]bool{}, streams: map[string]bool{}, writers: map[string]map[string]bool{}}
}

// note is called before and after a change of what lies under a key.
func (t *touched) note(v *view, prefix, name string) {
	stream, _, _ := strings.Cut(name, "#")
	switch prefix {
	case keyRings:
		t.touch(v, stream)
		t.tellTarget(v.rings[name])
	case keyAdmissions:
		t.touch(v, stream)
		t.tellTarget(v.rings[name])
		t.tellDrain(v.assignments[stream])
	case keyAssignments:
		t.touch(v, stream)
		t.tellDrain(v.assignments[stream])
		t.tellTargets(v, stream)
		if len(v.drainSpecs) > 0 {
			t.TouchUnsettled() // a drain that takes so many streams may have room for another one
		}
	case keyDeletions, keyStreams:
		t.touch(v, stream)
		t.tellTargets(v, stream)
	case keyEpochs:
		t.touch(v, stream)
	case keyGrants, keySlow:
		t.tell(v, stream)
	case keyTargetSpecs, keyDrainSpecs:
		t.TouchAll()
	case keyLiveTargets:
		t.touchRingsAt(v, name)
		t.TouchUnsettled()
	case keyHosts:
		t.TouchUnsettled() // some of which may wait for a target that is near enough
	case keyLiveDrains:
		for _, stream := range v.givenTo.of[name] {
			t.touch(v, stream)
		}
		t.tellWhereFrom(v, name)
		t.TouchUnsettled()
	}
}

// tellTargets wakes the targets of a stream's rings.
func (t *touched) tellTargets(v *view, stream string) {
	rings, _ := reconcile.RingSpecs(v.rings, v.streams[stream])
	for _, ring := range rings {
		t.tellTarget(ring)
	}
}

// tellWhereFrom wakes the targets whose doors let a drain in: they are told where its host is.
func (t *touched) tellWhereFrom(v *view, drain string) {
	for _, stream := range v.givenTo.of[drain] {
		t.tellTargets(v, stream)
	}
}

func (t *touched) tellTarget(ring *api.RingSpec) {
	if ring != nil {
		t.agents[keyLiveTargets+ring.Target] = true
	}
}

func (t *touched) tellDrain(given *api.Assignment) {
	if given != nil {
		t.agents[keyLiveDrains+given.Drain] = true
	}
}

func (t *touched) touchRingsAt(v *view, target string) {
	for _, ring := range v.ringsAt.of[target] {
		stream, _, _ := strings.Cut(ring, "#")
		t.touch(v, stream)
	}
}

// noteReport is called when a target has reported something else: the streams concerned are those whose rings are not as they were.
func (t *touched) noteReport(v *view, target string, before, now *api.TargetState) {
	if before.GetAgent().GetHost() != now.GetAgent().GetHost() || before == nil || now == nil {
		t.touchRingsAt(v, target)
		t.TouchUnsettled() // where its rings were there is room
		t.agents[keyLiveTargets+target] = true
	}
	if !api.IsSameMedia(before.GetMedia(), now.GetMedia()) {
		t.TouchUnsettled()
	}
	for i, ring := range now.GetRings() {
		if i >= len(before.GetRings()) || before.Rings[i] != ring && !api.IsSameRing(before.Rings[i], ring) {
			t.touch(v, ring.Stream)
			t.agents[keyLiveTargets+target] = true // who may come to it depends on how it is reached
		}
	}
	for i, ring := range before.GetRings() { // one that was reported may no longer be
		if i >= len(now.GetRings()) || now.Rings[i].Stream != ring.Stream {
			t.touch(v, ring.Stream)
		}
	}
}

// noteRing is noteReport for a ring whose state has changed; nil: it is not reported.
func (t *touched) noteRing(v *view, target string, before, now *api.RingState) {
	if before != nil && now != nil && api.IsSameRing(before, now) {
		return
	}
	for _, ring := range []*api.RingState{before, now} {
		if ring != nil {
			t.touch(v, ring.Stream)
			t.agents[keyLiveTargets+target] = true // who may come to it depends on how it is reached
		}
	}
}
