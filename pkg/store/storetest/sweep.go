package storetest

import (
	"testing"

	"github.com/farlog/farlog/pkg/internal/sweep"
)

// Sweep runs a scenario without a fault, and then with each fault of each call that it made, or a sample of them. run
// gives the calls into the file system and what is wrong; seed is another one for each run.
func Sweep(t *testing.T, sample *sweep.Sample, run func(seed uint64, fault Fault) ([]FaultCall, error)) {
	t.Helper()
	calls, err := run(sample.Seed, Fault{Call: -1})
	if err != nil || len(calls) == 0 {
		t.Fatalf("without a fault, %d calls: %v", len(calls), err)
	}
	runs := uint64(0)
	for _, fault := range Faults(calls) {
		if !sample.Includes() {
			continue
		}
		runs++
		if _, err := run(sample.Seed+runs, fault); err != nil {
			t.Errorf("seed %d: call %d of %d, %s, fails with %v, carried out: %v: %v", sample.Seed, fault.Call,
				len(calls), calls[fault.Call], fault.Err, fault.IsDone, err)
		}
	}
	t.Logf("%d runs of %d calls", runs, len(calls))
}
