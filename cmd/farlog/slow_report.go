//go:build cgo

package main

import (
	"context"
	"time"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	slowReportTimeout = 3 * time.Second
	slowReasonMax     = 250
)

// slowReporter tells the control plane of a consumer that does not keep up, on a goroutine of its own: a control plane
// that does not answer holds nobody up, and a report that it does not take is made again with the next one.
type slowReporter struct {
	env    *environment
	client api.ControlServiceClient // nil: it dials for each report, which are rare
	end    context.CancelFunc
	newest map[string]chan *api.SlowConsumer
}

// newSlowReporter begins with a goroutine a stream, until ctx is done.
func newSlowReporter(ctx context.Context, env *environment, client api.ControlServiceClient, streams ...string,
) *slowReporter {
	ctx, end := context.WithCancel(ctx)
	r := &slowReporter{env: env, client: client, end: end, newest: map[string]chan *api.SlowConsumer{}}
	for _, stream := range streams {
		r.newest[stream] = make(chan *api.SlowConsumer, 1)
		go r.run(ctx, r.newest[stream])
	}
	return r
}

// offer puts a report in the place of one that was not made yet. One goroutine calls it. Safe with nil.
func (r *slowReporter) offer(told *api.SlowConsumer) {
	if r == nil || r.newest[told.Stream] == nil {
		return
	}
	select {
	case <-r.newest[told.Stream]:
	default:
	}
	r.newest[told.Stream] <- told
}

func (r *slowReporter) run(ctx context.Context, newest <-chan *api.SlowConsumer) {
	for {
		select {
		case told := <-newest:
			if !pause(ctx, r.report(ctx, told)) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// report gives the time until the next report.
func (r *slowReporter) report(ctx context.Context, told *api.SlowConsumer) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, slowReportTimeout)
	defer cancel()
	client := r.client
	if client == nil {
		dialed, err := r.env.dialControlOnce()
		if err != nil {
			return slowReportTimeout
		}
		defer dialed.Close()
		client = dialed
	}
	answer, err := client.ReportConsumer(ctx, &api.ReportConsumerRequest{Consumer: told})
	if err != nil {
		return slowReportTimeout
	}
	return max(answer.Interval.AsDuration(), time.Second)
}

// reportSlow begins to tell the control plane of legs that do not keep up, until the route is opened again.
func (f *routeFeed) reportSlow(ctx context.Context, legs []farlog.RouteLeg) {
	if f.slow != nil {
		f.slow.end()
	}
	var streams []string
	for _, leg := range legs {
		streams = append(streams, leg.Name)
	}
	f.slow = newSlowReporter(ctx, f.env, f.client, streams...)
}

func (f *routeFeed) offerSlow(leg farlog.LegStats) {
	f.slow.offer(&api.SlowConsumer{
		Stream: leg.Name, Route: f.options.route, Holder: f.env.holder(f.options.name), LagBytes: leg.Behind,
		LostRecords: leg.Dropped,
		Reason:      cut(leg.Text, slowReasonMax),
	})
}
