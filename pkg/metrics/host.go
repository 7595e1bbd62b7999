package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HostSample is what a host agent has answered, and the writers that it let in.
type HostSample struct {
	Granted, Refused, Failed uint64
	Writers                  []HostWriterSample
	Paths                    []HostPathSample
	Namespaces               []HostNamespaceSample
}

// HostNamespaceSample is a namespace that the fabric declares for the host.
type HostNamespaceSample struct {
	Target, Name, Subsystem string
	IsConnected             bool
}

// HostPathSample is how far the host is from a target's listener, of the last measurements.
type HostPathSample struct {
	Target, Listener string
	Least, Median    time.Duration
	IsKnown          bool // one of the last measurements succeeded
	Failures         uint64
}

// HostWriterSample is the present or last writer of a stream on this host; its counters outlive it.
type HostWriterSample struct {
	Stream, Target, Level string
	Writer                *WriterSample
}

var (
	hostGranted = desc("host", "grants_total", "Grants given to programs of this host.")
	hostRefused = desc("host", "refused_total",
		"Requests of programs of this host for a stream that does not exist or that they may not open.")
	hostLeast = desc("host", "rtt_min_seconds",
		"Minimum round-trip time of the last TCP handshakes with a target's listener; placement uses "+
			"it.", "target", "listener")
	hostMedian = desc("host", "rtt_median_seconds", "Median round-trip time of the last TCP handshakes with a "+
		"target's listener.", "target", "listener")
	hostMissed = desc("host", "rtt_failures_total", "TCP handshakes with a target's listener that "+
		"failed.", "target", "listener")
	hostNamespaceUp = desc("host", "namespace_up", "1 while a namespace that the fabric declares for this host is "+
		"connected.", "target_host", "namespace", "subsystem")
	hostFailed = desc("host", "failed_total", "Requests that got no grant because the control plane did not give one.")
)

// NewHost registers the metrics of a host agent. Those of writers are the ones that a target exports for writers on its
// own host.
func NewHost(registry prometheus.Registerer, sample func() HostSample) {
	registry.MustRegister(hostCollector{sample})
}

type hostCollector struct{ sample func() HostSample }

func (c hostCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- hostGranted
	descs <- hostRefused
	descs <- hostFailed
	descs <- hostLeast
	descs <- hostMedian
	descs <- hostMissed
	descs <- hostNamespaceUp
}

func (c hostCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	metrics <- counter(hostGranted, sample.Granted)
	metrics <- counter(hostRefused, sample.Refused)
	metrics <- counter(hostFailed, sample.Failed)
	for _, one := range sample.Paths {
		metrics <- counter(hostMissed, one.Failures, one.Target, one.Listener)
		if one.IsKnown {
			metrics <- gauge(hostLeast, one.Least.Seconds(), one.Target, one.Listener)
			metrics <- gauge(hostMedian, one.Median.Seconds(), one.Target, one.Listener)
		}
	}
	for _, one := range sample.Namespaces {
		metrics <- gauge(hostNamespaceUp, number(one.IsConnected), one.Target, one.Name, one.Subsystem)
	}
	for _, one := range sample.Writers {
		collectWriter(metrics, RingSample{Stream: one.Stream, Target: one.Target, Level: one.Level, Writer: one.Writer})
	}
}
