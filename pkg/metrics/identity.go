package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewIdentity exports when a role's own certificate ends; 0 while it has none.
func NewIdentity(registry *prometheus.Registry, role string, expires func() time.Time) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: role, Name: "certificate_expiry_timestamp_seconds", Help: "When this role's certificate ends, in seconds since 1970; 0 while it has none.",
	}, func() float64 {
		if at := expires(); !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	}))
}
