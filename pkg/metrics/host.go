package metrics

import "github.com/prometheus/client_golang/prometheus"

// HostSample is what a host agent has answered, and the writers that it let in.
type HostSample struct {
	Granted, Refused, Failed uint64
	Writers                  []HostWriterSample
}

// HostWriterSample is the present or last writer of a stream on this host; its counters outlive it.
type HostWriterSample struct {
	Stream, Target, Level string
	Writer                *WriterSample
}

var (
	hostGranted = desc("host", "grants_total", "Grants given to programs of this host.")
	hostRefused = desc("host", "refused_total", "Requests of programs of this host for something that is not, or that they may not have.")
	hostFailed  = desc("host", "failed_total", "Requests that got no grant because the control plane did not give one.")
)

// NewHost registers the metrics of a host agent. Those of writers are the ones that a target exports for writers on its own host.
func NewHost(registry prometheus.Registerer, sample func() HostSample) {
	registry.MustRegister(hostCollector{sample})
}

type hostCollector struct{ sample func() HostSample }

func (c hostCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- hostGranted
	descs <- hostRefused
	descs <- hostFailed
}

func (c hostCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	metrics <- counter(hostGranted, sample.Granted)
	metrics <- counter(hostRefused, sample.Refused)
	metrics <- counter(hostFailed, sample.Failed)
	for _, one := range sample.Writers {
		collectWriter(metrics, RingSample{Stream: one.Stream, Target: one.Target, Level: one.Level, Writer: one.Writer})
	}
}
