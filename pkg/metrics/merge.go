package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MergeSample is how far the merged order of a store is.
type MergeSample struct {
	Records, Late, Early uint64 // since the drain started
	Streams, Absent      int
	OrderTime            time.Time // of the last record in the order; zero = none
	IsWaiting            bool      // records are held up by a stream that is behind
	IsFailing            bool
}

var (
	mergeRecords = desc("merge", "records_total", "Records put into the merged order since the drain started.")
	mergeLate    = desc("merge", "late_total", "Records merged after the limit of waiting for their stream.")
	mergeEarly   = desc("merge", "early_total", "Records merged whose time was too far ahead of this host's clock.")
	mergeStreams = desc("merge", "streams", "Streams in the merged order.")
	mergeAbsent  = desc("merge", "absent_streams",
		"Streams that merging does not wait for: they deliver neither records nor heartbeats.")
	mergeLag = desc("merge", "lag_seconds",
		"How far the merged order is behind the clock while records wait for a slow stream; else 0.")
	mergeFailing = desc("merge", "failing", "1 while merging is stopped by an error.")
)

type mergeCollector struct {
	sample func() (MergeSample, bool)
}

// NewMerge registers how far the merged order of a drain's store is; false: none is made.
func NewMerge(registry prometheus.Registerer, sample func() (MergeSample, bool)) {
	registry.MustRegister(mergeCollector{sample})
}

func (c mergeCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		mergeRecords, mergeLate, mergeEarly, mergeStreams, mergeAbsent, mergeLag,
		mergeFailing,
	} {
		descs <- one
	}
}

func (c mergeCollector) Collect(metrics chan<- prometheus.Metric) {
	sample, isOn := c.sample()
	if !isOn {
		return
	}
	lag := 0.0
	if sample.IsWaiting && !sample.OrderTime.IsZero() {
		lag = max(0, time.Since(sample.OrderTime).Seconds())
	}
	metrics <- counter(mergeRecords, sample.Records)
	metrics <- counter(mergeLate, sample.Late)
	metrics <- counter(mergeEarly, sample.Early)
	metrics <- gauge(mergeStreams, float64(sample.Streams))
	metrics <- gauge(mergeAbsent, float64(sample.Absent))
	metrics <- gauge(mergeLag, lag)
	metrics <- gauge(mergeFailing, number(sample.IsFailing))
}
