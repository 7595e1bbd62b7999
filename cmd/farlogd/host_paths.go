//go:build cgo

package main

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/hostagent"
	"github.com/farlog/farlog/pkg/metrics"
)

const (
	pathIntervalDefault = 5 * time.Second // until the control plane says another
	pathReportTimeout   = 3 * time.Second
)

// pathMeter measures the paths to the targets that the control plane names, and tells it how long they are. Without a
// control plane it goes on measuring.
type pathMeter struct {
	client      api.HostServiceClient
	host        string
	logger      *slog.Logger
	paths       hostagent.Paths
	isConnected atomic.Bool // the last report reached the control plane
	link        *controlLink
	tell        func(now time.Time) []*api.HostWriter
	clockJump   func() string // the last one of this host, for a while
	namespaces  *hostNamespaces
	told        string // the failure that was written down last; of the goroutine that measures
}

// run measures and reports until ctx is done. A listener that it learns of for the first time is measured and told at
// once.
func (m *pathMeter) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.paths.Measure(ctx)
		interval, isNew := m.report(ctx)
		if isNew {
			continue
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
		}
	}
}

func (m *pathMeter) report(ctx context.Context) (interval time.Duration, isNew bool) {
	call, cancel := context.WithTimeout(ctx, pathReportTimeout)
	defer cancel()
	response, err := m.client.ReportHost(call, &api.ReportHostRequest{State: m.state()})
	m.isConnected.Store(err == nil)
	m.link.note(err)
	if err != nil {
		if text := status.Convert(err).Message(); text != m.told && ctx.Err() == nil {
			m.told = text
			m.logger.Warn("the round-trip times to the targets could not be reported", "error", text)
		}
		return pathIntervalDefault, false
	}
	m.told = ""
	m.namespaces.follow(response.Namespaces)
	var listeners []hostagent.Listener
	for _, one := range response.Listeners {
		listeners = append(listeners, hostagent.Listener{Target: one.Target, URI: one.Uri})
	}
	if interval = response.Interval.AsDuration(); interval < pathIntervalDefault/10 {
		interval = pathIntervalDefault
	}
	return interval, m.paths.Follow(listeners)
}

func (m *pathMeter) state() *api.HostState {
	state := &api.HostState{
		Host: m.host, ReportTime: timestamppb.Now(), Writers: m.tell(time.Now()), ClockJump: m.clockJump(),
		Namespaces: m.namespaces.states(),
	}
	for _, one := range m.paths.List() {
		path := &api.NetworkPath{Target: one.Target, Listener: one.URI, Count: uint32(one.Count), Error: one.Failure}
		if one.Count > 0 {
			path.RttMin, path.RttMedian, path.MeasureTime = durationpb.New(one.Least), durationpb.New(one.Median),
				timestamppb.New(one.Measured)
		}
		state.Paths = append(state.Paths, path)
	}
	return state
}

// samples are the paths for metrics.
func (m *pathMeter) samples() (samples []metrics.HostPathSample) {
	for _, one := range m.paths.List() {
		samples = append(samples, metrics.HostPathSample{
			Target: one.Target, Listener: one.URI, Least: one.Least,
			Median: one.Median, IsKnown: one.Count > 0, Failures: one.Failures,
		})
	}
	return samples
}
