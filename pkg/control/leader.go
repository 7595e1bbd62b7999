package control

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
	"github.com/farlog/farlog/pkg/control/reconcile"
)

// leaderLease is how long a leader that died or cannot reach etcd keeps others from leading. etcd's least; to lose it for nothing costs another election.
const leaderLease = 2 * time.Second

// leaderRetryDelay is how long an instance waits after it lost the leadership or could not change etcd.
const leaderRetryDelay = 500 * time.Millisecond

// fullPassPeriod is how often all streams are planned, changed or not.
const fullPassPeriod = time.Minute

// reconciler carries out what reconcile.Plan says, on one control instance at a time.
type reconciler struct {
	client   *clientv3.Client
	mirror   *mirror
	logger   *slog.Logger
	instance string
	isSole   bool // the lock of the embedded etcd's directory is the election

	isLeading *atomic.Bool  // told to whoever asks
	planned   *atomic.Int64 // streams that were looked at
	audit     *forwarder    // nil: audit events are not recorded
}

// run reconciles until ctx is done.
func (r *reconciler) run(ctx context.Context) {
	for ctx.Err() == nil {
		var err error
		if r.isSole {
			err = r.lead(ctx, nil)
		} else {
			err = r.campaign(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.logger.Warn("reconciling stopped, will try again", "error", err)
		select {
		case <-time.After(leaderRetryDelay):
		case <-ctx.Done():
		}
	}
}

// campaign leads while the election is won. The session's lease ends a leader that cannot be reached.
func (r *reconciler) campaign(ctx context.Context) error {
	session, err := concurrency.NewSession(r.client, concurrency.WithTTL(int(leaderLease/time.Second)), concurrency.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("open election session: %w", err)
	}
	defer session.Close()
	election := concurrency.NewElection(session, keyLeader)
	if err := election.Campaign(ctx, r.instance); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	r.logger.Info("leading", "instance", r.instance)
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

// waitPredecessor waits until the mirror shows all that leaders before have written: the election key, written once more
// by the one who holds it, is behind that.
func (r *reconciler) waitPredecessor(ctx context.Context, election *concurrency.Election) error {
	if err := election.Proclaim(ctx, r.instance); err != nil {
		return fmt.Errorf("write the election key: %w", err)
	}
	return r.mirror.waitRevision(ctx, election.Header().Revision)
}

func (r *reconciler) lead(ctx context.Context, guards []clientv3.Cmp) error {
	r.isLeading.Store(true)
	defer r.isLeading.Store(false)
	if r.audit != nil {
		ctx, cancel := context.WithCancel(ctx)
		var moving sync.WaitGroup
		moving.Go(func() { r.audit.run(ctx, guards) })
		defer moving.Wait()
		defer cancel()
	}
	return r.keepSettled(ctx, guards)
}

// keepSettled plans whatever may need something, as soon as it may: all streams at first and then now and again, for what nobody has thought of.
func (r *reconciler) keepSettled(ctx context.Context, guards []clientv3.Cmp) error {
	unsettled, again, lost := map[string]bool{}, reconcile.Dirt{}, 0
	gone := map[string]time.Time{}
	again.TouchAll()
	rarely := time.NewTicker(fullPassPeriod)
	defer rarely.Stop()
	for {
		now, dirt := r.mirror.takeDirt()
		dirt.Add(again)
		again = reconcile.Dirt{}
		world := now.world()
		names := dirt.Streams(world, unsettled)
		actions := reconcile.PlanOf(world, names, unsettled, time.Now())
		r.planned.Add(int64(len(names)))
		err := r.performAll(ctx, now, actions, guards)
		if lost++; !errors.Is(err, errLost) {
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
		case <-r.mirror.dirty:
		case <-rarely.C:
			again.TouchAll()
			if err := r.forget(ctx, gone, time.Now(), guards); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// perform writes one step of a stream's end and waits until the mirror shows it, so that the next plan knows of it.
func (r *reconciler) perform(ctx context.Context, planned *view, action reconcile.Action, guards []clientv3.Cmp) (err error) {
	ctx, span := tracer.Start(ctx, "reconcile "+action.Verb(), trace.WithAttributes(attribute.String("farlog.stream", action.Stream())))
	defer func() { endSpan(span, err) }()
	key, writes, err := actionWrites(planned, action)
	if err != nil {
		return err
	}
	guards = append(slices.Clone(guards), actionGuards(planned, action)...)
	var changes map[int]func(*api.Admission) error
	if action.Retire != "" {
		changes = withoutDrains(reconcile.MemberCount(planned.streams[action.Retire]))
	}
	for member, change := range changes {
		unchanged, write, err := admissionWrite(ctx, r.client, reconcile.MemberKey(action.Stream(), member), change)
		if err != nil {
			return err
		}
		if write != nil {
			guards, writes = append(guards, unchanged), append(writes, *write)
		}
	}
	done, err := r.client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	if !done.Succeeded {
		return fmt.Errorf("write %s: %w", key, errLost)
	}
	r.logDecision(action)
	return r.mirror.waitRevision(ctx, done.Header.Revision)
}

func (r *reconciler) logDecision(action reconcile.Action) {
	switch {
	case action.Place != nil:
		r.logger.Info("placed ring", "stream", action.Stream(), "target", action.Place.Target, "member", action.Place.Member+1)
	case action.Renew != nil:
		r.logger.Warn("ring is missing, and has no record: nobody was ever let in to write it; wanting it anew", "stream", action.Stream(), "target", action.Renew.Target,
			"member", action.Renew.Member+1, "lost_uuid", fmt.Sprintf("%x", action.Renew.LostUuid))
	case action.Bind != nil:
		r.logger.Info("bound stream to its ring", "stream", action.Stream(), "ring_uuid", fmt.Sprintf("%x", action.Bind.RingUuid))
	case action.Retire != "":
		r.logger.Info("all is stored, removing rings", "stream", action.Retire)
	case action.Forget != "":
		r.logger.Info("deleted", "stream", action.Forget)
	case action.Keep != nil:
		r.logger.Debug("writer is in", "stream", action.Stream(), "epoch", action.Keep.Epoch)
	default:
		to := action.Assign
		r.logger.Info("assigned drain", "stream", to.Stream, "drain", to.Drain, "uri", to.Uri, "store", to.StoreDir, "generation", to.Generation)
	}
}

func actionWrites(planned *view, action reconcile.Action) (key string, writes []clientv3.Op, err error) {
	var message proto.Message
	switch {
	case action.Retire != "" || action.Forget != "":
		return endWrites(planned, action)
	case action.Place != nil:
		key, message = keyRings+reconcile.MemberKey(action.Stream(), int(action.Place.Member)), action.Place
	case action.Renew != nil:
		key, message = keyRings+reconcile.MemberKey(action.Stream(), int(action.Renew.Member)), action.Renew
	case action.Bind != nil:
		key, message = keyRings+reconcile.MemberKey(action.Stream(), int(action.Bind.Member)), action.Bind
	case action.Keep != nil:
		return keyAdmissions + reconcile.MemberKey(action.Stream(), action.Keep.Member), nil, nil
	default:
		key, message = keyAssignments+action.Stream(), action.Assign
	}
	value, err := encode(message)
	return key, []clientv3.Op{clientv3.OpPut(key, value)}, err
}

// admissionsOf is what an action changes at the doors of a stream's rings, by member. A drain that is replaced is shut out with its tokens.
func admissionsOf(action reconcile.Action) map[int]func(*api.Admission) error {
	if keep := action.Keep; keep != nil {
		return map[int]func(*api.Admission) error{keep.Member: func(admission *api.Admission) error {
			keepWriter(admission, keep.Epoch)
			return nil
		}}
	}
	to := action.Assign
	if to == nil {
		return nil
	}
	uris := []string{to.Uri}
	if len(to.Members) > 0 {
		uris = nil
	}
	for _, member := range to.Members {
		uris = append(uris, member.Uri)
	}
	changes := map[int]func(*api.Admission) error{}
	for i, uri := range uris {
		changes[i] = func(admission *api.Admission) error {
			var token []byte
			if reconcile.IsFar(uri) {
				var err error
				if token, err = newToken(); err != nil {
					return err
				}
			}
			admitDrain(admission, to.Generation, token)
			return nil
		}
	}
	return changes
}

func (v *view) world() reconcile.World {
	return reconcile.World{
		Streams: v.streams, Epochs: v.epochs, Rings: v.rings, Assignments: v.assignments, Admissions: v.admissions,
		LiveTargets: v.liveTargets, LiveDrains: v.liveDrains, Targets: v.targets, TargetSpecs: v.targetSpecs,
		Deletions: v.deletions, DrainSpecs: v.drainSpecs, Hosts: v.hosts,
	}
}
