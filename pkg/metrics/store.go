package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreSample is what a drain knows of the store that it writes.
type StoreSample struct {
	FreeBytes uint64          // of its file system; 0 = it cannot be asked
	Verified  time.Time       // end of the last verification; zero = none since the drain started
	Took      time.Duration   // that one
	Damaged   map[string]bool // by stream, as the last verification found it
	// IsSigningFailing: what was to be signed last could not be.
	IsSigningFailing bool
}

var (
	storeFree     = desc("store", "free_bytes", "Free space of the store's file system.")
	storeVerified = desc("store", "verify_timestamp_seconds",
		"When the drain last read the whole store and checked it, in seconds since 1970; 0 = not since it started.")
	storeTook     = desc("store", "verify_seconds", "Duration of the last verification of the store.")
	storeUnsigned = desc("store", "signing_failing",
		"1 while nothing can be signed: segments grow, and are not sealed.")
	storeDamaged = desc("store", "verify_failed",
		"1 when the last verification found something missing, altered or out of order in the stream.", "stream")
)

type storeCollector struct{ sample func() StoreSample }

// NewStore registers how a drain's store is, as it was last looked at.
func NewStore(registry prometheus.Registerer, sample func() StoreSample) {
	registry.MustRegister(storeCollector{sample})
}

func (c storeCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{storeFree, storeVerified, storeTook, storeDamaged, storeUnsigned} {
		descs <- one
	}
}

func (c storeCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	if sample.FreeBytes > 0 {
		metrics <- gauge(storeFree, float64(sample.FreeBytes))
	}
	verified := 0.0
	if !sample.Verified.IsZero() {
		verified = float64(sample.Verified.UnixMilli()) / 1e3
	}
	metrics <- gauge(storeVerified, verified)
	metrics <- gauge(storeTook, sample.Took.Seconds())
	metrics <- gauge(storeUnsigned, number(sample.IsSigningFailing))
	for stream, isDamaged := range sample.Damaged {
		metrics <- gauge(storeDamaged, number(isDamaged), stream)
	}
}
