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
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// mirrorRetryDelay is how long a broken watch of etcd waits before it starts over.
const mirrorRetryDelay = 200 * time.Millisecond

// readPage is how many keys are read at once.
const readPage = 1000

// view is everything in etcd, decoded, at one revision. A view is never changed after it was published, so that
// readers need no lock; its messages must not be changed either.
type view struct {
	revision       int64
	fabricRevision int64 // of the last change of what is declared: streams, their ends, targets, drains and routes
	routeRevision  int64 // of the last change of a route, or of the end of one that was seen
	streams        map[string]*api.Stream
	targetSpecs    map[string]*api.TargetSpec
	drainSpecs     map[string]*api.DrainSpec
	tenants        map[string]*api.TenantSpec
	routes         map[string]*api.Route
	rings          map[string]*api.RingSpec
	assignments    map[string]*api.Assignment
	admissions     map[string]*api.Admission
	deletions      map[string]*api.Deletion
	epochs         map[string]uint32
	grants         map[string]*api.Grant
	targets        map[string]*api.TargetState
	drains         map[string]*api.DrainState
	hosts          map[string]*api.HostState
	slow           map[string]*api.SlowConsumer
	liveTargets    map[string]*api.Agent
	liveDrains     map[string]*api.Agent

	targetRings  partsOf[*api.RingState]
	drainStreams partsOf[*api.DrainProgress]

	unstored map[string]string // by an agent's key: why this instance could not store its last report

	ringsAt index            // by target: the keys of the rings that are wanted of it
	givenTo index            // by drain: the streams that it is given
	leases  map[string]int64 // by the key of an agent's life: its lease in etcd

	owned map[string]bool // prefixes whose maps are not shared with the view before; nil: all of them

	measured sync.Once // room and loads, when they are asked for first
	room     map[string]uint64
	loads    map[string]int
	slowOnce sync.Once // slowOf, as well
	slowOf   map[string][]*api.SlowConsumer
}

// mirror follows etcd by a watch and publishes a view after each change. Any goroutine may read.
type mirror struct {
	client  *clientv3.Client
	logger  *slog.Logger
	history *history
	synced  atomic.Bool // false while etcd cannot be followed: the view is old

	writing sync.Mutex // held from the copy of a view to its publication

	mutex          sync.Mutex
	current        *view
	changed        chan struct{}            // closed and replaced at each publication
	told           map[string]chan struct{} // by the key of an agent's life: closed and forgotten when it is to be told something else
	streamsChanged changes
	listeners      map[string]map[*listener]bool // by host
	dirt           reconcile.Dirt                // since takeDirt
	dirty          chan struct{}                 // has room for one word: there is dirt
}

func newMirror(client *clientv3.Client, logger *slog.Logger) *mirror {
	return &mirror{client: client, logger: logger, history: newHistory(), current: newView(), changed: make(chan struct{}), told: map[string]chan struct{}{}, dirty: make(chan struct{}, 1),
		listeners: map[string]map[*listener]bool{}, streamsChanged: changes{at: map[string]int64{}}}
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

// waitRevision makes a reader see what it has just written, or read. Where no event comes of that revision, as in an
// etcd that has other users, one of our own behind it does.
func (m *mirror) waitRevision(ctx context.Context, revision int64) error {
	for pause := mirrorRetryDelay; ; pause *= 2 {
		brief, cancel := context.WithTimeout(ctx, pause)
		_, err := m.wait(brief, func(v *view) bool { return v.revision >= revision })
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, err := m.client.Put(ctx, keySeen, ""); err != nil {
			m.logger.Debug("no event could be made for a reader that waits", "error", err)
		}
	}
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
	first, err := m.readAll(ctx)
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	m.writing.Lock()
	m.publish(first, nil)
	m.writing.Unlock()
	m.synced.Store(true)
	watch := m.client.Watch(ctx, keyRoot, clientv3.WithPrefix(), clientv3.WithRev(first.revision+1))
	for response := range watch {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		m.take(&response)
	}
	return fmt.Errorf("watch etcd: ended")
}

// readAll reads everything as it is at one revision, page by page: all of it at once would be in memory twice.
func (m *mirror) readAll(ctx context.Context) (*view, error) {
	next, from, end := newView(), keyRoot, clientv3.GetPrefixRangeEnd(keyRoot)
	for {
		page, err := m.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(readPage), clientv3.WithRev(next.revision))
		if err != nil {
			return nil, err
		}
		if next.revision == 0 {
			next.revision = page.Header.Revision
			m.history.begin(next.revision)
		}
		for _, kv := range page.Kvs {
			m.apply(next, kv)
		}
		if !page.More {
			return next, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// revisionOf is up to where a message tells all changes: the revision of its last event. Its header is no such thing:
// a watch that resumes gets at most 1,000 revisions a message, each under etcd's present revision. etcd tells all of a
// revision in one message, and the client joins the fragments of one before it is read here. Progress notifications are
// not asked for: before etcd 3.5.8 one could overtake the events that it stands for.
func revisionOf(response *clientv3.WatchResponse) int64 {
	if len(response.Events) == 0 {
		return 0
	}
	return response.Events[len(response.Events)-1].Kv.ModRevision
}

// take publishes what a message of the watch changes.
func (m *mirror) take(response *clientv3.WatchResponse) {
	m.writing.Lock()
	defer m.writing.Unlock()
	now, _ := m.load()
	next, touched := now.clone(), newTouched()
	next.revision = max(now.revision, revisionOf(response))
	for _, event := range response.Events {
		key := string(event.Kv.Key)
		prefix, name := cutKey(key)
		reported, ring, drain := next.targets[name], next.rings[name], next.drains[name]
		seen := next.targetRings.part(name)
		touched.note(next, prefix, name)
		if event.Type == clientv3.EventTypeDelete {
			m.history.touch(next, key, event.Kv.ModRevision)
			m.history.forgotten(next, key, event.Kv.ModRevision)
			next.remove(key)
			next.declaredAt(key, event.Kv.ModRevision)
		} else {
			m.apply(next, event.Kv)
		}
		touched.note(next, prefix, name)
		switch {
		case prefix == keyTargets:
			touched.noteReport(next, name, reported, next.targets[name])
		case prefix == keyTargetRings:
			target, _ := cutPart(name)
			touched.noteRing(next, target, seen, next.targetRings.part(name))
		case prefix == keyDrains && !proto.Equal(drain.GetAgent(), next.drains[name].GetAgent()):
			touched.tellWhereFrom(next, name)
		case prefix == keyRings && ring != nil && ring.Target != next.rings[name].GetTarget():
			touched.TouchUnsettled() // it leaves room for others
		}
	}
	m.history.shorten(next)
	m.publish(next, touched)
}

// publish makes a view the present one. touched is nil where everything may be another.
func (m *mirror) publish(next *view, touched *touched) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
	m.spread(next, touched)
	if touched == nil {
		touched = newTouched()
		touched.TouchAll()
		for agent := range m.told {
			touched.agents[agent] = true
		}
	}
	for agent := range touched.agents {
		if told := m.told[agent]; told != nil {
			close(told)
			delete(m.told, agent)
		}
	}
	m.dirt.Add(touched.Dirt)
	if !m.dirt.IsClean() {
		select {
		case m.dirty <- struct{}{}:
		default: // it is said already
		}
	}
}

// loadFor is load for who only asks what an agent is told: the channel is closed when that may have become something else.
func (m *mirror) loadFor(agent string) (*view, <-chan struct{}) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.told[agent] == nil {
		m.told[agent] = make(chan struct{})
	}
	return m.current, m.told[agent]
}

// takeDirt returns the present view, and what has changed since the last call.
func (m *mirror) takeDirt() (*view, reconcile.Dirt) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	dirt := m.dirt
	m.dirt = reconcile.Dirt{}
	return m.current, dirt
}

// isClean tells whether nothing has changed since takeDirt.
func (m *mirror) isClean() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.dirt.IsClean()
}

// show puts something into the present view that is not in etcd, and wakes nobody: what is waited for is in etcd.
func (m *mirror) show(change func(now, next *view) (isShown bool)) {
	m.writing.Lock()
	defer m.writing.Unlock()
	now, _ := m.load()
	next := now.clone()
	if change(now, next) {
		m.mutex.Lock()
		m.current = next
		m.mutex.Unlock()
	}
}

// apply puts one key into a view. A value that cannot be read is reported and left out: one bad key must not blind
// the control plane to all others.
func (m *mirror) apply(v *view, kv *mvccpb.KeyValue) {
	m.history.touch(v, string(kv.Key), kv.ModRevision)
	if err := v.put(string(kv.Key), kv.Value); err != nil {
		m.logger.Error("skip unreadable state", "error", err)
		return
	}
	m.history.touch(v, string(kv.Key), kv.ModRevision)
	name, isStream := strings.CutPrefix(string(kv.Key), keyStreams)
	if isStream {
		v.streams[name].Revision = kv.ModRevision
	}
	gone, isDeletion := strings.CutPrefix(string(kv.Key), keyDeletions)
	if isDeletion {
		v.deletions[gone].Revision = kv.ModRevision
	}
	if route, isRoute := strings.CutPrefix(string(kv.Key), keyRoutes); isRoute {
		v.routes[route].Revision = kv.ModRevision
	}
	if isStream || isDeletion {
		v.fabricRevision = max(v.fabricRevision, kv.ModRevision)
	}
	v.declaredAt(string(kv.Key), kv.ModRevision)
	if prefix, _ := cutKey(string(kv.Key)); prefix == keyLiveTargets || prefix == keyLiveDrains {
		v.leases = maps.Clone(v.leases) // as many as there are agents, and changed when one begins
		v.leases[string(kv.Key)] = kv.Lease
	}
}

// declaredAt remembers when targets, drains and routes changed or ended. Of streams the end of their deletion is that.
func (v *view) declaredAt(key string, revision int64) {
	if strings.HasPrefix(key, keyTargetSpecs) || strings.HasPrefix(key, keyTenants) || strings.HasPrefix(key, keyDrainSpecs) || strings.HasPrefix(key, keyRoutes) {
		v.fabricRevision = max(v.fabricRevision, revision)
	}
	if strings.HasPrefix(key, keyRoutes) {
		v.routeRevision = max(v.routeRevision, revision)
	}
}

func newView() *view {
	v := &view{leases: map[string]int64{}, unstored: map[string]string{}}
	for _, kind := range kinds {
		kind.begin(v)
	}
	return v
}

// clone shares every map with the view before until one of its entries changes: most changes are reports, and there may be thousands of streams.
func (v *view) clone() *view {
	next := &view{revision: v.revision, fabricRevision: v.fabricRevision, routeRevision: v.routeRevision, owned: map[string]bool{}, leases: v.leases, unstored: v.unstored}
	for _, kind := range kinds {
		kind.share(next, v)
	}
	next.ringsAt.share(v.ringsAt)
	next.givenTo.share(v.givenTo)
	return next
}

// kindOf finds what a key holds, and makes its map this view's alone; nil: nothing that a view has.
func (v *view) kindOf(key string) (kind, string) {
	prefix, name := cutKey(key)
	found := kinds[prefix]
	if found != nil && v.owned != nil && !v.owned[prefix] {
		v.owned[prefix] = true
		found.own(v)
	}
	return found, name
}

func (v *view) put(key string, value []byte) (err error) {
	kind, name := v.kindOf(key)
	if kind == nil {
		return nil
	}
	prefix, _ := cutKey(key)
	v.reindex(prefix, name, func() { err = kind.put(v, key, name, value) })
	return err
}

func (v *view) remove(key string) {
	if kind, name := v.kindOf(key); kind != nil {
		prefix, _ := cutKey(key)
		v.reindex(prefix, name, func() { kind.remove(v, name) })
	}
}

// kind is what lies under one prefix of etcd: a map of a view.
type kind interface {
	begin(v *view)
	share(next, v *view)
	own(v *view)
	put(v *view, key, name string, value []byte) error
	remove(v *view, name string)
}

// entries is a kind whose values are V.
type entries[V any] struct {
	of   func(*view) *map[string]V
	read func(key string, value []byte) (V, error)
}

func (e entries[V]) begin(v *view)               { *e.of(v) = map[string]V{} }
func (e entries[V]) share(next, v *view)         { *e.of(next) = *e.of(v) }
func (e entries[V]) own(v *view)                 { *e.of(v) = maps.Clone(*e.of(v)) }
func (e entries[V]) remove(v *view, name string) { delete(*e.of(v), name) }

func (e entries[V]) put(v *view, key, name string, value []byte) error {
	read, err := e.read(key, value)
	if err == nil {
		(*e.of(v))[name] = read
	}
	return err
}

// messages is a kind whose values are messages of the protocol.
func messages[M any, P interface {
	*M
	proto.Message
}](of func(*view) *map[string]P) kind {
	return entries[P]{of, func(key string, value []byte) (P, error) {
		message := P(new(M))
		return message, decode(key, value, message)
	}}
}

var kinds = map[string]kind{
	keyStreams:      messages(func(v *view) *map[string]*api.Stream { return &v.streams }),
	keyTargetSpecs:  messages(func(v *view) *map[string]*api.TargetSpec { return &v.targetSpecs }),
	keyDrainSpecs:   messages(func(v *view) *map[string]*api.DrainSpec { return &v.drainSpecs }),
	keyTenants:      messages(func(v *view) *map[string]*api.TenantSpec { return &v.tenants }),
	keyRoutes:       messages(func(v *view) *map[string]*api.Route { return &v.routes }),
	keyRings:        messages(func(v *view) *map[string]*api.RingSpec { return &v.rings }),
	keyAssignments:  messages(func(v *view) *map[string]*api.Assignment { return &v.assignments }),
	keyDeletions:    messages(func(v *view) *map[string]*api.Deletion { return &v.deletions }),
	keyAdmissions:   messages(func(v *view) *map[string]*api.Admission { return &v.admissions }),
	keyGrants:       messages(func(v *view) *map[string]*api.Grant { return &v.grants }),
	keyTargets:      headKeys[*api.TargetState, *api.RingState]{&targetKind},
	keyTargetRings:  partKeys[*api.TargetState, *api.RingState]{&targetKind},
	keyDrains:       headKeys[*api.DrainState, *api.DrainProgress]{&drainKind},
	keyDrainStreams: partKeys[*api.DrainState, *api.DrainProgress]{&drainKind},
	keyHosts:        messages(func(v *view) *map[string]*api.HostState { return &v.hosts }),
	keySlow:         messages(func(v *view) *map[string]*api.SlowConsumer { return &v.slow }),
	keyLiveTargets:  messages(func(v *view) *map[string]*api.Agent { return &v.liveTargets }),
	keyLiveDrains:   messages(func(v *view) *map[string]*api.Agent { return &v.liveDrains }),
	keyEpochs: entries[uint32]{func(v *view) *map[string]uint32 { return &v.epochs }, func(key string, value []byte) (uint32, error) {
		epoch, err := strconv.ParseUint(string(value), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("decode etcd key %q: %q is not an epoch", key, value)
		}
		return uint32(epoch), nil
	}},
}
