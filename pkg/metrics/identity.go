package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificates are those of a role.
type Certificates interface {
	NotAfter() time.Time
	IsListRefused() bool
}

// NewIdentity exports when a role's own certificate ends, 0 while it has none, and whether a list of revoked
// certificates lies there that is older than the one in force. find gives its certificates; an error: there are none
// yet.
func NewIdentity[C Certificates](registry *prometheus.Registry, role string, find func() (C, error)) {
	expires := func() time.Time {
		found, err := find()
		if err != nil {
			return time.Time{}
		}
		return found.NotAfter()
	}
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: role, Name: "certificate_expiry_timestamp_seconds",
		Help: "When this role's certificate ends, in seconds since 1970; 0 while it has none.",
	}, func() float64 {
		if at := expires(); !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	}))
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: role, Name: "revocation_list_refused", Help: "1 while the file with the " +
			"list of revoked certificates has one older than that in force, which was there before; else 0.",
	}, func() float64 {
		if found, err := find(); err == nil && found.IsListRefused() {
			return 1
		}
		return 0
	}))
}
