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
	wayIntervalDefault = 5 * time.Second // until the control plane says another
	wayReportTimeout   = 3 * time.Second
)

// wayMeter measures the ways to the targets that the control plane names, and tells it how long they are. Without a
// control plane it goes on measuring.
type wayMeter struct {
	client      api.HostServiceClient
	host        string
	logger      *slog.Logger
	ways        hostagent.Ways
	isConnected atomic.Bool // the last report reached the control plane
	link        *controlLink
	tell        func(now time.Time) []*api.HostWriter
	told        string // the failure that was written down last; of the goroutine that measures
}

// run measures and reports until ctx is done. A door that it hears of for the first time is measured and told at once.
func (m *wayMeter) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.ways.Measure(ctx)
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

func (m *wayMeter) report(ctx context.Context) (interval time.Duration, isNew bool) {
	call, cancel := context.WithTimeout(ctx, wayReportTimeout)
	defer cancel()
	response, err := m.client.ReportHost(call, &api.ReportHostRequest{State: m.state()})
	m.isConnected.Store(err == nil)
	m.link.note(err)
	if err != nil {
		if text := status.Convert(err).Message(); text != m.told && ctx.Err() == nil {
			m.told = text
			m.logger.Warn("the round-trip times to the targets could not be reported", "error", text)
		}
		return wayIntervalDefault, false
	}
	m.told = ""
	var doors []hostagent.Door
	for _, one := range response.Listeners {
		doors = append(doors, hostagent.Door{Target: one.Target, URI: one.Uri})
	}
	if interval = response.Interval.AsDuration(); interval < wayIntervalDefault/10 {
		interval = wayIntervalDefault
	}
	return interval, m.ways.Follow(doors)
}

func (m *wayMeter) state() *api.HostState {
	state := &api.HostState{Host: m.host, ReportTime: timestamppb.Now(), Writers: m.tell(time.Now())}
	for _, one := range m.ways.List() {
		way := &api.NetworkPath{Target: one.Target, Listener: one.URI, Count: uint32(one.Count), Error: one.Failure}
		if one.Count > 0 {
			way.RttMin, way.RttMedian, way.MeasureTime = durationpb.New(one.Least), durationpb.New(one.Median),
				timestamppb.New(one.Measured)
		}
		state.Paths = append(state.Paths, way)
	}
	return state
}

// samples are the ways for metrics.
func (m *wayMeter) samples() (samples []metrics.HostWaySample) {
	for _, one := range m.ways.List() {
		samples = append(samples, metrics.HostWaySample{
			Target: one.Target, Door: one.URI, Least: one.Least,
			Median: one.Median, IsKnown: one.Count > 0, Failures: one.Failures,
		})
	}
	return samples
}
