package metrics

import "github.com/prometheus/client_golang/prometheus"

// NVMeTSample is how the kernel's NVMe target stands to what is declared of it.
type NVMeTSample struct {
	IsAsDeclared    bool
	Steps, Failures uint64
}

var (
	nvmetUpDesc   = desc("target", "nvmet_up", "1 while the kernel's NVMe target is as its file declares.")
	nvmetStepDesc = desc("target", "nvmet_step_total",
		"Steps taken to bring the kernel's NVMe target to what its file declares.")
	nvmetFailureDesc = desc("target", "nvmet_failure_total",
		"Checks of the kernel's NVMe target that ended with an error.")
)

type nvmetCollector struct{ sample func() NVMeTSample }

// NewNVMeT registers them.
func NewNVMeT(registry prometheus.Registerer, sample func() NVMeTSample) {
	registry.MustRegister(nvmetCollector{sample})
}

func (c nvmetCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- nvmetUpDesc
	descs <- nvmetStepDesc
	descs <- nvmetFailureDesc
}

func (c nvmetCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	metrics <- prometheus.MustNewConstMetric(nvmetUpDesc, prometheus.GaugeValue, number(sample.IsAsDeclared))
	metrics <- prometheus.MustNewConstMetric(nvmetStepDesc, prometheus.CounterValue, float64(sample.Steps))
	metrics <- prometheus.MustNewConstMetric(nvmetFailureDesc, prometheus.CounterValue, float64(sample.Failures))
}
