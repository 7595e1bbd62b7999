package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/check"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/reconcile"
	"github.com/farlog/farlog/pkg/control/refusal"
	"github.com/farlog/farlog/pkg/control/state"
)

// ErrUsedMeanwhile -- a stream was created since the view in which there was space for this one.
var ErrUsedMeanwhile = errors.New("a stream was created meanwhile")

// CheckSpace refuses a stream for which there is no space beside all others: of a target's capacity, or of its tenant's
// quota. isLimited: there is, as long as no other is created.
func CheckSpace(v *state.View, spec *api.StreamSpec) (isLimited bool, err error) {
	if v.Streams[spec.Name] != nil {
		return false, nil
	}
	if why := whyNoNamespace(v, spec); why != "" {
		return false, refusal.Precondition(refusal.ReasonNoReach, "spec.kind", refusal.Quote(spec.Kind),
			"expected a namespace that writer and drain reach: %s", why).
			Errorf("stream %q: no namespace can have its ring: %s", spec.Name, why)
	}
	if why := reconcile.WhyUnreached(v.World(), spec); why != "" && !reconcile.IsNamespaced(spec) {
		return false, refusal.Precondition(refusal.ReasonNoReach, "spec.target_host", refusal.Quote(spec.TargetHost),
			"expected a target that writer and drain reach: %s", why).
			Errorf("stream %q: no target can have its ring: %s", spec.Name, why)
	}
	rules, isLimited := v.Declared().WhyNoSpace([]*api.StreamSpec{spec})
	if rule := rules[spec.Name]; rule != "" {
		return true, refusal.Exhausted(refusal.ReasonCapacity, "spec.ring_size_bytes", fmt.Sprint(spec.RingSizeBytes),
			"%s", rule).
			Errorf("stream %q: ring size %d: %s; raise a capacity, declare another target (farlog apply, targets), "+
				"or take a smaller ring", spec.Name, spec.RingSizeBytes, rule)
	}
	tenant := check.TenantOf(spec.Name)
	quota := v.Tenants[tenant]
	if quota == nil {
		return isLimited, nil
	}
	return true, overQuotas(spec, check.WhyOver(quota, check.Uses(v.Streams)[tenant], spec))
}

// whyNoNamespace says why no namespace can have the ring of a stream that wants one, as things are now; "": one can.
func whyNoNamespace(v *state.View, spec *api.StreamSpec) string {
	if !reconcile.IsNamespaced(spec) {
		return ""
	}
	if why := reconcile.WhyNoNamespace(v.TargetSpecs, spec); why != "" {
		return why
	}
	world := v.World()
	world.Streams = map[string]*api.Stream{spec.Name: {Spec: spec, K: spec.Needed}}
	return reconcile.WhyNotPlaced(world, spec.Name, reconcile.FreeSpace(world, world.TargetSpecs), time.Now())
}

// CheckRate refuses a stream that is declared to be faster than its tenant's quota lets it. isLimited: it is not, as
// long as no other takes of it.
func CheckRate(v *state.View, before, spec *api.StreamSpec) (isLimited bool, err error) {
	tenant := check.TenantOf(spec.Name)
	quota := v.Tenants[tenant]
	if quota == nil || pattern.IsSystem(spec.Name) {
		return false, nil
	}
	return check.IsFaster(before, spec), overQuotas(spec,
		check.WhyTooFast(quota, check.Uses(v.Streams)[tenant], before, spec))
}

func overQuotas(spec *api.StreamSpec, problems []*api.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, len(problems))
	for i, one := range problems {
		one.Field = "spec." + one.Field
		texts[i] = check.Text(one)
	}
	return refusal.WithReason(codes.FailedPrecondition, refusal.ReasonSpec,
		fmt.Sprintf("stream %q: %s", spec.Name, strings.Join(texts, "; ")), problems)
}

// spaceGuards hold as long as what was said of space is so: no stream was created since one revision, no target or
// quota declared otherwise since another.
func spaceGuards(created, specs int64) []clientv3.Cmp {
	return []clientv3.Cmp{
		state.UnchangedSinceRevision(created, etcd.KeyStreamID),
		state.UnchangedSinceRevision(specs, etcd.KeyTargetSpecs).WithPrefix(),
		state.UnchangedSinceRevision(specs, etcd.KeyTenants).WithPrefix(),
	}
}

// CreateStream creates a stream where there is space: of two that would only together go beyond what is left the second
// one is refused, whichever control plane it was asked of. Those of one control plane take turns: all but one of them
// would be in vain. It can be seen when this returns.
func (s *Store) CreateStream(ctx context.Context, spec *api.StreamSpec) (stream *api.Stream, isNew bool, err error) {
	select {
	case s.creating <- struct{}{}:
		defer func() { <-s.creating }()
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	for {
		now, err := s.fresh()
		if err != nil {
			return nil, false, err
		}
		stream, isNew, revision, err := s.CreateStreamAt(ctx, now, spec)
		if err != nil && !errors.Is(err, ErrUsedMeanwhile) {
			if isOld, failed := s.catchUp(ctx, now, etcd.KeyStreams+spec.Name, etcd.KeyStreamID); failed != nil ||
				!isOld {
				return nil, false, cmp.Or(failed, err)
			}
			continue
		}
		if seen := s.mirror.WaitRevision(ctx, revision); seen != nil || err == nil {
			return stream, isNew, seen
		}
	}
}

// CreateStreamAt creates a stream where a view says that there is space. ErrUsedMeanwhile: of what it says something
// had changed when the stream was to be written; the revision is what to look at.
func (s *Store) CreateStreamAt(ctx context.Context, now *state.View, spec *api.StreamSpec) (stream *api.Stream,
	isNew bool, revision int64, err error,
) {
	isLimited, err := CheckSpace(now, spec)
	if err != nil {
		return nil, false, 0, err
	}
	var guards []clientv3.Cmp
	if isLimited {
		guards = spaceGuards(now.Revision, now.Revision)
	}
	return CreateStream(ctx, s.client, spec, guards...)
}

// catchUp waits until a view shows what etcd has of some keys now; isOld: the one before did not. What another control
// plane has made a moment ago is there, and not refused.
func (s *Store) catchUp(ctx context.Context, seen *state.View, keys ...string) (isOld bool, err error) {
	newest := int64(0)
	for _, key := range keys {
		got, err := s.client.Get(ctx, key)
		if err != nil {
			return false, fmt.Errorf("read %q: %w", key, err)
		}
		for _, one := range got.Kvs {
			newest = max(newest, one.ModRevision)
		}
	}
	if newest <= seen.Revision {
		return false, nil
	}
	return true, s.mirror.WaitRevision(ctx, newest)
}

// judgeAgain judges the streams of a plan that are not yet created once more, because somebody else has created others
// since: what has space still goes on from what is seen then.
func (s *Store) judgeAgain(ctx context.Context, plan *Plan, rest []*api.StreamSpec, revision int64) (now *state.View,
	err error,
) {
	if err := s.mirror.WaitRevision(ctx, revision); err != nil {
		return nil, err
	}
	if now, err = s.fresh(); err != nil {
		return nil, err
	}
	for _, spec := range rest {
		if now.Streams[spec.Name] != nil {
			return nil, refusal.ChangedMeanwhile("the fabric")
		}
	}
	world := now.Declared()
	world.Ending = plan.ending()
	found, err := check.Fabric(world, &api.Fabric{Streams: rest})
	if err != nil || len(found.Problems) == 0 {
		return now, err
	}
	return nil, refusal.WithReason(codes.FailedPrecondition, refusal.ReasonSpec, fmt.Sprintf("somebody else has "+
		"created streams meanwhile, and %d of these have no free space left, of which the first: %s; what was "+
		"created stays",
		len(found.Problems), check.Text(found.Problems[0])), found.Problems)
}
