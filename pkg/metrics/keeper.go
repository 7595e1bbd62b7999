package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/farlog/farlog/pkg/internal/keeper"
)

var keeperOffset = prometheus.NewDesc("farlog_clock_keeper_offset_seconds", "How far this host's clock is off, "+
	"either way, as chrony or else ptp4l reports; absent while neither answers.", []string{"keeper"}, nil)

// NewClockKeeper registers what who keeps the clock says of it, in seconds. read must not wait for it.
func NewClockKeeper(registry prometheus.Registerer, read func() (keeper string, offset float64, isKnown bool)) {
	registry.MustRegister(keeperCollector{read})
}

// AskKeeper has chrony, or else ptp4l, asked by a goroutine of its own when somebody looks, every 15 s at most. What it
// said a minute ago is not known any more.
func AskKeeper() func() (string, float64, bool) {
	watch := keeper.NewWatch(keeper.Run)
	return func() (string, float64, bool) {
		reading, isKnown := watch.Newest()
		return reading.Keeper, reading.Offset, isKnown
	}
}

type keeperCollector struct {
	read func() (string, float64, bool)
}

func (c keeperCollector) Describe(descs chan<- *prometheus.Desc) { descs <- keeperOffset }

func (c keeperCollector) Collect(metrics chan<- prometheus.Metric) {
	if keeper, offset, isKnown := c.read(); isKnown {
		metrics <- gauge(keeperOffset, offset, keeper)
	}
}
