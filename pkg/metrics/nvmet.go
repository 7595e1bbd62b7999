package metrics

import "github.com/prometheus/client_golang/prometheus"

// NVMeTSample is how the kernel's NVMe target stands to what is declared of it.
type NVMeTSample struct {
	IsDeclared      bool // something was, by a file or by the fabric; else there is nothing to tell
	IsAsDeclared    bool
	Steps, Failures uint64
	Namespaces      []NamespaceSample // that the fabric declares
}

// NamespaceSample is a namespace that the fabric declares of a target's host.
type NamespaceSample struct {
	Name, Subsystem string
	IsExported      bool
}

var (
	nvmetUpDesc   = desc("target", "nvmet_up", "1 while the kernel's NVMe target is as declared.")
	nvmetStepDesc = desc("target", "nvmet_step_total",
		"Steps taken to bring the kernel's NVMe target to what is declared.")
	nvmetFailureDesc = desc("target", "nvmet_failure_total",
		"Checks of the kernel's NVMe target that ended with an error.")
)

var namespaceUpDesc = desc("target", "namespace_up",
	"1 while a namespace that the fabric declares is exported at every port.", "namespace", "subsystem")

type nvmetCollector struct{ sample func() NVMeTSample }

// NewNVMeT registers them.
func NewNVMeT(registry prometheus.Registerer, sample func() NVMeTSample) {
	registry.MustRegister(nvmetCollector{sample})
}

func (c nvmetCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- nvmetUpDesc
	descs <- nvmetStepDesc
	descs <- nvmetFailureDesc
	descs <- namespaceUpDesc
}

func (c nvmetCollector) Collect(metrics chan<- prometheus.Metric) {
	sample := c.sample()
	for _, one := range sample.Namespaces {
		metrics <- prometheus.MustNewConstMetric(namespaceUpDesc, prometheus.GaugeValue, number(one.IsExported),
			one.Name, one.Subsystem)
	}
	if !sample.IsDeclared {
		return
	}
	metrics <- prometheus.MustNewConstMetric(nvmetUpDesc, prometheus.GaugeValue, number(sample.IsAsDeclared))
	metrics <- prometheus.MustNewConstMetric(nvmetStepDesc, prometheus.CounterValue, float64(sample.Steps))
	metrics <- prometheus.MustNewConstMetric(nvmetFailureDesc, prometheus.CounterValue, float64(sample.Failures))
}
