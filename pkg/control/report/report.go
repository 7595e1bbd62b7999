// Package report keeps what agents report in etcd: what has changed at once, figures now and then, and who lives.
package report

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/control/etcd"
	"github.com/farlog/farlog/pkg/control/state"
)

// Agents report every second, and most of what they say is figures: cursors, lag, rates, times. Nothing is decided by
// figures, but for those of hosts (KeepHost), so that those of a report are
// shown by the instance that got it and reach etcd, where other instances see them, only now and then. Whatever else
// has changed is in etcd before the report is answered.

// How old the figures in etcd become. Where no other instance reads them they are for after a restart, of agents that
// do not report any more.
const (
	figuresKept     = 10 * time.Second
	figuresKeptSole = time.Minute
)

// unstoredKept is how long a report that could not be stored is told of: its agent tries again each second.
const unstoredKept = 30 * time.Second

// reportBytesMost bounds what of a report is written at once: etcd takes 1.5 MiB a transaction.
const reportBytesMost = 512 << 10

// Keeper keeps what agents report.
type Keeper struct {
	client *clientv3.Client
	mirror *state.Mirror
	every  time.Duration

	mutex    sync.Mutex
	told     map[string]told          // by key: the state that was answered last
	last     uint64                   // report that was named
	kept     map[string]*movedFigures // by key: of figures that are not in etcd as they are
	unstored map[string]unstored      // by key: the last report, if it could not be stored
}

// movedFigures are the parts of a report whose figures have moved since they were written, and since when.
type movedFigures struct {
	since time.Time
	parts map[string]bool
}

// unstored is why a report could not be stored, and when.
type unstored struct {
	reason string
	at     time.Time
}

// told is a report and what the mirror showed for it. Whatever has come to stand in its place since, by whomever, is
// another.
type told struct {
	report uint64
	state  proto.Message
}

// NewKeeper makes a Keeper; isSole says that no other instance reads the figures.
func NewKeeper(client *clientv3.Client, mirror *state.Mirror, isSole bool) *Keeper {
	every := figuresKept
	if isSole {
		every = figuresKeptSole
	}
	return &Keeper{
		client: client, mirror: mirror, every: every, kept: map[string]*movedFigures{},
		//lint:ignore G404 where the names of reports begin, which two control planes do not share; it is no secret
		unstored: map[string]unstored{}, told: map[string]told{}, last: rand.Uint64(),
	}
}

// Keep stores a report, and gives it a name; 0: something else has taken its place already. Only parts that have
// changed are written, those of which nothing but figures has when it is their turn. A report is not guarded: the last
// one is the truth.
func Keep[S, P proto.Message](ctx context.Context, r *Keeper, k *state.AgentKind[S, P], id string, report S) (uint64,
	error,
) {
	key := k.Heads + id
	names := k.InOrder(report)
	now, _ := r.mirror.Load()
	change := k.Compare(now, id, names, report)
	written := r.turn(key, change.Moved)
	for name := range change.News {
		written[name] = true
	}
	if change.IsNews() || len(written) > 0 {
		writes, err := k.Writes(id, names, written, change.Gone, report)
		if err == nil {
			err = r.write(ctx, writes)
		}
		if err != nil {
			r.noteUnstored(key, err)
			return 0, err
		}
	}
	r.noteStored(key, written)
	isSeen := false
	r.mirror.Show(func(now, next *state.View) bool {
		if isSeen = k.Compare(now, id, names, report).IsSame(); isSeen {
			wholes := maps.Clone(*k.Wholes(now))
			wholes[id] = report
			*k.Wholes(next) = wholes
		}
		return isSeen
	})
	now, _ = r.mirror.Load()
	return r.name(key, (*k.Wholes(now))[id], isSeen), nil
}

// noteUnstored remembers that a report could not be stored; noteStored that it could, with what was written of it.
func (r *Keeper) noteUnstored(key string, err error) {
	r.mutex.Lock()
	r.unstored[key] = unstored{err.Error(), time.Now()}
	r.mutex.Unlock()
	r.mirror.Show(func(now, next *state.View) bool {
		next.Unstored = maps.Clone(now.Unstored)
		next.Unstored[key] = err.Error()
		return true
	})
}

func (r *Keeper) noteStored(key string, written map[string]bool) {
	if now, _ := r.mirror.Load(); now.Unstored[key] != "" {
		r.mirror.Show(func(now, next *state.View) bool {
			next.Unstored = maps.Clone(now.Unstored)
			delete(next.Unstored, key)
			return true
		})
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.unstored, key)
	if waiting := r.kept[key]; waiting != nil {
		maps.DeleteFunc(waiting.parts, func(name string, _ bool) bool { return written[name] })
		if len(waiting.parts) == 0 {
			delete(r.kept, key)
		}
	}
}

// ListUnstored gives the agents whose last report to this instance could not be stored, by key, and why.
func (r *Keeper) ListUnstored() map[string]string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.unstored, func(_ string, one unstored) bool { return time.Since(one.at) > unstoredKept })
	reasons := map[string]string{}
	for key, one := range r.unstored {
		reasons[key] = one.reason
	}
	return reasons
}

// name gives a report a name that no other one has, of this instance or of another; isSeen reports whether what the
// mirror shows is what was reported.
func (r *Keeper) name(key string, seen proto.Message, isSeen bool) uint64 {
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

// IsKnown reports whether a report was the last one of an agent to this instance, and nothing has taken the place of
// what it said.
func (r *Keeper) IsKnown(key string, report uint64, seen proto.Message) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return report != 0 && r.told[key] == told{report, seen}
}

// write makes all that is written of a report durable, in as few transactions as etcd takes: a small one is stored as a
// whole. The last is that of the head.
func (r *Keeper) write(ctx context.Context, writes []state.ReportWrite) error {
	var batches [][]clientv3.Op
	size := 0
	for _, write := range writes {
		last := len(batches) - 1
		if last < 0 || len(batches[last]) == etcd.BatchMax || size+write.Size > reportBytesMost {
			batches, size, last = append(batches, nil), 0, last+1
		}
		batches[last], size = append(batches[last], write.Op), size+write.Size
	}
	last := len(batches) - 1
	revision, err := r.writeParts(ctx, batches[:last])
	if err != nil {
		return err
	}
	put, err := r.client.Txn(ctx).Then(batches[last]...).Commit()
	if err != nil {
		return fmt.Errorf("store report: %w", err)
	}
	return r.mirror.WaitRevision(ctx, max(revision, put.Header.Revision)) // the next report is compared with this one
}

// writeParts writes several transactions at once: one write to the disk is several's.
func (r *Keeper) writeParts(ctx context.Context, batches [][]clientv3.Op) (newest int64, err error) {
	var workers errgroup.Group
	var mutex sync.Mutex
	workers.SetLimit(etcd.BatchesAtOnce)
	for _, batch := range batches {
		workers.Go(func() error {
			put, err := r.client.Txn(ctx).Then(batch...).Commit()
			if err != nil {
				return fmt.Errorf("store report: %w", err)
			}
			mutex.Lock()
			defer mutex.Unlock()
			newest = max(newest, put.Header.Revision)
			return nil
		})
	}
	err = workers.Wait()
	return newest, err
}

// turn takes in which parts have moved, and gives those that have waited long enough to be written.
func (r *Keeper) turn(key string, moved map[string]bool) map[string]bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	waiting := r.kept[key]
	if waiting == nil && len(moved) > 0 {
		waiting = &movedFigures{since: time.Now(), parts: map[string]bool{}}
		r.kept[key] = waiting
	}
	if waiting == nil {
		return map[string]bool{}
	}
	isTurn := time.Since(waiting.since) >= r.every
	maps.Copy(waiting.parts, moved)
	if !isTurn {
		return map[string]bool{}
	}
	return maps.Clone(waiting.parts)
}

// KeepSigns carries over what was last seen in a ring that is missing now: one that somebody has opened by its URI
// alone may hold records although no epoch was granted.
func KeepSigns(v *state.View, state *api.TargetState) {
	for _, ring := range state.Rings {
		if !ring.Missing {
			continue
		}
		for _, before := range v.Targets[state.Agent.Id].GetRings() {
			if before.Stream == ring.Stream {
				ring.WriterEpoch, ring.AppendedLsn = max(ring.WriterEpoch, before.WriterEpoch),
					max(ring.AppendedLsn, before.AppendedLsn)
			}
		}
	}
}
