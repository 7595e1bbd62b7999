package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// ClockSample is what the kernel says of a host's clock, as whoever disciplines it (chrony, ntpd, ptp4l with phc2sys)
// has told it.
type ClockSample struct {
	IsSynchronised bool // somebody does; without that the rest means nothing
	Offset         time.Duration
	ErrorEstimated time.Duration
	ErrorMax       time.Duration
}

const (
	clockUnsync = 0x40   // STA_UNSYNC
	clockNano   = 0x2000 // STA_NANO: the offset is in nanoseconds, and not in microseconds
	clockError  = 5      // TIME_ERROR
)

var (
	clockSynchronised = prometheus.NewDesc("farlog_clock_synchronized",
		"1 while the kernel knows this host's clock to be disciplined.", nil, nil)
	clockOffset = prometheus.NewDesc("farlog_clock_offset_seconds", "Correction of the clock that the kernel has "+
		"still to apply; 0 where only its rate is steered, as chrony and phc2sys do.", nil, nil)
	clockEstimated = prometheus.NewDesc("farlog_clock_estimated_error_seconds",
		"The clock's error as estimated by the daemon that disciplines it.", nil, nil)
	clockErrorMax = prometheus.NewDesc("farlog_clock_error_seconds", "Bound on the distance of the clock from UTC.",
		nil, nil)
)

// NewClock registers the clock of this host. All but whether it is synchronised is absent when it is not.
func NewClock(registry prometheus.Registerer, read func() (ClockSample, error)) {
	registry.MustRegister(clockCollector{read})
}

type clockCollector struct{ read func() (ClockSample, error) }

func (c clockCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{clockSynchronised, clockOffset, clockEstimated, clockErrorMax} {
		descs <- one
	}
}

func (c clockCollector) Collect(metrics chan<- prometheus.Metric) {
	sample, err := c.read()
	if err != nil {
		return // a container that may not ask: nothing is known, not even that nobody keeps it
	}
	metrics <- gauge(clockSynchronised, number(sample.IsSynchronised))
	if !sample.IsSynchronised {
		return
	}
	metrics <- gauge(clockOffset, sample.Offset.Seconds())
	metrics <- gauge(clockEstimated, sample.ErrorEstimated.Seconds())
	metrics <- gauge(clockErrorMax, sample.ErrorMax.Seconds())
}

// KernelClock asks the kernel.
func KernelClock() (ClockSample, error) {
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	if err != nil {
		return ClockSample{}, fmt.Errorf("adjtimex: %w", err)
	}
	return clockSample(status, &state), nil
}

func clockSample(status int, state *unix.Timex) ClockSample {
	unit := time.Microsecond
	if state.Status&clockNano != 0 {
		unit = time.Nanosecond
	}
	return ClockSample{
		IsSynchronised: status != clockError && state.Status&clockUnsync == 0,
		Offset:         time.Duration(state.Offset) * unit,
		ErrorEstimated: time.Duration(state.Esterror) * time.Microsecond,
		ErrorMax:       time.Duration(state.Maxerror) * time.Microsecond,
	}
}
