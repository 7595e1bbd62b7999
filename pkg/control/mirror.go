package control

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// mirrorRetryDelay is how long a broken watch of etcd waits before it starts over.
const mirrorRetryDelay = 200 * time.Millisecond

// view is everything in etcd, decoded, at one revision. A view is never changed after it was published, so that
// readers need no lock; its messages must not be changed either.
type view struct {
	revision       int64
	fabricRevision int64 // of the last change of what is declared: streams and targets
	streams        map[string]*api.Stream
	targetSpecs    map[string]*api.TargetSpec
	rings          map[string]*api.RingSpec
	assignments    map[string]*api.Assignment
	admissions     map[string]*api.Admission
	epochs         map[string]uint32
	grants         map[string]*api.Grant
	targets        map[string]*api.TargetState
	drains         map[string]*api.DrainState
	liveTargets    map[string]*api.Agent
	liveDrains     map[string]*api.Agent

	owned map[string]bool // prefixes whose maps are not shared with the view before; nil: all of them

	measured sync.Once // room, when it is asked for first
	room     map[string]uint64
}

// mirror follows etcd by a watch and publishes a view after each change. One goroutine writes (run); any may read.
type mirror struct {
	client *clientv3.Client
	logger *slog.Logger
	synced atomic.Bool // false while etcd cannot be followed: the view is old

	mutex   sync.Mutex
	current *view
	changed chan struct{} // closed and replaced at each publication
}

func newMirror(client *clientv3.Client, logger *slog.Logger) *mirror {
	return &mirror{client: client, logger: logger, current: newView(), changed: make(chan struct{})}
}

// load returns the present view, and a channel that is closed when there is a newer one.
func (m *mirror) load() (*view, <-chan struct{}) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.current, m.changed
}

// wait returns the first view for which done is true, or the error of ctx.
func (m *mirror) wait(ctx context.Context, done func(*view) bool) (*view, error) {
	for {
		now, changed := m.load()
		if done(now) {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, ctx.Err()
		}
	}
}

// waitRevision makes a reader see what it has just written.
func (m *mirror) waitRevision(ctx context.Context, revision int64) error {
	_, err := m.wait(ctx, func(v *view) bool { return v.revision >= revision })
	return err
}

// run follows etcd until ctx is done. A compacted or broken watch starts over with a full read.
func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.follow(ctx)
		m.synced.Store(false)
		if ctx.Err() == nil {
			m.logger.Warn("lost sight of etcd, reading it again", "error", err)
		}
		select {
		case <-time.After(mirrorRetryDelay):
		case <-ctx.Done():
		}
	}
}

func (m *mirror) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	all, err := m.client.Get(ctx, keyRoot, clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	next := newView()
	next.revision = all.Header.Revision
	for _, kv := range all.Kvs {
		m.apply(next, kv)
	}
	m.publish(next)
	m.synced.Store(true)
	watch := m.client.Watch(ctx, keyRoot, clientv3.WithPrefix(), clientv3.WithRev(next.revision+1))
	for response := range watch {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		next = next.clone()
		next.revision = response.Header.Revision
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				next.remove(string(event.Kv.Key))
			} else {
				m.apply(next, event.Kv)
			}
		}
		m.publish(next)
	}
	return fmt.Errorf("watch etcd: ended")
}

func (m *mirror) publish(next *view) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
}

// apply puts one key into a view. A value that cannot be read is reported and left out: one bad key must not blind
// the control plane to all others.
func (m *mirror) apply(v *view, kv *mvccpb.KeyValue) {
	if err := v.put(string(kv.Key), kv.Value); err != nil {
		m.logger.Error("skip unreadable state", "error", err)
		return
	}
	name, isStream := strings.CutPrefix(string(kv.Key), keyStreams)
	if isStream {
		v.streams[name].Revision = kv.ModRevision
	}
	if isStream || strings.HasPrefix(string(kv.Key), keyTargetSpecs) {
		v.fabricRevision = max(v.fabricRevision, kv.ModRevision)
	}
}

func newView() *view {
	return &view{
		streams:     map[string]*api.Stream{},
		targetSpecs: map[string]*api.TargetSpec{},
		rings:       map[string]*api.RingSpec{},
		assignments: map[string]*api.Assignment{},
		admissions:  map[string]*api.Admission{},
		epochs:      map[string]uint32{},
		grants:      map[string]*api.Grant{},
		targets:     map[string]*api.TargetState{},
		drains:      map[string]*api.DrainState{},
		liveTargets: map[string]*api.Agent{},
		liveDrains:  map[string]*api.Agent{},
	}
}

// clone shares every map with the view before until one of its entries changes: most changes are reports, and there may be thousands of streams.
func (v *view) clone() *view {
	next := &view{owned: map[string]bool{}}
	next.revision, next.fabricRevision = v.revision, v.fabricRevision
	next.streams, next.targetSpecs, next.rings, next.assignments, next.admissions = v.streams, v.targetSpecs, v.rings, v.assignments, v.admissions
	next.epochs, next.grants, next.targets, next.drains = v.epochs, v.grants, v.targets, v.drains
	next.liveTargets, next.liveDrains = v.liveTargets, v.liveDrains
	return next
}

// own makes the map of a prefix this view's alone before an entry of it changes.
func (v *view) own(prefix string) {
	if v.owned == nil || v.owned[prefix] {
		return
	}
	v.owned[prefix] = true
	switch prefix {
	case keyStreams:
		v.streams = maps.Clone(v.streams)
	case keyTargetSpecs:
		v.targetSpecs = maps.Clone(v.targetSpecs)
	case keyRings:
		v.rings = maps.Clone(v.rings)
	case keyAssignments:
		v.assignments = maps.Clone(v.assignments)
	case keyAdmissions:
		v.admissions = maps.Clone(v.admissions)
	case keyEpochs:
		v.epochs = maps.Clone(v.epochs)
	case keyGrants:
		v.grants = maps.Clone(v.grants)
	case keyTargets:
		v.targets = maps.Clone(v.targets)
	case keyDrains:
		v.drains = maps.Clone(v.drains)
	case keyLiveTargets:
		v.liveTargets = maps.Clone(v.liveTargets)
	case keyLiveDrains:
		v.liveDrains = maps.Clone(v.liveDrains)
	}
}

func (v *view) put(key string, value []byte) error {
	prefix, name := cutKey(key)
	v.own(prefix)
	switch prefix {
	case keyStreams:
		return putMessage(v.streams, key, name, value, new(api.Stream))
	case keyTargetSpecs:
		return putMessage(v.targetSpecs, key, name, value, new(api.TargetSpec))
	case keyRings:
		return putMessage(v.rings, key, name, value, new(api.RingSpec))
	case keyAssignments:
		return putMessage(v.assignments, key, name, value, new(api.Assignment))
	case keyAdmissions:
		return putMessage(v.admissions, key, name, value, new(api.Admission))
	case keyGrants:
		return putMessage(v.grants, key, name, value, new(api.Grant))
	case keyTargets:
		return putMessage(v.targets, key, name, value, new(api.TargetState))
	case keyDrains:
		return putMessage(v.drains, key, name, value, new(api.DrainState))
	case keyLiveTargets:
		return putMessage(v.liveTargets, key, name, value, new(api.Agent))
	case keyLiveDrains:
		return putMessage(v.liveDrains, key, name, value, new(api.Agent))
	case keyEpochs:
		epoch, err := strconv.ParseUint(string(value), 10, 32)
		if err != nil {
			return fmt.Errorf("decode etcd key %q: %q is not an epoch", key, value)
		}
		v.epochs[name] = uint32(epoch)
	}
	return nil
}

func (v *view) remove(key string) {
	prefix, name := cutKey(key)
	v.own(prefix)
	switch prefix {
	case keyStreams:
		delete(v.streams, name)
	case keyTargetSpecs:
		delete(v.targetSpecs, name)
	case keyRings:
		delete(v.rings, name)
	case keyAssignments:
		delete(v.assignments, name)
	case keyAdmissions:
		delete(v.admissions, name)
	case keyEpochs:
		delete(v.epochs, name)
	case keyGrants:
		delete(v.grants, name)
	case keyTargets:
		delete(v.targets, name)
	case keyDrains:
		delete(v.drains, name)
	case keyLiveTargets:
		delete(v.liveTargets, name)
	case keyLiveDrains:
		delete(v.liveDrains, name)
	}
}
