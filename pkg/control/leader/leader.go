// Package leader carries out what package reconcile plans, on one control plane at a time.
package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/auditlog"
	"github.com/farlog/farlog/pkg/control/deletion"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/grant"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/state"
	"github.com/farlog/farlog/pkg/control/tracing"
)

// leaderLease is how long a leader that died or cannot reach etcd keeps others from leading. etcd's least; to lose it
// for nothing costs another election.
const leaderLease = 2 * time.Second

// leaderRetryDelay is how long an instance waits after it lost the leadership or could not change etcd.
const leaderRetryDelay = 500 * time.Millisecond

// fullPassPeriod is how often all streams are planned, changed or not.
const fullPassPeriod = time.Minute

// Reconciler carries out what reconcile.Plan says, on one control instance at a time.
type Reconciler struct {
	Client   *clientv3.Client
	Mirror   *state.Mirror
	Logger   *slog.Logger
	Instance string
	IsSole   bool // the lock of the embedded etcd's directory is the election

	IsLeading *atomic.Bool        // told to whoever asks
	Planned   *atomic.Int64       // streams that were looked at
	Audit     *auditlog.Forwarder // nil: audit events are not recorded
}

// Run reconciles until ctx is done.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		if r.IsSole {
			err = r.lead(ctx, nil)
		} else {
			err = r.campaign(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.Logger.Warn("reconciling failed, retrying", "error", err)
		select {
		case <-time.After(leaderRetryDelay):
		case <-ctx.Done():
		}
	}
}

// campaign leads while the election is won. The session's lease ends a leader that cannot be reached.
func (r *Reconciler) campaign(ctx context.Context) error {
	session, err := concurrency.NewSession(r.Client, concurrency.WithTTL(int(leaderLease/time.Second)),
		concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("open election session: %w", err)
	}
	defer session.Close()
	election := concurrency.NewElection(session, etcd.KeyLeader)
	if err := election.Campaign(ctx, r.Instance); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	r.Logger.Info("leading", "instance", r.Instance)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	// A leader that was replaced without knowing it can change nothing: every transaction holds only while its
	// election key is there.
	guard := clientv3.Compare(clientv3.CreateRevision(election.Key()), "=", election.Rev())
	if err := r.waitPredecessor(ctx, election); err != nil {
		return err
	}
	return r.lead(ctx, []clientv3.Cmp{guard})
}

// waitPredecessor waits until the mirror shows all that leaders before have written: the election key, written once
// more by the one who holds it, is behind that.
func (r *Reconciler) waitPredecessor(ctx context.Context, election *concurrency.Election) error {
	if err := election.Proclaim(ctx, r.Instance); err != nil {
		return fmt.Errorf("write the election key: %w", err)
	}
	return r.Mirror.WaitRevision(ctx, election.Header().Revision)
}

func (r *Reconciler) lead(ctx context.Context, guards []clientv3.Cmp) error {
	r.IsLeading.Store(true)
	defer r.IsLeading.Store(false)
	if r.Audit != nil {
		ctx, cancel := context.WithCancel(ctx)
		var moving sync.WaitGroup
		moving.Go(func() { r.Audit.Run(ctx, guards) })
		defer moving.Wait()
		defer cancel()
	}
	return r.keepSettled(ctx, guards)
}

// keepSettled plans whatever may need something, as soon as it may: all streams at first and then now and again, for
// what nobody has thought of.
func (r *Reconciler) keepSettled(ctx context.Context, guards []clientv3.Cmp) error {
	unsettled, again, lost := map[string]bool{}, reconcile.Dirt{}, 0
	gone := map[string]time.Time{}
	again.TouchAll()
	rarely := time.NewTicker(fullPassPeriod)
	defer rarely.Stop()
	for {
		now, dirt := r.Mirror.TakeDirt()
		dirt.Add(again)
		again = reconcile.Dirt{}
		world := now.World()
		names := dirt.Streams(world, unsettled)
		actions := reconcile.PlanOf(world, names, unsettled, time.Now())
		r.Planned.Add(int64(len(names)))
		err := r.PerformAll(ctx, now, actions, guards)
		if lost++; !errors.Is(err, etcd.ErrLost) {
			lost = 0
		}
		if err != nil && (lost == 0 || lost == lostBatchesMost) {
			return err
		}
		if err != nil {
			for _, action := range actions { // others were first: planned again with what they did
				again.Touch(action.Stream())
			}
			continue
		}
		select {
		case <-r.Mirror.Dirty:
		case <-rarely.C:
			again.TouchAll()
			if err := r.Forget(ctx, gone, time.Now(), guards); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// perform writes one step of a stream's end and waits until the mirror shows it, so that the next plan knows of it.
func (r *Reconciler) perform(ctx context.Context, planned *state.View, action reconcile.Action, guards []clientv3.Cmp,
) (err error) {
	ctx, span := tracing.Tracer.Start(ctx, "reconcile "+action.Verb(),
		trace.WithAttributes(attribute.String("farlog.stream", action.Stream())))
	defer func() { tracing.EndSpan(span, err) }()
	key, writes, err := actionWrites(planned, action)
	if err != nil {
		return err
	}
	guards = append(slices.Clone(guards), actionGuards(planned, action)...)
	var changes map[int]func(*api.Admission) error
	if action.Retire != "" {
		changes = grant.WithoutDrains(reconcile.MemberCount(planned.Streams[action.Retire]))
	}
	for member, change := range changes {
		unchanged, write, err := grant.AdmissionWrite(ctx, r.Client, reconcile.MemberKey(action.Stream(), member),
			change)
		if err != nil {
			return err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	done, err := r.Client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if !done.Succeeded {
		return fmt.Errorf("write %s: %w", key, etcd.ErrLost)
	}
	r.logDecision(action)
	return r.Mirror.WaitRevision(ctx, done.Header.Revision)
}

func (r *Reconciler) logDecision(action reconcile.Action) {
	switch {
	case action.Place != nil:
		r.Logger.Info("placed ring", "stream", action.Stream(), "target", action.Place.Target, "member",
			action.Place.Member+1)
	case action.Renew != nil:
		r.Logger.Warn("ring is missing and had no record, because no writer was ever admitted: re-creating it",
			"stream", action.Stream(), "target", action.Renew.Target,
			"member", action.Renew.Member+1, "lost_uuid", fmt.Sprintf("%x", action.Renew.LostUuid))
	case action.Bind != nil:
		r.Logger.Info("bound stream to its ring", "stream", action.Stream(), "ring_uuid",
			fmt.Sprintf("%x", action.Bind.RingUuid))
	case action.Retire != "":
		r.Logger.Info("all is stored, removing rings", "stream", action.Retire)
	case action.Forget != "":
		r.Logger.Info("deleted", "stream", action.Forget)
	case action.Keep != nil:
		r.Logger.Debug("writer connected", "stream", action.Stream(), "epoch", action.Keep.Epoch)
	default:
		to := action.Assign
		r.Logger.Info("assigned drain", "stream", to.Stream, "drain", to.Drain, "uri", to.Uri, "store", to.StoreDir,
			"generation", to.Generation)
	}
}

func actionWrites(planned *state.View, action reconcile.Action) (key string, writes []clientv3.Op, err error) {
	var message proto.Message
	switch {
	case action.Retire != "" || action.Forget != "":
		return deletion.EndWrites(planned, action)
	case action.Place != nil:
		key, message = etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Place.Member)), action.Place
	case action.Renew != nil:
		key, message = etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Renew.Member)), action.Renew
	case action.Bind != nil:
		key, message = etcd.KeyRings+reconcile.MemberKey(action.Stream(), int(action.Bind.Member)), action.Bind
	case action.Keep != nil:
		return etcd.KeyAdmissions + reconcile.MemberKey(action.Stream(), action.Keep.Member), nil, nil
	default:
		key, message = etcd.KeyAssignments+action.Stream(), action.Assign
	}
	value, err := etcd.Encode(message)
	return key, []clientv3.Op{clientv3.OpPut(key, value)}, err
}
