package state

import (
	"maps"
	"slices"
	"strings"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// index finds what was given to an agent, in the order of names. As the maps of a view it is shared with the view
// before until it changes, agent by agent.
type index struct {
	ByAgent map[string][]string
	owned   map[string]bool // agents whose names are not shared; nil: nothing of it is this view's alone
}

func (i *index) share(with index) { i.ByAgent, i.owned = with.ByAgent, nil }

func (i *index) change(agent string, change func(names []string) []string) {
	if i.owned == nil {
		i.ByAgent, i.owned = maps.Clone(i.ByAgent), map[string]bool{}
	}
	if i.ByAgent == nil {
		i.ByAgent = map[string][]string{}
	}
	names := i.ByAgent[agent]
	if !i.owned[agent] {
		names, i.owned[agent] = slices.Clone(names), true
	}
	if names = change(names); len(names) == 0 {
		delete(i.ByAgent, agent)
		return
	}
	i.ByAgent[agent] = names
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
func (v *View) reindex(prefix, name string, change func()) {
	ring, given := v.Rings[name], v.Assignments[name]
	change()
	switch {
	case prefix == etcd.KeyRings && ring.GetTarget() != v.Rings[name].GetTarget():
		if ring != nil {
			v.RingsAt.remove(ring.Target, name)
		}
		if now := v.Rings[name]; now != nil {
			v.RingsAt.add(now.Target, name)
		}
	case prefix == etcd.KeyAssignments && given.GetDrain() != v.Assignments[name].GetDrain():
		if given != nil {
			v.GivenTo.remove(given.Drain, name)
		}
		if now := v.Assignments[name]; now != nil {
			v.GivenTo.add(now.Drain, name)
		}
	}
}

// touched is what changes of etcd concern: who is told something else than before, and which streams may need
// something.
type touched struct {
	agents map[string]bool // by the key of their life
	// every target that watches may be told something else
	isEveryTarget bool
	streams       map[string]bool            // of which whoever watches is told
	writers       map[string]map[string]bool // by host: of these, the streams whose writer is on it
	reconcile.Dirt
}

func newTouched() *touched {
	return &touched{agents: map[string]bool{}, streams: map[string]bool{}, writers: map[string]map[string]bool{}}
}

// note is called before and after a change of what lies under a key.
func (t *touched) note(v *View, prefix, name string) {
	stream, _, _ := strings.Cut(name, "#")
	switch prefix {
	case etcd.KeyRings:
		t.touch(v, stream)
		t.touchTarget(v.Rings[name])
	case etcd.KeyAdmissions:
		t.touch(v, stream)
		t.touchTarget(v.Rings[name])
		t.touchDrain(v.Assignments[stream])
	case etcd.KeyAssignments:
		t.touch(v, stream)
		t.touchDrain(v.Assignments[stream])
		t.touchTargets(v, stream)
		if len(v.DrainSpecs) > 0 {
			t.TouchUnsettled() // a drain that takes so many streams may have space for another one
		}
	case etcd.KeyDeletions, etcd.KeyStreams:
		t.touch(v, stream)
		t.touchTargets(v, stream)
	case etcd.KeyEpochs:
		t.touch(v, stream)
	case etcd.KeyGrants, etcd.KeySlow:
		t.touchStream(v, stream)
	case etcd.KeyTargetSpecs:
		t.TouchAll()
		t.isEveryTarget = true // those of the host are told its namespaces
	case etcd.KeyDrainSpecs:
		t.TouchAll()
	case etcd.KeyLiveTargets:
		t.touchRingsAt(v, name)
		t.TouchUnsettled()
	case etcd.KeyHosts:
		t.TouchUnsettled() // some of which may wait for a target that is near enough
	case etcd.KeyLiveDrains:
		for _, stream := range v.GivenTo.ByAgent[name] {
			t.touch(v, stream)
		}
		t.touchTargetsOf(v, name)
		t.TouchUnsettled()
	}
}

// touchTargets wakes the targets of a stream's rings.
func (t *touched) touchTargets(v *View, stream string) {
	rings, _ := reconcile.RingSpecs(v.Rings, v.Streams[stream])
	for _, ring := range rings {
		t.touchTarget(ring)
	}
}

// touchTargetsOf wakes the targets whose listeners let a drain in: they are told where its host is.
func (t *touched) touchTargetsOf(v *View, drain string) {
	for _, stream := range v.GivenTo.ByAgent[drain] {
		t.touchTargets(v, stream)
	}
}

func (t *touched) touchTarget(ring *api.RingSpec) {
	if ring != nil {
		t.agents[etcd.KeyLiveTargets+ring.Target] = true
	}
}

func (t *touched) touchDrain(given *api.Assignment) {
	if given != nil {
		t.agents[etcd.KeyLiveDrains+given.Drain] = true
	}
}

func (t *touched) touchRingsAt(v *View, target string) {
	for _, ring := range v.RingsAt.ByAgent[target] {
		stream, _, _ := strings.Cut(ring, "#")
		t.touch(v, stream)
	}
}

// noteReport is called when a target has reported something else: the streams concerned are those whose rings are not
// as they were.
func (t *touched) noteReport(v *View, target string, before, now *api.TargetState) {
	if before.GetAgent().GetHost() != now.GetAgent().GetHost() || before == nil || now == nil {
		t.touchRingsAt(v, target)
		t.TouchUnsettled() // where its rings were there is space
		t.agents[etcd.KeyLiveTargets+target] = true
	}
	if !api.IsSameMedia(before.GetMedia(), now.GetMedia()) ||
		!api.AreSameNamespaces(before.GetNamespaces(), now.GetNamespaces()) {
		t.TouchUnsettled()
	}
	for i, ring := range now.GetRings() {
		if i >= len(before.GetRings()) || before.Rings[i] != ring && !api.IsSameRing(before.Rings[i], ring) {
			t.touch(v, ring.Stream)
			t.agents[etcd.KeyLiveTargets+target] = true // who may come to it depends on how it is reached
		}
	}
	for i, ring := range before.GetRings() { // one that was reported may no longer be
		if i >= len(now.GetRings()) || now.Rings[i].Stream != ring.Stream {
			t.touch(v, ring.Stream)
		}
	}
}

// noteRing is noteReport for a ring whose state has changed; nil: it is not reported.
func (t *touched) noteRing(v *View, target string, before, now *api.RingState) {
	if before != nil && now != nil && api.IsSameRing(before, now) {
		return
	}
	for _, ring := range []*api.RingState{before, now} {
		if ring != nil {
			t.touch(v, ring.Stream)
			t.agents[etcd.KeyLiveTargets+target] = true // who may come to it depends on how it is reached
		}
	}
}
