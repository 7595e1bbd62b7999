package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// ListenerSample is one ring at one listener for other hosts.
type ListenerSample struct {
	Stream, Transport string
	Counters          []DoorCounter
}

// DoorCounter is one number of the C core's table of a target's counters.
type DoorCounter struct {
	Name, Help string // the Name of a counter ends in _count
	IsGauge    bool
	Value      uint64
}

// NewListeners registers what a target counts of connections from other hosts. The names come from the C core's table:
// admitted_count is farlog_target_admitted_total, the gauge writer_count is farlog_target_writers.
func NewListeners(registry prometheus.Registerer, target string, samples func() []ListenerSample) {
	registry.MustRegister(listenerCollector{target, samples})
}

// UnauthenticatedSample is what came to one transport of a target by no grant that is known there.
type UnauthenticatedSample struct {
	Refused, Open uint64
	Closed        map[string]uint64 // by reason
}

// NewUnauthenticated registers what came to a target by no grant that is known there: no ring's counters have that.
// samples: by transport.
func NewUnauthenticated(
	registry prometheus.Registerer, target string, samples func() map[string]UnauthenticatedSample,
) {
	registry.MustRegister(unauthenticatedCollector{target, samples})
}

type unauthenticatedCollector struct {
	target  string
	samples func() map[string]UnauthenticatedSample
}

var (
	unauthenticatedDesc = desc("target", "unauthenticated_total",
		"Connections refused because their grant is not known here, or their protocol version is not farlog's, or "+
			"because they brought no connection request within the limits.", "target", "transport")
	unauthenticatedOpenDesc = desc("target", "unauthenticated_connections",
		"Connections that have brought no connection request yet.", "target", "transport")
	unauthenticatedClosedDesc = desc("target", "unauthenticated_closed_total",
		"Connections closed because they brought no connection request: too many of one address, too many in all, few "+
			"descriptors left, or late.", "target", "transport", "reason")
)

func (c unauthenticatedCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- unauthenticatedDesc
	descs <- unauthenticatedOpenDesc
	descs <- unauthenticatedClosedDesc
}

func (c unauthenticatedCollector) Collect(metrics chan<- prometheus.Metric) {
	for transport, sample := range c.samples() {
		metrics <- prometheus.MustNewConstMetric(unauthenticatedDesc, prometheus.CounterValue, float64(sample.Refused),
			c.target, transport)
		metrics <- prometheus.MustNewConstMetric(unauthenticatedOpenDesc, prometheus.GaugeValue, float64(sample.Open),
			c.target, transport)
		for reason, count := range sample.Closed {
			metrics <- prometheus.MustNewConstMetric(unauthenticatedClosedDesc, prometheus.CounterValue, float64(count),
				c.target, transport, reason)
		}
	}
}

type listenerCollector struct {
	target  string
	samples func() []ListenerSample
}

// Describe gives nothing: what there is depends on the core's table.
func (c listenerCollector) Describe(chan<- *prometheus.Desc) {}

func (c listenerCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, sample := range c.samples() {
		for _, counter := range sample.Counters {
			name, isCount := strings.CutSuffix(counter.Name, "_count")
			kind := prometheus.CounterValue
			switch {
			case !counter.IsGauge:
				name += "_total"
			case isCount:
				name, kind = name+"s", prometheus.GaugeValue
			default:
				kind = prometheus.GaugeValue
			}
			metrics <- prometheus.MustNewConstMetric(desc("target", name, counter.Help, "stream", "target",
				"transport"), kind, float64(counter.Value), sample.Stream, c.target, sample.Transport)
		}
	}
}
