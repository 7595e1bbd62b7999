package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// The kernel's numbers have the units that adjtimex(2) gives them: the offset's depends on STA_NANO, the errors' does
// not.
func TestClockSample_Units(t *testing.T) {
	for _, test := range []struct {
		status int
		state  unix.Timex
		want   ClockSample
	}{
		{
			0,
			unix.Timex{Offset: -30, Esterror: 7, Maxerror: 900},
			ClockSample{true, -30 * time.Microsecond, 7 * time.Microsecond, 900 * time.Microsecond},
		},
		{
			0,
			unix.Timex{Offset: 30, Esterror: 7, Maxerror: 900, Status: 0x2001},
			ClockSample{true, 30 * time.Nanosecond, 7 * time.Microsecond, 900 * time.Microsecond},
		},
		{0, unix.Timex{Status: 0x40}, ClockSample{}},
		{5, unix.Timex{}, ClockSample{}},
	} {
		if got := clockSample(test.status, &test.state); got != test.want {
			t.Errorf("adjtimex %d %+v: %+v, expected %+v", test.status, test.state, got, test.want)
		}
	}
}

// An unknown clock has no offset and no error, and above all not 0.
func TestNewClock_SaysNothingOfAClockThatNobodyKeeps(t *testing.T) {
	sample, failure := ClockSample{
		IsSynchronised: true, Offset: -3 * time.Microsecond,
		ErrorEstimated: time.Microsecond, ErrorMax: time.Millisecond,
	}, error(nil)
	registry := prometheus.NewRegistry()
	NewClock(registry, func() (ClockSample, error) { return sample, failure })
	scrape := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]float64{}
		for _, family := range families {
			found[strings.TrimPrefix(family.GetName(), "farlog_clock_")] = value(family)
		}
		return found
	}
	if got := scrape(); len(got) != 4 || got["synchronized"] != 1 || got["offset_seconds"] != -3e-6 ||
		got["estimated_error_seconds"] != 1e-6 || got["error_seconds"] != 1e-3 {
		t.Errorf("of a clock that is kept: %v", got)
	}
	sample = ClockSample{ErrorMax: time.Second}
	if got := scrape(); len(got) != 1 || got["synchronized"] != 0 {
		t.Errorf("of a clock that nobody keeps: %v", got)
	}
	failure = errors.New("not permitted")
	if got := scrape(); len(got) != 0 {
		t.Errorf("where the kernel does not tell: %v", got)
	}
}

// What the keeper of the clock says has its name; where none tells there is nothing, and above all no 0.
func TestNewClockKeeper_SaysWhoToldIt(t *testing.T) {
	isKnown, registry := true, prometheus.NewRegistry()
	NewClockKeeper(registry, func() (string, float64, bool) { return "chrony", 12.5e-6, isKnown })
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "farlog_clock_keeper_offset_seconds" ||
		value(families[0]) != 12.5e-6 ||
		families[0].Metric[0].Label[0].GetName() != "keeper" || families[0].Metric[0].Label[0].GetValue() != "chrony" {
		t.Errorf("%v, %v", families, err)
	}
	isKnown = false
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("where nobody tells: %v, %v", families, err)
	}
}

// What the kernel of this machine says is taken.
func TestKernelClock(t *testing.T) {
	sample, err := KernelClock()
	if err != nil {
		t.Skipf("the kernel does not tell: %v", err)
	}
	if sample.IsSynchronised && (sample.ErrorMax <= 0 || sample.ErrorMax > time.Minute) {
		t.Errorf("%+v", sample)
	}
	t.Logf("%+v", sample)
}
