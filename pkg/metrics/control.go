package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// latencyBuckets are the classic buckets of every latency that is measured in Go: 100 us to 10 s. The native
// histogram beside them is finer.
var latencyBuckets = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5,
	5, 10,
}

// nativeFactor is the width of a native bucket: each at most 10 % above the one before.
const nativeFactor = 1.1

// Control counts what a control plane does. Its methods are the hooks of control.Config.
type Control struct {
	requests *prometheus.HistogramVec
	grants   *prometheus.CounterVec
}

// NewControl makes and registers the metrics of a control plane. states gives the condition of every stream at the
// time of the scrape.
func NewControl(registry prometheus.Registerer, states func() []StreamSample, instance func() InstanceSample) *Control {
	control := &Control{
		requests: newLatency("control", "request_seconds",
			"Time to answer a request; of a watch, the time it was open.", "method", "code"),
		grants: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "control", Name: "grants_total", Help: "Epochs handed out to writers.",
		}, []string{"stream"}),
	}
	registry.MustRegister(control.requests, control.grants, streamCollector{states}, instanceCollector{instance})
	return control
}

// OnRequest records one request.
func (c *Control) OnRequest(method, code string, took time.Duration) {
	c.requests.WithLabelValues(method, code).Observe(took.Seconds())
}

// OnGrant records one grant.
func (c *Control) OnGrant(stream string) { c.grants.WithLabelValues(stream).Inc() }

// newLatency makes a histogram in both forms: classic buckets for every Prometheus, native ones where they are on.
func newLatency(subsystem, name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help,
		Buckets: latencyBuckets, NativeHistogramBucketFactor: nativeFactor,
		NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// StreamSample is what the control plane knows of one stream.
type StreamSample struct {
	Stream       string
	Condition    string
	EpochGranted uint32
	IsDrainAlive bool
	Members      int // that it has
	MembersReady int // whose target lives and provides the ring
}

// InstanceSample is what one control plane knows of itself and of who reports to any of them.
type InstanceSample struct {
	IsLeading, IsEtcdSeen     bool
	IsEtcdDamaged             bool // the embedded one, which did not start
	TargetsAlive, DrainsAlive int
	ActsWaiting               int // for the audit stream, as the leader sees them
	ReportsUnstored           int // agents whose last report to this instance could not be stored
}

var (
	streamCondition = desc("stream", "condition_info", "1 for the condition that a stream is in.", "stream",
		"condition")
	streamEpoch   = desc("stream", "granted_epoch", "Last epoch handed out.", "stream")
	streamMembers = desc("stream", "members", "Members that the stream is declared with.", "stream")
	streamReady   = desc("stream", "members_ready", "Members whose target reports and provides the ring.", "stream")
	streamDrained = desc("stream", "drain_alive", "1 while the stream's drain reports.", "stream")
)

type streamCollector struct{ samples func() []StreamSample }

func (c streamCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{streamCondition, streamEpoch, streamDrained, streamMembers, streamReady} {
		descs <- one
	}
}

func (c streamCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, sample := range c.samples() {
		metrics <- gauge(streamCondition, 1, sample.Stream, sample.Condition)
		metrics <- gauge(streamEpoch, float64(sample.EpochGranted), sample.Stream)
		metrics <- gauge(streamDrained, number(sample.IsDrainAlive), sample.Stream)
		metrics <- gauge(streamMembers, float64(sample.Members), sample.Stream)
		metrics <- gauge(streamReady, float64(sample.MembersReady), sample.Stream)
	}
}

var (
	controlLeading = desc("control", "leader",
		"1 while this control plane is the leader, which places rings and assigns drains.")
	controlEtcd    = desc("control", "etcd_connected", "1 while this control plane reads and writes its etcd.")
	controlDamaged = desc(
		"control",
		"etcd_damaged",
		"1 while this control plane does not work because the files of its "+
			"embedded etcd are damaged.",
	)
	controlAgents = desc("control", "agents", "Agents that report.", "role")
	controlActs   = desc("control", "audit_events_pending", "Audit events that are not yet in the audit stream, as "+
		"the leader counts them, 0 at others; at 10000 administrative calls are refused.")
	controlReports = desc("control", "reports_unstored",
		"Agents whose last report to this control plane could not be stored in etcd.")
)

type instanceCollector struct{ sample func() InstanceSample }

func (c instanceCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		controlLeading, controlEtcd, controlDamaged, controlAgents, controlActs, controlReports,
	} {
		descs <- one
	}
}

func (c instanceCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	metrics <- gauge(controlLeading, number(sample.IsLeading))
	metrics <- gauge(controlEtcd, number(sample.IsEtcdSeen))
	metrics <- gauge(controlDamaged, number(sample.IsEtcdDamaged))
	metrics <- gauge(controlAgents, float64(sample.TargetsAlive), "target")
	metrics <- gauge(controlAgents, float64(sample.DrainsAlive), "drain")
	metrics <- gauge(controlActs, float64(sample.ActsWaiting))
	metrics <- gauge(controlReports, float64(sample.ReportsUnstored))
}

func desc(subsystem, name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, labels, nil)
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func counter(desc *prometheus.Desc, value uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value), labels...)
}

func number(claim bool) float64 {
	if claim {
		return 1
	}
	return 0
}
