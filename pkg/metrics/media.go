package metrics

import "github.com/prometheus/client_golang/prometheus"

// MediaSample is what an NVMe device below a target's rings says of itself.
type MediaSample struct {
	Device                                string
	UsedRatio, SpareRatio, ThresholdRatio float64
	WrittenBytes                          uint64
	CriticalWarning                       uint32
}

var (
	mediaWear = desc("target", "wear_ratio",
		"Share of its endurance that a device below the rings has used, as it says; may pass 1.", "target", "device")
	mediaSpare = desc("target", "spare_ratio", "Share of its spare capacity that a device has left.", "target",
		"device")
	mediaThreshold = desc("target", "spare_threshold_ratio", "Share of its spare capacity below which a device warns.",
		"target", "device")
	mediaWritten = desc("target", "device_written_bytes_total",
		"Bytes written to a device in its whole life, as it counts.", "target", "device")
	mediaCritical = desc("target", "device_critical", "1 while a device gives a critical warning of its health.",
		"target", "device")
	regionWritten = desc("target", "region_written_bytes_total",
		"Bytes of records appended to the rings of a region since the target started.", "target", "region")
)

// NewMedia registers the wear of a target's devices, where they tell it, and what was written to its regions as farlog
// itself counts.
func NewMedia(registry prometheus.Registerer, target string, media func() []MediaSample,
	written func() map[string]uint64,
) {
	registry.MustRegister(mediaCollector{target, media, written})
}

type mediaCollector struct {
	target  string
	media   func() []MediaSample
	written func() map[string]uint64
}

func (c mediaCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		mediaWear, mediaSpare, mediaThreshold, mediaWritten, mediaCritical,
		regionWritten,
	} {
		descs <- one
	}
}

func (c mediaCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, one := range c.media() {
		metrics <- gauge(mediaWear, one.UsedRatio, c.target, one.Device)
		metrics <- gauge(mediaSpare, one.SpareRatio, c.target, one.Device)
		metrics <- gauge(mediaThreshold, one.ThresholdRatio, c.target, one.Device)
		metrics <- counter(mediaWritten, one.WrittenBytes, c.target, one.Device)
		metrics <- gauge(mediaCritical, number(one.CriticalWarning != 0), c.target, one.Device)
	}
	for region, count := range c.written() {
		metrics <- counter(regionWritten, count, c.target, region)
	}
}
