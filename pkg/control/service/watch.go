package service

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/farlog/farlog/pkg/control/pattern"
	"github.com/farlog/farlog/pkg/control/state"
)

// watchChunk is of how many streams one message tells.
const watchChunk = 1000

// untilEnd is the loop of every watch: tell says what there is to say, and when it is to be asked again.
func (s *Server) untilEnd(ctx context.Context, tell func() (again <-chan struct{}, err error)) error {
	for {
		again, err := tell()
		if err != nil {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "the control plane is stopping")
		}
	}
}

// watch sends what is wanted of an agent, by the key of its life: first at once and then whenever it has become
// something else.
func watch[M proto.Message](s *Server, ctx context.Context, agent string, wanted func(*state.View) M,
	send func(M) error,
) error {
	var last M
	isFirst := true
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, changed := s.mirror.LoadFor(agent)
		next := wanted(now)
		if !isFirst && proto.Equal(last, next) {
			return changed, nil
		}
		last, isFirst = next, false
		return changed, send(next)
	})
}

// memory knows what a watch has told of each stream, well enough to see whether it is another thing by now.
type memory struct {
	seed    maphash.Seed
	of      map[string]uint64
	isWhole bool // of a stream that is not in it nothing was told
}

func newMemory() *memory { return &memory{seed: maphash.MakeSeed(), of: map[string]uint64{}} }

// begin forgets: all there is will be told.
func (m *memory) begin() { m.of, m.isWhole = map[string]uint64{}, true }

// isNew reports whether something else is to be told of a stream than was, and remembers it as told. Nothing to tell is
// a thing as well.
func isNew[T proto.Message](m *memory, stream string, items []T) bool {
	sum := uint64(0)
	if len(items) > 0 {
		var hash maphash.Hash
		hash.SetSeed(m.seed)
		for _, item := range items {
			// texts that are no UTF-8 are told as well as they can be
			raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(item)
			maphash.WriteComparable(&hash, len(raw))
			hash.Write(raw)
		}
		sum = hash.Sum64() | 1
	}
	before, isTold := m.of[stream]
	if sum == 0 {
		delete(m.of, stream)
		return isTold && before != 0 || !isTold && !m.isWhole
	}
	m.of[stream] = sum
	return !isTold || before != sum
}

// streamsWatch is a watch of what belongs to streams: of each that has changed, all there is of it.
type streamsWatch[T proto.Message] struct {
	method, named string // the call; the streams that are asked for
	revision      int64  // changes behind that one; 0: first all there is
	of            func(now *state.View, stream string) []T
	send          func(streamsPart[T]) error
}

// streamsPart is one message of it.
type streamsPart[T proto.Message] struct {
	revision int64 // 0: another one follows
	streams  []string
	items    []T
	isAll    bool
}

func watchStreams[T proto.Message](s *Server, ctx context.Context, w streamsWatch[T]) error {
	named := w.named
	named = cmp.Or(named, pattern.All)
	if err := checkPattern("stream", named, streamPatternRule); err != nil {
		return err
	}
	caller, told := callerOf(ctx), newMemory()
	l, leave := s.mirror.Subscribe("", w.revision)
	defer leave()
	return s.untilEnd(ctx, func() (<-chan struct{}, error) {
		now, streams, isAll := s.mirror.Next(l)
		if isAll {
			streams = slices.Sorted(maps.Keys(now.Streams))
			told.begin()
		}
		streams = slices.DeleteFunc(streams, func(stream string) bool {
			return !pattern.Covers([]string{named}, stream) || caller.May(w.method, stream) != nil
		})
		return l.Wakeup, w.sendChanged(now, told, streams, isAll)
	})
}

// sendChanged sends what is new of some streams, a part at a time.
func (w streamsWatch[T]) sendChanged(now *state.View, told *memory, streams []string, isAll bool) error {
	next := streamsPart[T]{isAll: isAll}
	for _, stream := range streams {
		items := []T(nil)
		if now.Streams[stream] != nil {
			items = w.of(now, stream)
		}
		if !isNew(told, stream, items) {
			continue
		}
		if len(next.streams) == watchChunk {
			if err := w.send(next); err != nil {
				return err
			}
			next = streamsPart[T]{}
		}
		next.streams, next.items = append(next.streams, stream), append(next.items, items...)
	}
	if len(next.streams) == 0 && !next.isAll {
		return nil
	}
	next.revision = now.Revision
	return w.send(next)
}
