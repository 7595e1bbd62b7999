//go:build cgo

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

// followed is the newest that the control plane has said of something while a writer runs; nil: nothing yet. Without
// the control plane it stays what it was.
type followed[M any] struct{ newest atomic.Pointer[M] }

// followStream learns of changes of a stream, until ctx is done.
func followStream(ctx context.Context, client *controlClient, name string) *followed[api.StreamSpec] {
	f := new(followed[api.StreamSpec])
	go api.Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchStreamsResponse], error) {
		return client.WatchStreams(ctx, &api.WatchStreamsRequest{Name: name})
	}, func(message *api.WatchStreamsResponse) {
		for _, stream := range message.Streams {
			f.newest.Store(stream.Spec)
		}
	}, func(error) {})
	return f
}

// followRoute learns of changes of a route, also of those that it selects, until ctx is done.
func followRoute(ctx context.Context, client *controlClient, name string) *followed[api.GetRouteResponse] {
	f := new(followed[api.GetRouteResponse])
	go api.Follow(ctx, func(ctx context.Context) (grpc.ServerStreamingClient[api.WatchRoutesResponse], error) {
		return client.WatchRoutes(ctx, &api.WatchRoutesRequest{Name: name})
	}, func(message *api.WatchRoutesResponse) {
		for _, route := range message.Routes { // none: it was deleted, and whoever has it open goes on
			f.newest.Store(route)
		}
	}, func(error) {})
	return f
}

// changeRetryPause is the time between two attempts to get a new grant for a stream that has changed.
const changeRetryPause = 5 * time.Second

// reconfiguration brings changes of a stream to its writer, between two records.
type reconfiguration struct {
	stream  *followed[api.StreamSpec]
	options appendOptions // what the command line has said is not changed
	level   api.Level     // of the stream, as the writer was opened
	retryAt time.Time
	reopen  func() (isOpen bool, err error) // with a new grant; false: there was none, the writer is as it was
	talk    *appendTalk
}

// apply takes over what has changed. A shorter or longer deadline is one of the next append; all else needs another
// opening, and so another epoch.
func (r *reconfiguration) apply(f *feed) error {
	spec := r.stream.newest.Load()
	if spec == nil || time.Now().Before(r.retryAt) {
		return nil
	}
	policy, deadline := farlog.PolicyBlock, spec.Deadline.AsDuration()
	if spec.Policy == api.Policy_POLICY_REJECT {
		policy = farlog.PolicyReject
	}
	isDeadline := r.options.deadline == 0 && deadline != f.deadline
	isOther := r.options.policy == "" && policy != f.policy || r.options.level == "" && spec.Level != r.level ||
		isDeadline && deadline == 0
	if !isDeadline && !isOther {
		return nil
	}
	if isOther {
		if isOpen, err := r.reopen(); err != nil || !isOpen {
			r.retryAt = time.Now().Add(changeRetryPause)
			return err
		}
	} else {
		f.deadline = deadline
	}
	r.level = spec.Level
	r.talk.printf("stream %s has changed: level %s, policy %s, deadline %s", spec.Name, shortName(spec.Level.String()),
		shortName(spec.Policy.String()), textOr(durationOrNothing(deadline), "of the region"))
	return nil
}

// reopen closes the writer and opens the stream again, with a new grant. Without one the writer goes on.
func (f *feed) reopen(ctx context.Context, env *environment, options appendOptions) (isOpen bool, err error) {
	place, err := locateWriter(ctx, env, options)
	if err == nil {
		err = place.inspectRing()
	}
	if err != nil {
		f.talk.printf("the stream has changed, going on as before: %s", oneLine(err))
		return false, nil
	}
	if err := f.writer.Close(); err != nil {
		return false, fmt.Errorf("close ring: %w", err)
	}
	writer, place, err := openWriter(ctx, env, options, place, f.talk)
	if err != nil {
		return false, asUsage(err)
	}
	f.writer, f.deadline, f.policy = writer, place.options.Deadline, place.options.Policy
	f.watchWriter(place.uri)
	f.talk.opened(place.uri, f.writer.Contract(), place.options.Level, f.writer.Recovery())
	return true, nil
}
