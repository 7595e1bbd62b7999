// Package target owns a directory of regions on one host: it makes the rings that the control plane wants of it, tells
// the control plane what it sees of them once a second, and keeps doing what it knows when there is no control plane.
// A ring that is there is never formatted again, and bytes that are not a ring of ours are never overwritten.
package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/filelock"
	"github.com/farlog/farlog/pkg/nvmet"
)

const (
	intervalDefault = time.Second
	reportTimeout   = 3 * time.Second
	lockName        = "target.lock"

	// Looks at the rings for each report that is due anyway. What an operator asks status about, a writer that came or
	// went, is reported at the look that finds it.
	looksPerReport = 4
)

// Config is what a target needs. All fields but CountersDir, Interval, ClockJump, OnReport and OnRing are required.
type Config struct {
	Dir         string // holds the rings; made when it is missing
	Agent       *api.Agent
	Control     grpc.ClientConnInterface
	Logger      *slog.Logger
	CountersDir string        // of the writers on this host; "" = the C core's default
	Interval    time.Duration // between two reports when nothing happens; 0 = 1 s
	// mem: or nvme: URIs of regions that hold many rings each; those of nvme: serve this host alone; empty: every ring
	// has a file in Dir
	Regions []string
	Listen  []string // for clients on other hosts: ofi:tcp://host:port, verbs://host:port
	// the host that those dial; "" = that of Listen, and the agent's where Listen is at all addresses
	Advertise string

	Attestations    []Attestation // of Regions, for writers here and for those that Listen lets in
	AttestationFile string        // where they were read, for errors and the log

	Exports *nvmet.Keeper // keeps the namespaces that the fabric declares of this host; nil: none are

	ClockJump func() string // the last jump of this host's clock, for a while; nil: nobody looks

	OnReport func(error) // receives what came of each report; nil: nobody does. Called by one goroutine
	OnRing   func()      // called before a look at each ring, which may have to be made; nil: nobody is told
}

// Target is one target daemon. Run is called once; the other methods may be called from any goroutine.
type Target struct {
	config Config
	lock   *os.File
	client api.TargetServiceClient
	look   chan struct{} // asks for a look before its time, because something new is wanted
	probe  chan struct{} // asks what namespaces give before its time
	remote *remoteServer
	// reporter is of the goroutine that looks.
	reporter *api.Reporter[*api.TargetState]

	declared *api.WatchRingsResponse // has what was declared last of this host; nil: not known. Of who follows

	// granted is the ledger of who was granted rings in namespaces; hasLedger says that it has a file. Of who follows.
	granted   map[ledgerKey]*api.RingSpec
	hasLedger bool

	mutex  sync.Mutex
	wanted []*api.RingSpec
	seen   []Ring
	media  []*api.MediaHealth
	// regions is what each of the places for rings gives.
	regions []*api.Region
	// exported are the namespaces that are declared of this host, by subsystem, and spaces what each gives, by device.
	exported map[string]*api.Namespace
	spaces   map[string]namespaceSpace
	out      map[outHost]uint32 // the epoch up to which a host writes no more, which has opened none of them
	// written counts, by region, the bytes of records that were appended there since this process looks.
	written map[string]uint64

	// by URI, how far looks at a ring have come: what is undrained is not read again at each; of the goroutine that
	// looks
	marks map[string]*farlog.Inspector
	// by stream, the uuid of the ring that was there at the last look that found one; of the goroutine that looks
	provided map[string][]byte

	flushes     flushes     // of the goroutine that looks
	denials     denials     // of the same
	troubles    troubles    // of the same
	isConnected atomic.Bool // the last report reached the control plane
	isUnsaved   atomic.Bool // what is wanted would not be known after a restart

	now    func() time.Time
	unmade map[string]*unmade // by stream; of the mutex
	makers sync.WaitGroup     // of rings that could not be made at once
}

// New takes the directory. It fails when another target holds it, and says which.
func New(config Config) (*Target, error) {
	config.Interval = cmp.Or(config.Interval, intervalDefault)
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, fmt.Errorf("find ring directory %q: %w", config.Dir, err)
	}
	config.Dir = dir
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("create ring directory %q: %w", dir, errors.Unwrap(err))
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	t := &Target{
		config: config, lock: lock, client: api.NewTargetServiceClient(config.Control),
		look: make(chan struct{}, 1), probe: make(chan struct{}, 1), out: make(map[outHost]uint32),
		granted: make(map[ledgerKey]*api.RingSpec),
		marks:   make(map[string]*farlog.Inspector), provided: make(map[string][]byte),
		now: time.Now, unmade: make(map[string]*unmade),
	}
	t.reporter = t.newReporter()
	t.remote, err = openRemoteServer(config.Listen, config.Advertise, config.Agent.Host, t.requestReport)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	t.config.Regions = attestedRegions(config.Regions, config.Attestations)
	if err = t.remote.attest(config.AttestationFile, config.Attestations); err == nil {
		err = probeAttested(config.AttestationFile, config.Regions, t.config.Regions)
	}
	if err != nil {
		t.remote.close()
		_ = lock.Close()
		return nil, err
	}
	t.logAttestations()
	t.probeRegions()
	t.logRegions()
	return t, nil
}

// requestReport makes the next look come at once, and be reported.
func (t *Target) requestReport() {
	select {
	case t.look <- struct{}{}:
	default: // one is asked for already
	}
}

// Run works until ctx is done. It returns no error of the control plane or of a ring: those are reported and tried
// again.
func (t *Target) Run(ctx context.Context) error {
	defer t.lock.Close()
	defer t.remote.close()
	defer t.makers.Wait()
	var workers sync.WaitGroup
	defer workers.Wait()
	t.restore()
	workers.Go(func() { t.followSpecs(ctx) })
	workers.Go(func() { t.watchMedia(ctx) })
	workers.Go(func() { t.watchRegions(ctx) })
	tick := time.NewTicker(t.config.Interval / looksPerReport)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		before := t.Rings()
		t.observe()
		t.remote.logRefusals(t.config.Logger, time.Now())
		if looks%looksPerReport == 0 || isNews(before, t.Rings()) {
			t.report(ctx)
		}
		select {
		case <-tick.C:
		case <-t.look:
			looks = -1 // reported whatever it shows
		case <-ctx.Done():
			return nil
		}
	}
}

// Rings is what was last seen, for metrics. The result must not be changed.
func (t *Target) Rings() []Ring {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.seen
}

// IsConnected reports whether the last report reached the control plane.
func (t *Target) IsConnected() bool { return t.isConnected.Load() }

func (t *Target) followSpecs(ctx context.Context) {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchRingsResponse], error) {
		return t.client.WatchRings(ctx, &api.WatchRingsRequest{Agent: t.agent()})
	}
	api.Follow(ctx, open, t.applyWanted, func(err error) {
		t.config.Logger.Warn("control plane unreachable, keeping the present rings", "error", err)
	})
}

// applyWanted makes a message of the control plane what is wanted. Called by one goroutine.
func (t *Target) applyWanted(message *api.WatchRingsResponse) {
	carryFenced(t.wanted, message.Rings) // nobody else stores to wanted
	t.carryNamespaces(message)
	t.followGrants(message)
	// Kept first: who has been told of a grant must find it here also after a restart.
	err := errors.Join(t.rememberGrants(), t.remember(wantedName, message))
	t.isUnsaved.Store(err != nil)
	if err != nil {
		t.config.Logger.Warn("the list of wanted rings could not be saved for a restart", "error", err)
	}
	t.declareNamespaces(message) // first: rings lie in them
	t.mutex.Lock()
	t.wanted = message.Rings
	t.mutex.Unlock()
	t.requestReport()
}

// observe makes what is wanted and missing, and looks at every ring: those wanted and those found in the directory,
// which a target whose control plane is down still serves.
func (t *Target) observe() {
	t.mutex.Lock()
	wanted, before := t.wanted, t.seen
	t.mutex.Unlock()
	seen := make([]Ring, 0, len(wanted))
	known := make(map[string]bool, len(wanted))
	t.forgetUnmade(wanted)
	for _, spec := range wanted {
		t.noteRing()
		if spec.Deletion != api.DeletionStage_DELETION_STAGE_UNSPECIFIED && !t.isMaking(spec) {
			at := t.siteOf(spec)
			known[at.path] = true
			seen = append(seen, t.end(spec, at, before))
			continue
		}
		at, err := t.ensure(spec)
		known[at.path] = true
		if errors.Is(err, errMissing) || errors.Is(err, errReplaced) {
			t.remote.drop(spec.Stream.Spec.Name) // who is let in writes to a file that nobody finds
		}
		ring := t.describeRing(spec.Stream.Spec.Name, at, err, before)
		if spec.Subsystem != "" {
			ring = t.admitToNamespace(spec, ring)
		}
		ring = t.acceptLoss(spec, t.fence(spec, ring))
		if len(ring.State.RingUuid) > 0 && spec.Subsystem == "" {
			t.remote.setWanted(spec, ring.State.Uri, ring.State.RingUuid)
		}
		t.remote.describe(ring.State)
		if !t.isUnmade(spec) { // which is logged already
			t.troubles.logNew(ring.State, t.config.Logger, t.now())
		}
		t.flushes.describe(ring.State, t.remote.flushCounters(ring.State.Stream), t.config.Logger)
		t.denials.describe(ring.State, t.remote.counters(ring.State.Stream), t.config.Logger, t.now())
		seen = append(seen, ring)
	}
	for _, path := range t.found() {
		if name, ok := streamOf(path); ok && !known[path] {
			t.noteRing()
			seen = append(seen, t.describeRing(name, fileSite(path), nil, before))
		}
	}
	uris, streams := make(map[string]bool, len(seen)), make(map[string]bool, len(seen))
	for _, ring := range seen {
		uris[ring.State.Uri], streams[ring.State.Stream] = true, true
		if len(ring.State.RingUuid) > 0 {
			t.provided[ring.State.Stream] = ring.State.RingUuid
		}
	}
	maps.DeleteFunc(t.marks, func(uri string, _ *farlog.Inspector) bool { return !uris[uri] })
	maps.DeleteFunc(t.troubles.logged, func(stream string, _ trouble) bool { return !streams[stream] })
	maps.DeleteFunc(t.denials.seen, func(stream string, _ denied) bool { return !streams[stream] })
	t.mutex.Lock()
	t.countWritten(before, seen)
	t.seen = seen
	t.mutex.Unlock()
}

// noteRing says that the look goes on, with another ring.
func (t *Target) noteRing() {
	if t.config.OnRing != nil {
		t.config.OnRing()
	}
}

// isNews reports whether anything but figures differs between two looks: rings appeared, failed, or changed hands.
// Cursors that move are no news: they move all the time.
func isNews(before, after []Ring) bool {
	return !slices.EqualFunc(before, after, func(a, b Ring) bool { return api.IsSameRing(a.State, b.State) })
}

func (t *Target) report(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	state := &api.TargetState{
		Agent: t.agent(), ReportTime: timestamppb.Now(), Media: t.Media(), Namespaces: t.namespaces(),
	}
	for _, ring := range t.Rings() {
		state.Rings = append(state.Rings, ring.State)
	}
	err := t.reporter.Report(ctx, state)
	t.isConnected.Store(err == nil)
	if t.config.OnReport != nil {
		t.config.OnReport(err)
	}
}

func (t *Target) newReporter() *api.Reporter[*api.TargetState] {
	return &api.Reporter[*api.TargetState]{
		IsSame: func(told, now *api.TargetState) bool {
			return api.IsSameTarget(told, now) && api.AreSameMarks(told.Rings, now.Rings)
		},
		Send: func(ctx context.Context, state *api.TargetState, unchanged *api.Unchanged) (api.ReportAnswer, error) {
			return t.client.ReportTarget(ctx, &api.ReportTargetRequest{State: state, Unchanged: unchanged})
		},
	}
}

// lockDir keeps two targets out of one directory, until the file is closed.
func lockDir(dir string) (*os.File, error) {
	lock, err := filelock.Acquire(filepath.Join(dir, lockName), fmt.Sprintf("pid=%d", os.Getpid()))
	var held *filelock.HeldError
	if errors.As(err, &held) {
		return nil, fmt.Errorf("ring directory %q is held by another target (%s): stop it, or give another --data-dir",
			dir, held.Holder)
	}
	if err != nil {
		return nil, fmt.Errorf("lock ring directory: %w", err)
	}
	return lock, nil
}
