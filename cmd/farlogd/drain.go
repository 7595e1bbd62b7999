//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/metrics"
	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

const (
	drainReportInterval = time.Second
	drainReportTimeout  = 3 * time.Second
	drainRetryLeast     = 100 * time.Millisecond
	drainRetryMost      = 5 * time.Second
	drainRetryAsTwin    = time.Minute // when another drain has the same token: each opening ends the other one's
	drainSayAgain       = time.Minute // while one fails for the same reason, its log tells so again
	assignmentsName     = "drain-assignments.json"
)

// drainRole runs one drain for each ring that the control plane gave it. The last word of the control plane is kept in
// a file: after a restart without one, draining goes on. That another drain may have the ring meanwhile does no harm:
// the ring's drain lock lets only one in.
type drainRole struct {
	settings *settings
	agent    *api.Agent
	client   api.DrainServiceClient
	store    *store.Store
	tails    *drain.Tails
	metrics  *metrics.Drain
	scrub    *scrub
	merging  *merging
	signing  *signingNote
	logger   *slog.Logger
	path     string        // of the file with the last assignments
	sayAgain time.Duration // as drainSayAgain

	clockJump func() string // the last one of this host, for a while

	isConnected atomic.Bool
	link        *controlLink
	mutex       sync.Mutex
	workers     map[string]*drainWorker    // by ring: stream, uri, uuid and token
	ending      map[string]<-chan struct{} // closed when the last worker of a stream that was stopped has ended
	running     sync.WaitGroup
}

// drainWorker drains one ring, again and again until it is stopped.
type drainWorker struct {
	assignment *api.Assignment
	stop       context.CancelFunc
	done       chan struct{}

	mutex    sync.Mutex
	progress drain.Progress
	appender *store.Appender // of the last run; nil: it has opened none yet
	failure  string          // why the last run ended; "" while one is going well
	isGap    bool            // it ended before something that is missing
	lacks    bool            // its stream lacks a file in the store
}

func (d *daemon) openDrain(context.Context) error {
	if err := d.lockRole(roleDrain); err != nil {
		return err
	}
	opened, err := openOwnStore(d.settings, d.logger)
	if err != nil {
		return err
	}
	conn, err := d.dial(identity.KindDrain)
	if err != nil {
		return err
	}
	agent, uuid := d.agent(d.settings.dataDir), opened.UUID()
	d.warnOfAddresses()
	agent.StoreUuid, agent.StoreDir, agent.Transport = uuid[:], opened.Dir(), d.settings.drainTransport
	role := &drainRole{
		settings: d.settings, agent: agent, client: api.NewDrainServiceClient(conn), store: opened,
		tails:  drain.NewTails(),
		logger: d.logger.With("role", roleDrain), path: d.dir(assignmentsName), sayAgain: drainSayAgain,
		workers: make(map[string]*drainWorker),
		ending:  make(map[string]<-chan struct{}), link: d.newLink(roleDrain),
	}
	role.clockJump = d.clock.recent
	role.metrics = metrics.NewDrain(d.registry, role.samples)
	role.scrub = &scrub{store: opened, interval: d.settings.verifyInterval, logger: role.logger}
	metrics.NewStore(d.registry, role.scrub.sample)
	role.signing = &signingNote{store: opened, logger: role.logger}
	role.merging = &merging{store: opened, late: d.settings.mergeLate, logger: role.logger}
	metrics.NewMerge(d.registry, role.merging.sample)
	metrics.NewAgent(d.registry, roleDrain, role.isConnected.Load)
	d.parts = append(d.parts, part{run: role.run, healthy: role.healthy, close: conn.Close})
	return d.serveStore(opened)
}

func (r *drainRole) run(ctx context.Context, ready func()) error {
	remembered, err := r.recall()
	if err != nil {
		r.logger.Warn("last assignments are not known, waiting for the control plane", "file", r.path, "error", err)
	}
	r.apply(ctx, remembered)
	ready()
	var workers sync.WaitGroup
	workers.Go(func() { r.follow(ctx) })
	workers.Go(func() { r.report(ctx) })
	workers.Go(func() { r.scrub.run(ctx) })
	workers.Go(func() { r.merging.run(ctx) })
	workers.Go(func() { r.retain(ctx) })
	workers.Go(func() { r.watchSegments(ctx) })
	workers.Wait()
	r.apply(ctx, nil)
	r.running.Wait()
	return nil
}

// self is this drain as it is now: its host may get other addresses while it runs.
func (r *drainRole) self() *api.Agent {
	agent := proto.Clone(r.agent).(*api.Agent)
	agent.Addresses, agent.ClockJump = identity.Addresses(r.settings.hostAddresses), r.clockJump()
	return agent
}

func (r *drainRole) follow(ctx context.Context) {
	open := func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchAssignmentsResponse], error) {
		return r.client.WatchAssignments(ctx, &api.WatchAssignmentsRequest{Agent: r.self(), StoreDir: r.store.Dir()})
	}
	api.Follow(ctx, open, func(message *api.WatchAssignmentsResponse) {
		r.apply(ctx, message.Assignments)
		if err := r.remember(message); err != nil {
			r.logger.Warn("assignments could not be saved for a restart", "file", r.path, "error", err)
		}
	}, func(err error) {
		r.logger.Warn("control plane unreachable, draining continues", "error", err)
	})
}

// apply starts and stops workers until they are those of the list. A new worker of a stream begins when the one before
// it has ended: that has synced the store and moved the head, or will not. Other streams do not wait for it.
func (r *drainRole) apply(ctx context.Context, assignments []*api.Assignment) {
	wanted := make(map[string]*api.Assignment, len(assignments))
	for _, assignment := range assignments {
		// Assignments remembered from before a change of --store-dir are not this store's to drain.
		if uuid := assignment.StoreUuid; len(uuid) > 0 && !bytes.Equal(uuid, r.agent.StoreUuid) {
			r.logger.Warn("stream belongs to another store, leaving it", "stream", assignment.Stream, "store",
				assignment.StoreDir)
			continue
		}
		wanted[ringKey(assignment)] = assignment
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for key, worker := range r.workers {
		if wanted[key] == nil {
			worker.stop()
			r.ending[worker.assignment.Stream] = worker.done
			delete(r.workers, key)
		}
	}
	for key, assignment := range wanted {
		if r.workers[key] == nil {
			r.workers[key] = r.start(ctx, assignment, r.ending[assignment.Stream])
		}
	}
}

// start begins a worker when the one before it, if any, has ended.
func (r *drainRole) start(ctx context.Context, assignment *api.Assignment, before <-chan struct{}) *drainWorker {
	ctx, stop := context.WithCancel(ctx)
	r.metrics.OnStart(assignment.Stream)
	worker := &drainWorker{assignment: assignment, stop: stop, done: make(chan struct{})}
	r.running.Go(func() {
		defer close(worker.done)
		if before != nil {
			<-before
		}
		r.supervise(ctx, worker)
	})
	return worker
}

// supervise runs the drain and begins it again, with backoff, when it ends with an error. A failure is logged when it
// is not the one before, and again every minute for as long as it stays: who looks at the end of a log has to find it.
func (r *drainRole) supervise(ctx context.Context, worker *drainWorker) {
	delays, last := retry.New(drainRetryLeast, drainRetryMost), failureSaid{again: r.sayAgain}
	for ctx.Err() == nil {
		began := time.Now()
		config := r.drainConfig(worker)
		config.IsRetry = last.text != ""
		err := drain.Run(ctx, config)
		if ctx.Err() != nil {
			if err != nil {
				r.logger.Error("drain failed", "stream", worker.assignment.Stream, "error", err)
			}
			return
		}
		if time.Since(began) > drainRetryMost {
			delays.Reset()
			last.since = time.Time{}
		}
		pause := delays.NextBackOff()
		if errors.Is(err, drain.ErrSuperseded) {
			pause = drainRetryAsTwin
		}
		text := "drain ended without a reason"
		if err != nil {
			text = oneLine(err)
		}
		worker.fail(text, err)
		r.metrics.OnRestart(worker.assignment.Stream)
		if last.isDue(text, time.Now()) {
			r.logger.Error("drain failed, retrying", "stream", worker.assignment.Stream, "error", text,
				"failing_for", last.age())
		}
		_ = retry.Sleep(ctx, pause) // the loop sees that it is over
	}
}

// failureSaid is what the log was told last of a worker that fails again and again.
type failureSaid struct {
	again       time.Duration
	text        string
	since, said time.Time
}

// isDue reports whether the log is to be told: of another failure, or of the same one now and then.
func (f *failureSaid) isDue(text string, now time.Time) bool {
	if f.since.IsZero() {
		f.since = now
	}
	if text == f.text && now.Sub(f.said) < f.again {
		return false
	}
	f.text, f.said = text, now
	return true
}

func (f *failureSaid) age() time.Duration { return f.said.Sub(f.since).Round(time.Second) }

func (r *drainRole) drainConfig(worker *drainWorker) drain.Config {
	stream, batches := worker.assignment.Stream, uint64(0)
	config := drain.Config{
		RingURI: worker.assignment.Uri, Stream: stream, Store: r.store, Logger: r.logger,
		BatchBytes: int(r.settings.batchBytes), PollInterval: r.settings.pollInterval, Tails: r.tails,
		OnOpen: worker.keepAppender,
		OnProgress: func(progress drain.Progress) {
			worker.setProgress(progress)
			if progress.Batches > batches {
				batches = progress.Batches
				r.metrics.OnSync(stream, progress.SyncDuration)
			}
		},
	}
	config.LostLSN = worker.assignment.LostStore.GetLsn()
	copy(config.RingUUID[:], worker.assignment.RingUuid)
	if token := worker.assignment.Token; len(token) == farlog.TokenLen {
		config.Token = (*[farlog.TokenLen]byte)(token)
	}
	for _, member := range worker.assignment.Members {
		one := farlog.Member{}
		copy(one.RingUUID[:], member.RingUuid)
		copy(one.Token[:], member.Token)
		config.Members = append(config.Members, one)
	}
	return config
}

func (r *drainRole) report(ctx context.Context) {
	reporter := &api.Reporter[*api.DrainState]{
		IsSame: api.IsSameDrain,
		Send: func(ctx context.Context, state *api.DrainState, unchanged *api.Unchanged) (api.ReportAnswer, error) {
			return r.client.ReportDrain(ctx, &api.ReportDrainRequest{State: state, Unchanged: unchanged})
		},
	}
	tick := time.NewTicker(drainReportInterval)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, drainReportTimeout)
		err := reporter.Report(call, r.state())
		cancel()
		r.isConnected.Store(err == nil)
		r.link.note(err)
		r.signing.look()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *drainRole) state() *api.DrainState {
	state := &api.DrainState{Agent: r.self(), ReportTime: timestamppb.Now(), StoreDir: r.store.Dir()}
	unsigned := ""
	if err := r.store.SigningFailure(); err != nil {
		unsigned = oneLine(err)
	}
	for _, worker := range r.list() {
		progress, failure := worker.snapshot()
		failure = cmp.Or(failure, progress.Suspect, progress.ForgedText, unsigned)
		state.Progress = append(state.Progress, &api.DrainProgress{
			Stream: worker.assignment.Stream, RingUuid: worker.assignment.RingUuid,
			StoredLsn: progress.StoredLSN, HeadLsn: progress.HeadLSN, Records: progress.Records, Bytes: progress.Bytes,
			Batches: progress.Batches, Duplicates: progress.Duplicates, LastError: failure,
			Anchor: anchorMessage(progress.Anchor), Base: worker.baseMessage(),
		})
	}
	return state
}

func (r *drainRole) samples() []metrics.DrainSample {
	var samples []metrics.DrainSample
	for _, worker := range r.list() {
		progress, failure := worker.snapshot()
		samples = append(samples, metrics.DrainSample{
			Stream: worker.assignment.Stream, StoredLSN: progress.StoredLSN, HeadLSN: progress.HeadLSN,
			Records: progress.Records,
			Bytes:   progress.Bytes, Batches: progress.Batches, Duplicates: progress.Duplicates,
			LagBytes: progress.LagBytes,
			LagAge:   progress.LagAge, UnconfirmedBytes: progress.UnconfirmedBytes, IsFailing: failure != "",
			IsSuspect: progress.Suspect != "", Forged: progress.Forged, IsGap: worker.isBlocked(),
			LacksSegment: worker.lacksSegment(),
		})
	}
	return samples
}

func (r *drainRole) healthy() error {
	errs := []error{r.merging.healthy(), r.link.healthy(), r.store.SigningFailure()}
	for _, worker := range r.list() {
		if _, failure := worker.snapshot(); failure != "" {
			errs = append(errs, fmt.Errorf("drain of stream %s: %s", worker.assignment.Stream, failure))
		}
	}
	return errors.Join(errs...)
}

func (r *drainRole) list() []*drainWorker {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	list := make([]*drainWorker, 0, len(r.workers))
	for _, worker := range r.workers {
		list = append(list, worker)
	}
	slices.SortFunc(list, func(a, b *drainWorker) int { return compareStreams(a.assignment, b.assignment) })
	return list
}

func (r *drainRole) remember(message *api.WatchAssignmentsResponse) error {
	raw, err := protojson.Marshal(message)
	if err != nil {
		return err
	}
	return writeSecret(r.path, raw) // tokens are in it
}

func (r *drainRole) recall() ([]*api.Assignment, error) {
	raw, err := os.ReadFile(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	message := new(api.WatchAssignmentsResponse)
	if err := protojson.Unmarshal(raw, message); err != nil {
		return nil, err
	}
	return message.Assignments, nil
}

func (w *drainWorker) setProgress(progress drain.Progress) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.progress, w.failure = progress, progress.LastError
}

func (w *drainWorker) fail(text string, err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.failure, w.lacks = text, errors.Is(err, store.ErrMissing)
	w.isGap = errors.Is(err, farlog.ErrCorrupt) || errors.Is(err, drain.ErrStoreBehind) ||
		errors.Is(err, store.ErrOutOfOrder)
}

func (w *drainWorker) snapshot() (drain.Progress, string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.progress, w.failure
}

// isBlocked reports whether the failure is that something is missing.
func (w *drainWorker) isBlocked() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.isGap && w.failure != ""
}

// lacksSegment reports whether the failure is that the store lacks a file of the stream.
func (w *drainWorker) lacksSegment() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.lacks && w.failure != ""
}

func ringKey(a *api.Assignment) string {
	key := a.Stream + "\x00" + a.Uri + "\x00" + hex.EncodeToString(a.RingUuid) + "\x00" + string(a.Token)
	for _, member := range a.Members {
		key += "\x00" + string(member.Token)
	}
	if lost := a.LostStore; lost != nil {
		key += fmt.Sprintf("\x00%d", lost.Lsn)
	}
	return key
}

func compareStreams(a, b *api.Assignment) int {
	return slices.Compare([]byte(ringKey(a)), []byte(ringKey(b)))
}
