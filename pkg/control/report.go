package control

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
)

// Agents report every second, and most of what they say is figures: cursors, lag, rates, times. Nothing is decided by figures, but for those of
// hosts (keepHost), so that those of a report are
// shown by the instance that got it and reach etcd, where other instances see them, only now and then. Whatever else has changed is in etcd before the
// report is answered.

// How old the figures in etcd become. Where no other instance reads them they are for after a restart, of agents that do not report any more.
const (
	figuresKept     = 10 * time.Second
	figuresKeptSole = time.Minute
)

// reports keeps what agents report.
type reports struct {
	client *clientv3.Client
	mirror *mirror
	every  time.Duration

	mutex sync.Mutex
	hosts map[string]*api.HostState // by name: what its agent told this instance last
	told  map[string]told           // by key: the state that was answered last
	last  uint64                    // report that was named
	kept  map[string]time.Time      // by key: when the figures were last written; where they are not what they were then, and else absent
}

// told is a report and what the mirror showed for it. Whatever has come to stand in its place since, by whomever, is another.
type told struct {
	report uint64
	state  proto.Message
}

func newReports(client *clientv3.Client, mirror *mirror, isSole bool) *reports {
	every := figuresKept
	if isSole {
		every = figuresKeptSole
	}
	return &reports{client: client, mirror: mirror, every: every, kept: map[string]time.Time{}, hosts: map[string]*api.HostState{},
		told: map[string]told{}, last: rand.Uint64()}
}

// keepTarget keeps a state, and gives it a name; 0: something else has taken its place already.
func (r *reports) keepTarget(ctx context.Context, state *api.TargetState) (uint64, error) {
	key, isNews, isMoved := keyTargets+state.Agent.Id, true, false
	r.mirror.show(func(now, next *view) bool {
		before := now.targets[state.Agent.Id]
		isNews, isMoved = !api.IsSameTarget(before, state), areTargetFiguresMoved(before, state)
		if !isNews {
			next.targets = maps.Clone(now.targets)
			next.owned[keyTargets] = true
			next.targets[state.Agent.Id] = state
		}
		return !isNews
	})
	if err := r.keep(ctx, key, state, isNews, isMoved); err != nil {
		return 0, err
	}
	now, _ := r.mirror.load()
	seen := now.targets[state.Agent.Id]
	return r.name(key, seen, api.IsSameTarget(seen, state)), nil
}

// keepDrain is as keepTarget.
func (r *reports) keepDrain(ctx context.Context, state *api.DrainState) (uint64, error) {
	key, isNews, isMoved := keyDrains+state.Agent.Id, true, false
	r.mirror.show(func(now, next *view) bool {
		before := now.drains[state.Agent.Id]
		isNews, isMoved = !api.IsSameDrain(before, state), areDrainFiguresMoved(before, state)
		if !isNews {
			next.drains = maps.Clone(now.drains)
			next.owned[keyDrains] = true
			next.drains[state.Agent.Id] = state
		}
		return !isNews
	})
	if err := r.keep(ctx, key, state, isNews, isMoved); err != nil {
		return 0, err
	}
	now, _ := r.mirror.load()
	seen := now.drains[state.Agent.Id]
	return r.name(key, seen, api.IsSameDrain(seen, state)), nil
}

// name gives a report a name that no other one has, of this instance or of another; isSeen tells whether what the mirror shows is what was reported.
func (r *reports) name(key string, seen proto.Message, isSeen bool) uint64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.told, key)
	if !isSeen {
		return 0
	}
	r.last = max(1, r.last+1)
	r.told[key] = told{r.last, seen}
	return r.last
}

// isTold tells whether a report was the last one of an agent to this instance, and nothing has taken the place of what it said.
func (r *reports) isTold(key string, report uint64, seen proto.Message) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return report != 0 && r.told[key] == told{report, seen}
}

// keep writes a state with news, or with figures whose turn it is. A state is not guarded: the last report is the truth.
func (r *reports) keep(ctx context.Context, key string, state proto.Message, isNews, isMoved bool) error {
	if !isNews && !r.isTurn(key, isMoved) {
		return nil
	}
	value, err := encodeBytes(state)
	if err != nil {
		return withProblems(codes.InvalidArgument, fmt.Sprintf("state of %s: %s", key, err), []*api.Problem{{Field: "state", Rule: "expected texts in UTF-8: " + err.Error()}})
	}
	put, err := r.client.Put(ctx, key, value)
	if err != nil {
		return fmt.Errorf("keep %s: %w", key, err)
	}
	r.mutex.Lock()
	delete(r.kept, key)
	r.mutex.Unlock()
	return r.mirror.waitRevision(ctx, put.Header.Revision) // the next report is compared with this one
}

// isTurn tells whether figures have waited long enough.
func (r *reports) isTurn(key string, isMoved bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	since, isWaiting := r.kept[key]
	if !isWaiting && isMoved {
		r.kept[key] = time.Now()
	}
	return isWaiting && time.Since(since) >= r.every
}

// areTargetFiguresMoved looks at the cursors, which all other figures follow. Times alone are not worth a write.
func areTargetFiguresMoved(a, b *api.TargetState) bool {
	return !slices.EqualFunc(a.GetRings(), b.GetRings(), func(a, b *api.RingState) bool {
		return a.AppendedLsn == b.AppendedLsn && a.DurableLsn == b.DurableLsn && a.HeadLsn == b.HeadLsn && a.HeadSeq == b.HeadSeq && a.CreditLsn == b.CreditLsn &&
			a.LagBytes == b.LagBytes && a.LagRecords == b.LagRecords
	})
}

func areDrainFiguresMoved(a, b *api.DrainState) bool {
	return !slices.EqualFunc(a.GetProgress(), b.GetProgress(), func(a, b *api.DrainProgress) bool {
		return a.StoredLsn == b.StoredLsn && a.HeadLsn == b.HeadLsn && a.Records == b.Records && a.Bytes == b.Bytes && a.Batches == b.Batches && a.Duplicates == b.Duplicates
	})
}
