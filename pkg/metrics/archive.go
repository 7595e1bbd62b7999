package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ArchiveSample is how far one stream of a store is archived. Counts are since the uploader started.
type ArchiveSample struct {
	Stream                   string
	Segments, Objects, Bytes uint64
	Archived, Oldest         uint64 // segments; 0 = none
	LagBytes                 uint64
	Lag                      time.Duration
	IsLagKnown               bool // the archive and the store were asked
	IsFailing                bool
}

var (
	archiveSegments = desc("archive", "segments_total", "Segments committed since the uploader started.", "stream")
	archiveObjects  = desc("archive", "objects_total",
		"Objects put, or found in the archive, and read back, since the uploader started.", "stream")
	archiveBytes = desc("archive", "uploaded_bytes_total", "Bytes of those objects.", "stream")
	archiveLast  = desc("archive", "committed_segment", "Newest segment that is committed; 0 = none.", "stream")
	archiveLag   = desc(
		"archive",
		"lag_bytes",
		"Bytes of sealed segments that are not committed; absent until archive "+
			"and store were asked.",
		"stream",
	)
	archiveAge = desc(
		"archive",
		"lag_seconds",
		"Time since the oldest sealed segment that is not committed was sealed; "+
			"absent until archive and store were asked.",
		"stream",
	)
	archiveOldest = desc("archive", "oldest_unarchived_segment",
		"Oldest sealed segment that is not committed; 0 = none; absent until archive and store were asked.", "stream")
	archiveFailing = desc("archive", "failing", "1 while archiving the stream is stopped by an error.", "stream")
	archiveUp      = desc("archive", "up", "1 while the store can be listed and the archive is claimed.")
)

type archiveCollector struct {
	samples func() ([]ArchiveSample, bool)
}

// NewArchive registers how the archive of a store follows it; the bool reports whether both were found.
func NewArchive(registry prometheus.Registerer, samples func() ([]ArchiveSample, bool)) {
	registry.MustRegister(archiveCollector{samples})
}

func (c archiveCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		archiveSegments, archiveObjects, archiveBytes, archiveLast, archiveLag, archiveAge, archiveOldest,
		archiveFailing, archiveUp,
	} {
		descs <- one
	}
}

func (c archiveCollector) Collect(metrics chan<- prometheus.Metric) {
	samples, isUp := c.samples()
	metrics <- gauge(archiveUp, number(isUp))
	for _, sample := range samples {
		metrics <- counter(archiveSegments, sample.Segments, sample.Stream)
		metrics <- counter(archiveObjects, sample.Objects, sample.Stream)
		metrics <- counter(archiveBytes, sample.Bytes, sample.Stream)
		metrics <- gauge(archiveFailing, number(sample.IsFailing), sample.Stream)
		if !sample.IsLagKnown {
			continue
		}
		metrics <- gauge(archiveLast, float64(sample.Archived), sample.Stream)
		metrics <- gauge(archiveLag, float64(sample.LagBytes), sample.Stream)
		metrics <- gauge(archiveAge, sample.Lag.Seconds(), sample.Stream)
		metrics <- gauge(archiveOldest, float64(sample.Oldest), sample.Stream)
	}
}
