package metrics

import (
	"sort"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RingSample is one ring as its target sees it.
type RingSample struct {
	Stream, Target, Region, FlushMethod, Level string
	IsReady                                    bool // false: the ring is not there; the rest is zero

	CapacityBytes, HeadLSN, CreditLSN, AppendedLSN, DurableLSN uint64
	LagBytes, LagRecords                                       uint64
	LagAge                                                     time.Duration
	TimeToFull                                                 time.Duration // only when IsFilling
	IsFilling                                                  bool
	WriterEpoch, EpochMin                                      uint32
	IsWriterHeld, IsDrainHeld                                  bool

	Writer *WriterSample // nil: its counters cannot be seen from here
}

// WriterSample is what a writer exports in shared memory.
type WriterSample struct {
	Records, PayloadBytes, Flushes, Full, Fenced, Unknown, TooLarge, Warnings, Alarms, Orphans uint64
	Pressure                                                                                   uint64
	// clockErrorUnknown = unknown
	ClockErrorNS uint64
	// 0: no record waits for an acknowledgement
	StalledFor time.Duration
	// of what was acknowledged, or waited for in vain
	LatencyMax time.Duration
	Latency    Histogram
	// in the order of the stream's URIs; none of a stream with one ring
	Members []MemberSample
}

// MemberSample is what a writer exports of one ring of a stream that has several.
type MemberSample struct {
	State, ConfirmedLSN, LagBytes, HeadLSN uint64
	Demotions, Evictions, Rejoins          uint64
}

// Histogram is a latency histogram as the C core keeps it: non-empty buckets with their upper bounds, in order.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets []HistogramBucket
}

// HistogramBucket counts the values above the bucket before it and up to UpperBound.
type HistogramBucket struct {
	UpperBound time.Duration
	Count      uint64
}

const clockErrorUnknown = 0xFFFFFFFF

// appendBuckets are the classic buckets of append latencies, in seconds: 50 ns to 1 s.
var appendBuckets = []float64{
	50e-9, 100e-9, 200e-9, 300e-9, 500e-9, 750e-9, 1e-6, 2e-6, 3e-6, 5e-6, 7.5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6,
	500e-6,
	1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 100e-3, 1,
}

// ringMetric is one line of the table that makes ring metrics.
type ringMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(RingSample) (float64, bool) // false: not exported now
}

type writerMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*WriterSample) float64
}

var ringReady = desc("ring", "ready", "1 when the target provides the ring.", "stream", "target")

var ringMetrics = []ringMetric{
	ringGauge("capacity_bytes", "Size of the ring's data.",
		func(s RingSample) float64 { return float64(s.CapacityBytes) }),
	ringGauge("head_lsn", "First LSN that is not yet in the store.",
		func(s RingSample) float64 { return float64(s.HeadLSN) }),
	ringGauge("credit_lsn", "The head as the writer knows it.",
		func(s RingSample) float64 { return float64(s.CreditLSN) }),
	ringGauge("appended_lsn", "First LSN that is not yet appended.",
		func(s RingSample) float64 { return float64(s.AppendedLSN) }),
	ringGauge("durable_lsn", "First LSN that is not yet durable.",
		func(s RingSample) float64 { return float64(s.DurableLSN) }),
	ringGauge("lag_bytes", "Bytes appended and not yet stored.",
		func(s RingSample) float64 { return float64(s.LagBytes) }),
	ringGauge("lag_records", "Records appended and not yet stored.",
		func(s RingSample) float64 { return float64(s.LagRecords) }),
	ringGauge("lag_seconds", "Age of the oldest record that is not yet stored.",
		func(s RingSample) float64 { return s.LagAge.Seconds() }),
	ringGauge("full_ratio", "Share of the ring in use, 0 to 1.", fullRatio),
	ringGauge("writer_epoch", "Epoch of the present or last writer.",
		func(s RingSample) float64 { return float64(s.WriterEpoch) }),
	ringGauge("fence_epoch", "Writers of lower epochs must stop.",
		func(s RingSample) float64 { return float64(s.EpochMin) }),
	ringGauge("writer_held", "1 while a living process holds the ring for writing.",
		func(s RingSample) float64 { return number(s.IsWriterHeld) }),
	ringGauge("drain_held", "1 while a living process holds the ring for draining.",
		func(s RingSample) float64 { return number(s.IsDrainHeld) }),
	{
		desc: desc("ring", "time_to_full_seconds",
			"Time until the ring is full at the present rates; absent while it is not filling.", "stream", "target"),
		kind: prometheus.GaugeValue,
		value: func(s RingSample) (float64, bool) {
			return s.TimeToFull.Seconds(), s.IsFilling
		},
	},
}

var writerMetrics = []writerMetric{
	writerCounter("records_total", "Records appended by the present or last writer.",
		func(w *WriterSample) uint64 { return w.Records }),
	writerCounter("payload_bytes_total", "Payload and key bytes appended.",
		func(w *WriterSample) uint64 { return w.PayloadBytes }),
	writerCounter("flushes_total", "Flushes completed.", func(w *WriterSample) uint64 { return w.Flushes }),
	writerCounter("full_total", "Appends refused because the ring was full.",
		func(w *WriterSample) uint64 { return w.Full }),
	writerCounter("fenced_total", "Appends refused because the writer was fenced.",
		func(w *WriterSample) uint64 { return w.Fenced }),
	writerCounter("unknown_total", "Appends whose outcome was unknown at their deadline.",
		func(w *WriterSample) uint64 { return w.Unknown }),
	writerCounter("too_large_total", "Appends refused because the record was too large.",
		func(w *WriterSample) uint64 { return w.TooLarge }),
	writerCounter("warnings_total", "Times the ring passed its warning threshold.",
		func(w *WriterSample) uint64 { return w.Warnings }),
	writerCounter("alarms_total", "Times the ring passed its alarm threshold.",
		func(w *WriterSample) uint64 { return w.Alarms }),
	writerCounter("orphans_total", "Records behind an unreadable one, dropped when the writer opened: whether they "+
		"were acknowledged is not known.", func(w *WriterSample) uint64 { return w.Orphans }),
	{
		desc("writer", "stalled_seconds",
			"Time for which records have waited for an acknowledgement and none has come, 0 while none waits.",
			"stream", "target"),
		prometheus.GaugeValue, func(w *WriterSample) float64 { return w.StalledFor.Seconds() },
	},
	{
		desc("writer", "append_max_seconds", "Longest time from the call of append to its acknowledgement, of the "+
			"present or last writer; what is still waited for counts.", "stream", "target"),
		prometheus.GaugeValue,
		func(w *WriterSample) float64 { return max(w.LatencyMax, w.StalledFor).Seconds() },
	},
	{
		desc("writer", "pressure", "0 below the warning threshold, 1 from it on, 2 from the alarm threshold "+
			"on.", "stream", "target"),
		prometheus.GaugeValue, func(w *WriterSample) float64 { return float64(w.Pressure) },
	},
}

type memberMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(MemberSample) uint64
}

var memberMetrics = []memberMetric{
	memberMetricOf("state", "1 up, 2 catching up, 3 away, 4 late: demoted, 5 out until the next writer.",
		prometheus.GaugeValue, func(m MemberSample) uint64 { return m.State }),
	memberMetricOf("lag_bytes", "Undrained bytes sent to members that this member has not confirmed.",
		prometheus.GaugeValue, func(m MemberSample) uint64 { return m.LagBytes }),
	memberMetricOf("confirmed_lsn", "First LSN that the member has not confirmed.", prometheus.GaugeValue,
		func(m MemberSample) uint64 { return m.ConfirmedLSN }),
	memberMetricOf("head_lsn", "First LSN not yet stored, as the member keeps it.", prometheus.GaugeValue,
		func(m MemberSample) uint64 { return m.HeadLSN }),
	memberMetricOf("demotions_total", "Times it missed its deadline and was demoted.", prometheus.CounterValue,
		func(m MemberSample) uint64 { return m.Demotions }),
	memberMetricOf("evictions_total", "Times it was evicted after an error.", prometheus.CounterValue,
		func(m MemberSample) uint64 { return m.Evictions }),
	memberMetricOf("rejoins_total", "Times it joined or rejoined after the writer had opened.",
		prometheus.CounterValue, func(m MemberSample) uint64 { return m.Rejoins }),
}

var (
	writerClockKnown = desc("writer", "clock_known", "1 while the error of the writer's timestamps has a known bound.",
		"stream", "target")
	writerClockError = desc("writer", "clock_error_seconds",
		"Bound on the error of the writer's timestamps; absent while unknown.", "stream", "target")
	writerAppend = desc("writer", "append_seconds", "Time from the call of append to its acknowledgement.",
		"stream", "target", "level", "flush", "region")
)

func ringGauge(name, help string, value func(RingSample) float64) ringMetric {
	return ringMetric{
		desc("ring", name, help, "stream", "target"), prometheus.GaugeValue,
		func(s RingSample) (float64, bool) { return value(s), true },
	}
}

func writerCounter(name, help string, value func(*WriterSample) uint64) writerMetric {
	return writerMetric{
		desc("writer", name, help, "stream", "target"), prometheus.CounterValue,
		func(w *WriterSample) float64 { return float64(value(w)) },
	}
}

func memberMetricOf(name, help string, kind prometheus.ValueType, value func(MemberSample) uint64) memberMetric {
	return memberMetric{desc("writer", "member_"+name, help, "stream", "target", "member"), kind, value}
}

func fullRatio(s RingSample) float64 {
	if s.CapacityBytes == 0 {
		return 0
	}
	return float64(s.AppendedLSN-s.HeadLSN) / float64(s.CapacityBytes)
}

// NewRings registers the metrics of the rings that samples gives at the time of the scrape.
func NewRings(registry prometheus.Registerer, samples func() []RingSample) {
	registry.MustRegister(ringCollector{samples})
}

type ringCollector struct{ samples func() []RingSample }

func (c ringCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- ringReady
	for _, one := range ringMetrics {
		descs <- one.desc
	}
	for _, one := range writerMetrics {
		descs <- one.desc
	}
	for _, one := range memberMetrics {
		descs <- one.desc
	}
	descs <- writerClockKnown
	descs <- writerClockError
	descs <- writerAppend
}

func (c ringCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, sample := range c.samples() {
		metrics <- gauge(ringReady, number(sample.IsReady), sample.Stream, sample.Target)
		if !sample.IsReady {
			continue
		}
		for _, one := range ringMetrics {
			if value, ok := one.value(sample); ok {
				metrics <- prometheus.MustNewConstMetric(one.desc, one.kind, value, sample.Stream, sample.Target)
			}
		}
		if sample.Writer != nil {
			collectWriter(metrics, sample)
		}
	}
}

func collectWriter(metrics chan<- prometheus.Metric, sample RingSample) {
	for _, one := range writerMetrics {
		metrics <- prometheus.MustNewConstMetric(one.desc, one.kind, one.value(sample.Writer), sample.Stream,
			sample.Target)
	}
	for i, member := range sample.Writer.Members {
		for _, one := range memberMetrics {
			metrics <- prometheus.MustNewConstMetric(one.desc, one.kind, float64(one.value(member)), sample.Stream,
				sample.Target, strconv.Itoa(i+1))
		}
	}
	isKnown := sample.Writer.ClockErrorNS != clockErrorUnknown
	metrics <- gauge(writerClockKnown, number(isKnown), sample.Stream, sample.Target)
	if isKnown {
		metrics <- gauge(writerClockError, float64(sample.Writer.ClockErrorNS)/1e9, sample.Stream, sample.Target)
	}
	latency := sample.Writer.Latency
	count, buckets := classic(latency.Buckets)
	metrics <- prometheus.MustNewConstHistogram(writerAppend, count, latency.Sum.Seconds(), buckets,
		sample.Stream, sample.Target, sample.Level, sample.FlushMethod, sample.Region)
}

// classic folds fine buckets into cumulative classic ones. A fine bucket counts where its upper bound fits, so that
// no latency is ever shown lower than it was. The total is that of the buckets themselves: the writer may be between
// two of its stores, and a histogram must agree with itself.
func classic(fine []HistogramBucket) (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(appendBuckets))
	counts := make([]uint64, len(appendBuckets)+1)
	for _, bucket := range fine {
		counts[sort.SearchFloat64s(appendBuckets, bucket.UpperBound.Seconds())] += bucket.Count
	}
	for i, bound := range appendBuckets {
		count += counts[i]
		buckets[bound] = count
	}
	return count + counts[len(appendBuckets)], buckets
}
