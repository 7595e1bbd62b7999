package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DrainSample is how far a drain has come with one stream.
type DrainSample struct {
	Stream                              string
	StoredLSN, HeadLSN                  uint64
	Records, Bytes, Batches, Duplicates uint64
	LagBytes                            uint64
	LagAge                              time.Duration
	UnconfirmedBytes                    uint64 // held back: fewer members than are needed have them
	IsFailing                           bool   // it reports an error and tries again
	Forged                              uint64 // records that were refused: no writer makes them
	IsSuspect                           bool   // bytes stand still where the next record would be, and are none
	// something that was acknowledged or stored is missing, and draining stands before it
	IsGap        bool
	LacksSegment bool // a file of the stream is not in the store any more
}

// Drain observes what a drain does; the samples are read at the time of the scrape.
type Drain struct {
	syncs   *prometheus.HistogramVec
	restart *prometheus.CounterVec
}

// NewDrain makes and registers the metrics of a drain.
func NewDrain(registry prometheus.Registerer, samples func() []DrainSample) *Drain {
	drain := &Drain{
		syncs: newLatency("store", "sync_seconds", "Time to make one batch durable in the store.", "stream"),
		restart: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "drain", Name: "restarts_total",
			Help: "Times the draining of a stream ended with an error and was restarted.",
		}, []string{"stream"}),
	}
	registry.MustRegister(drain.syncs, drain.restart, drainCollector{samples})
	return drain
}

// OnSync records one sync of the store.
func (d *Drain) OnSync(stream string, took time.Duration) {
	d.syncs.WithLabelValues(stream).Observe(took.Seconds())
}

// OnStart makes a stream's counters be there before there is anything to count.
func (d *Drain) OnStart(stream string) { d.restart.WithLabelValues(stream) }

// OnRestart records that draining a stream ended with an error.
func (d *Drain) OnRestart(stream string) { d.restart.WithLabelValues(stream).Inc() }

var (
	drainRecords    = desc("drain", "records_total", "Records stored since the drain started.", "stream")
	drainBytes      = desc("drain", "stored_bytes_total", "Bytes stored since the drain started.", "stream")
	drainBatches    = desc("drain", "batches_total", "Batches stored since the drain started.", "stream")
	drainDuplicates = desc("drain", "duplicates_total", "Records read again that the store already had.", "stream")
	drainStoredLSN  = desc("drain", "stored_lsn", "First LSN that is not yet synced in the store.", "stream")
	drainHeadLSN    = desc("drain", "head_lsn", "First LSN that the drain has not released to the writer.", "stream")
	drainLagBytes   = desc("drain", "lag_bytes", "Bytes appended and not yet stored, as the drain sees them.", "stream")
	drainLagSeconds = desc("drain", "lag_seconds",
		"Age of the oldest record that is not yet stored, as the drain sees it.", "stream")
	drainUnconfirmed = desc("drain", "unconfirmed_bytes", "Bytes in a stream's rings that fewer members have than "+
		"an acknowledgement needs, while no member is down: in flight, or left by a writer that died; then the "+
		"next writer keeps or drops them.", "stream")
	drainFailing = desc(
		"drain",
		"failing",
		"1 while the drain cannot read its ring or write to its store, and retries.",
		"stream",
	)
	drainGap = desc("drain", "gap", "1 while the drain is blocked before missing records: an acknowledged "+
		"record is unreadable, or the store has less than the ring has released.", "stream")
	drainLacks = desc("drain", "segment_missing", "1 while the drain is blocked because a segment or manifest of the "+
		"stream is not in the store any more.", "stream")
	drainSuspect = desc("drain", "suspect", "1 while invalid bytes lie where the next record would be: torn by a "+
		"writer that died, or overwritten by a client.", "stream")
	drainForged = desc("drain", "forged_total", "Records refused because no writer makes them, although their "+
		"checksum is right; GAP records are in their place.", "stream")
)

type drainCollector struct{ samples func() []DrainSample }

func (c drainCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		drainRecords, drainBytes, drainBatches, drainDuplicates, drainStoredLSN,
		drainHeadLSN,
		drainLagBytes, drainLagSeconds, drainUnconfirmed, drainFailing, drainGap, drainSuspect, drainForged,
		drainLacks,
	} {
		descs <- one
	}
}

func (c drainCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, sample := range c.samples() {
		metrics <- counter(drainRecords, sample.Records, sample.Stream)
		metrics <- counter(drainBytes, sample.Bytes, sample.Stream)
		metrics <- counter(drainBatches, sample.Batches, sample.Stream)
		metrics <- counter(drainDuplicates, sample.Duplicates, sample.Stream)
		metrics <- gauge(drainStoredLSN, float64(sample.StoredLSN), sample.Stream)
		metrics <- gauge(drainHeadLSN, float64(sample.HeadLSN), sample.Stream)
		metrics <- gauge(drainLagBytes, float64(sample.LagBytes), sample.Stream)
		metrics <- gauge(drainLagSeconds, sample.LagAge.Seconds(), sample.Stream)
		metrics <- gauge(drainUnconfirmed, float64(sample.UnconfirmedBytes), sample.Stream)
		metrics <- gauge(drainFailing, number(sample.IsFailing), sample.Stream)
		metrics <- gauge(drainGap, number(sample.IsGap), sample.Stream)
		metrics <- gauge(drainLacks, number(sample.LacksSegment), sample.Stream)
		metrics <- gauge(drainSuspect, number(sample.IsSuspect), sample.Stream)
		metrics <- counter(drainForged, sample.Forged, sample.Stream)
	}
}
