// Command bench is the Go half of `make bench`: what the crossing into C costs, and the drain against a plain write of
// the same bytes. Result lines go to stdout, a table to stderr.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// result is one line of build/bench.json, as in rdma/bench/bench.h.
type result struct {
	Name    string   `json:"name"`
	Ours    float64  `json:"ours"`
	Floor   *float64 `json:"floor"`
	Ratio   *float64 `json:"ratio"`
	Unit    string   `json:"unit"`
	Flush   string   `json:"flush"`
	Level   string   `json:"level"`
	Note    string   `json:"note"`
	Machine string   `json:"machine"`
	Date    string   `json:"date"`
}

// report prints one case. floor 0 = there is none.
func report(r result, floor float64) error {
	r.Machine, r.Date = os.Getenv("FARLOG_BENCH_MACHINE"), os.Getenv("FARLOG_BENCH_DATE")
	shownFloor, shownRatio := "-", "-"
	if floor > 0 {
		ratio := r.Ours / floor
		r.Floor, r.Ratio = &floor, &ratio
		shownFloor, shownRatio = fmt.Sprintf("%.1f", floor), fmt.Sprintf("%.2f", ratio)
	}
	fmt.Fprintf(os.Stderr, "%-28s %10.1f %10s %7s  %-10s %s\n", r.Name, r.Ours, shownFloor, shownRatio, r.Unit, r.Note)
	return json.NewEncoder(os.Stdout).Encode(r)
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 4 && args[0] == drainChild {
		return drainOnce(args[1], args[2], args[3])
	}
	if len(args) == 4 && args[0] == scaleWrite {
		return scaleWriter(args[1], args[2], args[3])
	}
	if len(args) == 4 && args[0] == scaleDrain {
		return scaleDrains(args[1], args[2], args[3])
	}
	if len(args) > 0 && args[0] == "scale" {
		return benchScale(args[1:])
	}
	if len(args) > 0 && args[0] == "fabric" {
		return benchFabric(args[1:])
	}
	parts := []struct {
		name string
		run  func() error
	}{{"client", benchClient}, {"drain", benchDrain}, {"fanout", benchFanout}, {"lag", benchLag}}
	for _, part := range parts {
		if len(args) > 0 && !slices.Contains(args, part.name) {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}
