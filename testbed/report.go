package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// outcome is one line of the results.
type outcome struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail"`
}

// report writes outcomes as they come, so that a run that was cut off leaves those it had.
type report struct {
	file           *os.File
	passed, failed int
}

func newReport(path string) (*report, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &report{file: file}, nil
}

func (r *report) add(o outcome) error {
	o.Seconds = math.Round(o.Seconds*10) / 10
	verdict := "passed"
	if o.Passed {
		r.passed++
	} else {
		r.failed++
		verdict = "FAILED"
	}
	say("%s: %s in %.1f s: %s", o.Name, verdict, o.Seconds, o.Detail)
	return json.NewEncoder(r.file).Encode(o)
}

func (r *report) conclude() error {
	fmt.Printf("testbed: %d passed, %d failed\n", r.passed, r.failed)
	if r.failed > 0 {
		return errors.New("scenarios failed; their lines are in " + r.file.Name())
	}
	return nil
}

func (r *report) close() {
	r.file.Close()
}
