package state

import (
	"slices"
	"sync"

	"github.com/farlog/farlog/pkg/control/etcd"
)

// Kinds of things whose changes a history knows.
const (
	ChangedTarget     = "target"      // a host: what is declared of it, or its daemons
	ChangedDrain      = "drain"       // a host: what is declared of it, or its daemons
	ChangedTargetSpec = "target spec" // what is declared alone
	ChangedDrainSpec  = "drain spec"
	changedRoute      = "route"
)

// endedMost is how many things a history knows before it forgets those that are gone. Whoever asks for what was before
// that is told all there is.
const endedMost = 4096

// subject is one thing that changes.
type subject struct{ kind, name string }

// history remembers at which revision of etcd each thing changed or ended, from a revision on. It is written by the
// mirror before it publishes the view that shows it, so that a reader of a view never lacks what led to it; it may be
// told of more.
type history struct {
	mutex  sync.Mutex
	since  int64
	at     map[subject]int64
	latest map[string]int64 // by kind
	kept   int              // things that were there when others were forgotten
}

func newHistory() *history {
	return &history{at: map[subject]int64{}, latest: map[string]int64{}}
}

// begin forgets everything: what was between is not known.
func (h *history) begin(revision int64) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.since, h.at, h.latest, h.kept = revision, map[subject]int64{}, map[string]int64{}, 0
}

// touch notes that a key changes, with what a view knows of it: before the change and after it, for an agent may have
// come from another host.
func (h *history) touch(v *View, key string, revision int64) {
	prefix, name := etcd.CutKey(key)
	switch prefix {
	case etcd.KeyTargetSpecs:
		h.note(revision, subject{ChangedTarget, name}, subject{ChangedTargetSpec, name})
	case etcd.KeyDrainSpecs:
		h.note(revision, subject{ChangedDrain, name}, subject{ChangedDrainSpec, name})
	case etcd.KeyRoutes:
		h.note(revision, subject{changedRoute, name})
	case etcd.KeyLiveTargets:
		h.note(revision, subject{ChangedTarget, v.LiveTargets[name].GetHost()})
	case etcd.KeyLiveDrains:
		h.note(revision, subject{ChangedDrain, v.LiveDrains[name].GetHost()})
	}
}

// forgotten notes that what an agent told is taken away. That it is told again changes nothing of a host.
func (h *history) forgotten(v *View, key string, revision int64) {
	switch prefix, name := etcd.CutKey(key); prefix {
	case etcd.KeyTargets:
		h.note(revision, subject{ChangedTarget, v.Targets[name].GetAgent().GetHost()})
	case etcd.KeyDrains:
		h.note(revision, subject{ChangedDrain, v.Drains[name].GetAgent().GetHost()})
	}
}

func (h *history) note(revision int64, changed ...subject) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, one := range changed {
		if one.name != "" {
			h.at[one], h.latest[one.kind] = max(h.at[one], revision), max(h.latest[one.kind], revision)
		}
	}
}

// Revision is when a thing changed last; 0: it never was there.
func (h *history) Revision(kind, name string) int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.at[subject{kind, name}]
}

// ChangedSince lists what changed or ended behind a revision, up to the one of a view, by name. isKnown is false when
// that cannot be told.
func (h *history) ChangedSince(kind string, revision, until int64) (names []string, isKnown bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if revision < h.since {
		return nil, false
	}
	if h.latest[kind] <= revision {
		return nil, true
	}
	for one, at := range h.at {
		if one.kind == kind && at > revision && at <= until {
			names = append(names, one.name)
		}
	}
	slices.Sort(names)
	return names, true
}

// shorten forgets what is no longer there in a view, when there is twice as much as the last time.
func (h *history) shorten(v *View) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if len(h.at) <= max(endedMost, 2*h.kept) {
		return
	}
	targets, drains := v.TargetHosts(), v.DrainHosts()
	isThere := map[string]func(string) bool{
		ChangedTarget:     func(name string) bool { return targets[name] != nil },
		ChangedDrain:      func(name string) bool { return drains[name] != nil },
		ChangedTargetSpec: func(name string) bool { return v.TargetSpecs[name] != nil },
		ChangedDrainSpec:  func(name string) bool { return v.DrainSpecs[name] != nil },
		changedRoute:      func(name string) bool { return v.Routes[name] != nil },
	}
	for one := range h.at {
		if !isThere[one.kind](one.name) {
			delete(h.at, one)
		}
	}
	h.kept, h.since = len(h.at), v.Revision
}
