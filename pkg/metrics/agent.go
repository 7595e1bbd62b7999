package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewAgent registers whether an agent (role target, drain or host) reaches its control plane. An agent that does not
// goes on with what it knows: this is the number that tells.
func NewAgent(registry prometheus.Registerer, role string, isConnected func() bool) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: role, Name: "control_connected",
		Help: "1 while the control plane takes this agent's reports.",
	}, func() float64 { return number(isConnected()) }))
}
