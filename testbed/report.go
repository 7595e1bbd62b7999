package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// outcome is one line of the results.
type outcome struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	// Processor is what its guests took of the machine's processors.
	Processor float64 `json:"processor_seconds"`
	Detail    string  `json:"detail"`
}

// report writes outcomes as they come, so that a run that was cut off leaves those it had.
type report struct {
	file  *os.File
	began time.Time

	mu       sync.Mutex
	outcomes []outcome
}

func newReport(path string) (*report, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &report{file: file, began: time.Now()}, nil
}

func (r *report) add(o outcome) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Seconds, o.Processor = tenths(o.Seconds), tenths(o.Processor)
	r.outcomes = append(r.outcomes, o)
	say("%s: %s in %.1f s: %s", o.Name, o.verdict(), o.Seconds, o.Detail)
	return json.NewEncoder(r.file).Encode(o)
}

func tenths(value float64) float64 { return math.Round(value*10) / 10 }

func (o outcome) verdict() string {
	if o.Passed {
		return "passed"
	}
	return "FAILED"
}

// conclude prints what each took, the longest first.
func (r *report) conclude() error {
	slices.SortFunc(r.outcomes, func(a, b outcome) int { return cmp.Compare(b.Seconds, a.Seconds) })
	failed := 0
	fmt.Printf("%-24s %-7s %8s %12s\n", "scenario", "", "seconds", "processor-s")
	for _, o := range r.outcomes {
		fmt.Printf("%-24s %-7s %8.1f %12.1f\n", o.Name, o.verdict(), o.Seconds, o.Processor)
		if !o.Passed {
			failed++
		}
	}
	say("%d passed, %d failed in %.0f s", len(r.outcomes)-failed, failed, time.Since(r.began).Seconds())
	if failed > 0 {
		return errors.New("scenarios failed; their lines are in " + r.file.Name())
	}
	return nil
}

func (r *report) close() {
	r.file.Close()
}
