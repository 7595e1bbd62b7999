package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ReplicaSample is how far a second store is behind the first with one stream.
type ReplicaSample struct {
	Stream         string
	Records, Bytes uint64 // since the replica started
	LagBytes       uint64
	LagAge         time.Duration
	IsLagKnown     bool // the first store was asked since the replica started
	IsFailing      bool
}

var (
	replicaRecords = desc("replica", "records_total", "Records copied since the replica started.", "stream")
	replicaBytes   = desc("replica", "copied_bytes_total", "Bytes copied since the replica started.", "stream")
	replicaLag     = desc("replica", "lag_bytes", "Bytes synced in the first store and not here, as it was asked "+
		"last; absent until it was asked since the replica started.", "stream")
	replicaAge = desc("replica", "lag_seconds", "Time since this store last had all that the first store had, or "+
		"since the replica started.", "stream")
	replicaFailing = desc("replica", "failing", "1 while copying the stream is stopped by an error.", "stream")
	replicaSource  = desc("replica", "source_up", "1 while the first store answers.")
)

type replicaCollector struct {
	samples func() ([]ReplicaSample, bool)
}

// NewReplica registers how a second store follows the first; the bool reports whether that answers.
func NewReplica(registry prometheus.Registerer, samples func() ([]ReplicaSample, bool)) {
	registry.MustRegister(replicaCollector{samples})
}

func (c replicaCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		replicaRecords, replicaBytes, replicaLag, replicaAge, replicaFailing,
		replicaSource,
	} {
		descs <- one
	}
}

func (c replicaCollector) Collect(metrics chan<- prometheus.Metric) {
	samples, isUp := c.samples()
	metrics <- gauge(replicaSource, number(isUp))
	for _, sample := range samples {
		metrics <- counter(replicaRecords, sample.Records, sample.Stream)
		metrics <- counter(replicaBytes, sample.Bytes, sample.Stream)
		if sample.IsLagKnown {
			metrics <- gauge(replicaLag, float64(sample.LagBytes), sample.Stream)
		}
		metrics <- gauge(replicaAge, sample.LagAge.Seconds(), sample.Stream)
		metrics <- gauge(replicaFailing, number(sample.IsFailing), sample.Stream)
	}
}
