// Package state is what is in etcd, decoded and followed: a view at one revision, indices of it, who is told of its
// changes, and what can be read off a view alone, such as the condition of a stream.
package state

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
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// mirrorRetryDelay is how long a broken watch of etcd waits before it starts over.
const mirrorRetryDelay = 200 * time.Millisecond

// readPage is how many keys are read at once.
const readPage = 1000

// View is everything in etcd, decoded, at one revision. A view is never changed after it was published, so that
// readers need no lock; its messages must not be changed either.
type View struct {
	Revision       int64
	FabricRevision int64 // of the last change of what is declared: streams, their ends, targets, drains and routes
	RouteRevision  int64 // of the last change of a route, or of the end of one that was seen
	Streams        map[string]*api.Stream
	TargetSpecs    map[string]*api.TargetSpec
	DrainSpecs     map[string]*api.DrainSpec
	Tenants        map[string]*api.TenantSpec
	Routes         map[string]*api.Route
	Rings          map[string]*api.RingSpec
	Assignments    map[string]*api.Assignment
	Admissions     map[string]*api.Admission
	Deletions      map[string]*api.Deletion
	Epochs         map[string]uint32
	Grants         map[string]*api.Grant
	Targets        map[string]*api.TargetState
	Drains         map[string]*api.DrainState
	Hosts          map[string]*api.HostState
	Slow           map[string]*api.SlowConsumer
	Anchors        map[string]*api.StoreAnchor // also of streams that were deleted
	LiveTargets    map[string]*api.Agent
	LiveDrains     map[string]*api.Agent

	targetRings  partsOf[*api.RingState]
	drainStreams partsOf[*api.DrainProgress]

	// by name: what its agent told this instance last, of which figures reach etcd only now and then
	HostsTold map[string]*api.HostState
	Unstored  map[string]string // by an agent's key: why this instance could not store its last report

	RingsAt index            // by target: the keys of the rings that are wanted of it
	GivenTo index            // by drain: the streams that it is given
	Leases  map[string]int64 // by the key of an agent's life: its lease in etcd

	owned map[string]bool // prefixes whose maps are not shared with the view before; nil: all of them

	measured  sync.Once // space and loads, when they are asked for first
	freeSpace map[string]uint64
	loads     map[string]int
	slowOnce  sync.Once // slowOf, as well
	slowOf    map[string][]*api.SlowConsumer
}

// Mirror follows etcd by a watch and publishes a view after each change. Any goroutine may read.
type Mirror struct {
	client  *clientv3.Client
	logger  *slog.Logger
	History *history
	Synced  atomic.Bool // false while etcd cannot be followed: the view is old

	writing sync.Mutex // held from the copy of a view to its publication

	mutex   sync.Mutex
	current *View
	changed chan struct{} // closed and replaced at each publication
	// by the key of an agent's life: closed and forgotten when it is to be told something else
	told           map[string]chan struct{}
	streamsChanged changes
	subscriptions  map[string]map[*Subscription]bool // by host
	dirt           reconcile.Dirt                    // since TakeDirt
	Dirty          chan struct{}                     // has space for one signal: there is dirt
}

// NewMirror makes a mirror that shows nothing until Run follows etcd.
func NewMirror(client *clientv3.Client, logger *slog.Logger) *Mirror {
	return &Mirror{
		client: client, logger: logger, History: newHistory(), current: NewView(),
		changed: make(chan struct{}), told: map[string]chan struct{}{}, Dirty: make(chan struct{}, 1),
		subscriptions: map[string]map[*Subscription]bool{}, streamsChanged: changes{at: map[string]int64{}},
	}
}

// Load returns the present view, and a channel that is closed when there is a newer one.
func (m *Mirror) Load() (*View, <-chan struct{}) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.current, m.changed
}

// Wait returns the first view for which done is true, or the error of ctx.
func (m *Mirror) Wait(ctx context.Context, done func(*View) bool) (*View, error) {
	for {
		now, changed := m.Load()
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

// WaitRevision makes a reader see what it has just written, or read. Where no event comes of that revision, as in an
// etcd that has other users, one of our own behind it does.
func (m *Mirror) WaitRevision(ctx context.Context, revision int64) error {
	for pause := mirrorRetryDelay; ; pause *= 2 {
		brief, cancel := context.WithTimeout(ctx, pause)
		_, err := m.Wait(brief, func(v *View) bool { return v.Revision >= revision })
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, err := m.client.Put(ctx, etcd.KeySeen, ""); err != nil {
			m.logger.Debug("no event could be created for a waiting reader", "error", err)
		}
	}
}

// Run follows etcd until ctx is done. A compacted or broken watch starts over with a full read.
func (m *Mirror) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.follow(ctx)
		m.Synced.Store(false)
		if ctx.Err() == nil {
			m.logger.Warn("watch of etcd broken, resyncing", "error", err)
		}
		select {
		case <-time.After(mirrorRetryDelay):
		case <-ctx.Done():
		}
	}
}

func (m *Mirror) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	first, err := m.readAll(ctx)
	if err != nil {
		return fmt.Errorf("read etcd: %w", err)
	}
	m.writing.Lock()
	m.publish(first, nil)
	m.writing.Unlock()
	m.Synced.Store(true)
	watch := m.client.Watch(ctx, etcd.KeyRoot, clientv3.WithPrefix(), clientv3.WithRev(first.Revision+1))
	for response := range watch {
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		m.applyEvents(&response)
	}
	return fmt.Errorf("watch etcd: ended")
}

// readAll reads everything as it is at one revision, page by page: all of it at once would be in memory twice.
func (m *Mirror) readAll(ctx context.Context) (*View, error) {
	next, from, end := NewView(), etcd.KeyRoot, clientv3.GetPrefixRangeEnd(etcd.KeyRoot)
	for {
		page, err := m.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(readPage),
			clientv3.WithRev(next.Revision))
		if err != nil {
			return nil, err
		}
		if next.Revision == 0 {
			next.Revision = page.Header.Revision
			m.History.begin(next.Revision)
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

// applyEvents publishes what a message of the watch changes.
func (m *Mirror) applyEvents(response *clientv3.WatchResponse) {
	m.writing.Lock()
	defer m.writing.Unlock()
	now, _ := m.Load()
	next, touched := now.Clone(), newTouched()
	next.Revision = max(now.Revision, revisionOf(response))
	for _, event := range response.Events {
		key := string(event.Kv.Key)
		prefix, name := etcd.CutKey(key)
		reported, ring, drain := next.Targets[name], next.Rings[name], next.Drains[name]
		seen := next.targetRings.part(name)
		touched.note(next, prefix, name)
		if event.Type == clientv3.EventTypeDelete {
			m.History.touch(next, key, event.Kv.ModRevision)
			m.History.forgotten(next, key, event.Kv.ModRevision)
			next.remove(key)
			next.declaredAt(key, event.Kv.ModRevision)
		} else {
			m.apply(next, event.Kv)
		}
		touched.note(next, prefix, name)
		switch {
		case prefix == etcd.KeyTargets:
			touched.noteReport(next, name, reported, next.Targets[name])
		case prefix == etcd.KeyTargetRings:
			target, _ := cutPart(name)
			touched.noteRing(next, target, seen, next.targetRings.part(name))
		case prefix == etcd.KeyDrains && !proto.Equal(drain.GetAgent(), next.Drains[name].GetAgent()):
			touched.touchTargetsOf(next, name)
		case prefix == etcd.KeyRings && ring != nil && ring.Target != next.Rings[name].GetTarget():
			touched.TouchUnsettled() // it leaves space for others
		}
	}
	m.History.shorten(next)
	m.publish(next, touched)
}

// publish makes a view the present one. touched is nil where everything may be another.
func (m *Mirror) publish(next *View, touched *touched) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.current = next
	close(m.changed)
	m.changed = make(chan struct{})
	m.notify(next, touched)
	if touched == nil {
		touched = newTouched()
		touched.TouchAll()
		for agent := range m.told {
			touched.agents[agent] = true
		}
	}
	for agent := range m.told {
		if touched.isEveryTarget && strings.HasPrefix(agent, etcd.KeyLiveTargets) {
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
		case m.Dirty <- struct{}{}:
		default: // it is said already
		}
	}
}

// LoadFor is load for who only asks what an agent is told: the channel is closed when that may have become something
// else.
func (m *Mirror) LoadFor(agent string) (*View, <-chan struct{}) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.told[agent] == nil {
		m.told[agent] = make(chan struct{})
	}
	return m.current, m.told[agent]
}

// TakeDirt returns the present view, and what has changed since the last call.
func (m *Mirror) TakeDirt() (*View, reconcile.Dirt) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	dirt := m.dirt
	m.dirt = reconcile.Dirt{}
	return m.current, dirt
}

// IsClean reports whether nothing has changed since TakeDirt.
func (m *Mirror) IsClean() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.dirt.IsClean()
}

// Show puts something into the present view that is not in etcd, and wakes nobody: what is waited for is in etcd.
func (m *Mirror) Show(change func(now, next *View) (isShown bool)) {
	m.writing.Lock()
	defer m.writing.Unlock()
	now, _ := m.Load()
	next := now.Clone()
	if change(now, next) {
		m.mutex.Lock()
		m.current = next
		m.mutex.Unlock()
	}
}

// apply puts one key into a view. A value that cannot be read is reported and left out: one bad key must not blind
// the control plane to all others.
func (m *Mirror) apply(v *View, kv *mvccpb.KeyValue) {
	m.History.touch(v, string(kv.Key), kv.ModRevision)
	if err := v.Put(string(kv.Key), kv.Value); err != nil {
		m.logger.Error("skip unreadable state", "error", err)
		return
	}
	m.History.touch(v, string(kv.Key), kv.ModRevision)
	name, isStream := strings.CutPrefix(string(kv.Key), etcd.KeyStreams)
	if isStream {
		v.Streams[name].Revision = kv.ModRevision
	}
	gone, isDeletion := strings.CutPrefix(string(kv.Key), etcd.KeyDeletions)
	if isDeletion {
		v.Deletions[gone].Revision = kv.ModRevision
	}
	if route, isRoute := strings.CutPrefix(string(kv.Key), etcd.KeyRoutes); isRoute {
		v.Routes[route].Revision = kv.ModRevision
	}
	if isStream || isDeletion {
		v.FabricRevision = max(v.FabricRevision, kv.ModRevision)
	}
	v.declaredAt(string(kv.Key), kv.ModRevision)
	if prefix, _ := etcd.CutKey(string(kv.Key)); prefix == etcd.KeyLiveTargets || prefix == etcd.KeyLiveDrains {
		v.Leases = maps.Clone(v.Leases) // as many as there are agents, and changed when one begins
		v.Leases[string(kv.Key)] = kv.Lease
	}
}

// declaredAt remembers when targets, drains and routes changed or ended. Of streams the end of their deletion is that.
func (v *View) declaredAt(key string, revision int64) {
	if strings.HasPrefix(key, etcd.KeyTargetSpecs) || strings.HasPrefix(key, etcd.KeyTenants) ||
		strings.HasPrefix(key, etcd.KeyDrainSpecs) || strings.HasPrefix(key, etcd.KeyRoutes) {
		v.FabricRevision = max(v.FabricRevision, revision)
	}
	if strings.HasPrefix(key, etcd.KeyRoutes) {
		v.RouteRevision = max(v.RouteRevision, revision)
	}
}

// NewView makes an empty view.
func NewView() *View {
	v := &View{Leases: map[string]int64{}, Unstored: map[string]string{}, HostsTold: map[string]*api.HostState{}}
	for _, kind := range kinds {
		kind.begin(v)
	}
	return v
}

// Clone shares every map with the view before until one of its entries changes: most changes are reports, and there may
// be thousands of streams.
func (v *View) Clone() *View {
	next := &View{
		Revision: v.Revision, FabricRevision: v.FabricRevision, RouteRevision: v.RouteRevision,
		owned: map[string]bool{}, Leases: v.Leases, Unstored: v.Unstored, HostsTold: v.HostsTold,
	}
	for _, kind := range kinds {
		kind.share(next, v)
	}
	next.RingsAt.share(v.RingsAt)
	next.GivenTo.share(v.GivenTo)
	return next
}

// kindOf finds what a key holds, and makes its map this view's alone; nil: nothing that a view has.
func (v *View) kindOf(key string) (kind, string) {
	prefix, name := etcd.CutKey(key)
	found := kinds[prefix]
	if found != nil && v.owned != nil && !v.owned[prefix] {
		v.owned[prefix] = true
		found.own(v)
	}
	return found, name
}

// Put decodes the value of a key into a view that was not published yet.
func (v *View) Put(key string, value []byte) (err error) {
	kind, name := v.kindOf(key)
	if kind == nil {
		return nil
	}
	prefix, _ := etcd.CutKey(key)
	v.reindex(prefix, name, func() { err = kind.put(v, key, name, value) })
	return err
}

func (v *View) remove(key string) {
	if kind, name := v.kindOf(key); kind != nil {
		prefix, _ := etcd.CutKey(key)
		v.reindex(prefix, name, func() { kind.remove(v, name) })
	}
}

// kind is what lies under one prefix of etcd: a map of a view.
type kind interface {
	begin(v *View)
	share(next, v *View)
	own(v *View)
	put(v *View, key, name string, value []byte) error
	remove(v *View, name string)
}

// entries is a kind whose values are V.
type entries[V any] struct {
	of   func(*View) *map[string]V
	read func(key string, value []byte) (V, error)
}

func (e entries[V]) begin(v *View)               { *e.of(v) = map[string]V{} }
func (e entries[V]) share(next, v *View)         { *e.of(next) = *e.of(v) }
func (e entries[V]) own(v *View)                 { *e.of(v) = maps.Clone(*e.of(v)) }
func (e entries[V]) remove(v *View, name string) { delete(*e.of(v), name) }

func (e entries[V]) put(v *View, key, name string, value []byte) error {
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
}](of func(*View) *map[string]P) kind {
	return entries[P]{of, func(key string, value []byte) (P, error) {
		message := P(new(M))
		return message, etcd.Decode(key, value, message)
	}}
}

var kinds = map[string]kind{
	etcd.KeyStreams:      messages(func(v *View) *map[string]*api.Stream { return &v.Streams }),
	etcd.KeyTargetSpecs:  messages(func(v *View) *map[string]*api.TargetSpec { return &v.TargetSpecs }),
	etcd.KeyDrainSpecs:   messages(func(v *View) *map[string]*api.DrainSpec { return &v.DrainSpecs }),
	etcd.KeyTenants:      messages(func(v *View) *map[string]*api.TenantSpec { return &v.Tenants }),
	etcd.KeyRoutes:       messages(func(v *View) *map[string]*api.Route { return &v.Routes }),
	etcd.KeyRings:        messages(func(v *View) *map[string]*api.RingSpec { return &v.Rings }),
	etcd.KeyAssignments:  messages(func(v *View) *map[string]*api.Assignment { return &v.Assignments }),
	etcd.KeyDeletions:    messages(func(v *View) *map[string]*api.Deletion { return &v.Deletions }),
	etcd.KeyAdmissions:   messages(func(v *View) *map[string]*api.Admission { return &v.Admissions }),
	etcd.KeyGrants:       messages(func(v *View) *map[string]*api.Grant { return &v.Grants }),
	etcd.KeyTargets:      headKeys[*api.TargetState, *api.RingState]{&TargetKind},
	etcd.KeyTargetRings:  partKeys[*api.TargetState, *api.RingState]{&TargetKind},
	etcd.KeyDrains:       headKeys[*api.DrainState, *api.DrainProgress]{&DrainKind},
	etcd.KeyDrainStreams: partKeys[*api.DrainState, *api.DrainProgress]{&DrainKind},
	etcd.KeyHosts:        messages(func(v *View) *map[string]*api.HostState { return &v.Hosts }),
	etcd.KeySlow:         messages(func(v *View) *map[string]*api.SlowConsumer { return &v.Slow }),
	etcd.KeyAnchors:      messages(func(v *View) *map[string]*api.StoreAnchor { return &v.Anchors }),
	etcd.KeyLiveTargets:  messages(func(v *View) *map[string]*api.Agent { return &v.LiveTargets }),
	etcd.KeyLiveDrains:   messages(func(v *View) *map[string]*api.Agent { return &v.LiveDrains }),
	etcd.KeyEpochs: entries[uint32]{
		func(v *View) *map[string]uint32 { return &v.Epochs },
		func(key string, value []byte) (uint32, error) {
			epoch, err := strconv.ParseUint(string(value), 10, 32)
			if err != nil {
				return 0, fmt.Errorf("decode etcd key %q: %q is not an epoch", key, value)
			}
			return uint32(epoch), nil
		},
	},
}
