package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewClockJumps registers how often the clock of the host was set, and by how much the last time.
func NewClockJumps(registry prometheus.Registerer, sample func() (count uint64, last time.Duration)) {
	registry.MustRegister(
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: namespace, Subsystem: "clock", Name: "jumps_total",
			Help: "Times the host's clock was set by more than half a second.",
		}, func() float64 {
			count, _ := sample()
			return float64(count)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Subsystem: "clock", Name: "jump_seconds",
			Help: "By how much the host's clock was set the last time, ahead or (negative) back; 0: not since the " +
				"start.",
		}, func() float64 {
			_, last := sample()
			return last.Seconds()
		}))
}
