package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const benchResult = "build/testbed-bench.json"

// benchTries: when the guest's kernel schedules what is not quite the same each time, and an average shows it. What is slower is so every time.
const benchTries = 3

// benchLimits are ratios of ours to the bare program that may not be passed. The others are only told.
var benchLimits = map[string]float64{
	"verbs.append.256.rdma-flush": 1.05, "verbs.append.256.rdma-flush.mean": 1.10,
	"verbs.append.256.rdma-read": 1.05, "verbs.append.256.rdma-read.mean": 1.10,
	"verbs.submit.16.rdma-flush": 1.10, "verbs.submit.16.rdma-flush.mean": 1.10,
	"verbs.submit.16.rdma-read": 1.10, "verbs.submit.16.rdma-read.mean": 1.10,
}

// benchCounts are what an append posts.
var benchCounts = map[string]float64{
	"verbs.append.256.rdma-flush.requests": 2, "verbs.append.256.rdma-flush.doorbells": 1, "verbs.append.256.rdma-flush.completions": 1,
	"verbs.append.256.rdma-read.requests": 2, "verbs.append.256.rdma-read.doorbells": 1, "verbs.append.256.rdma-read.completions": 1,
}

// benchMost are instructions of ours in an append, on a processor without AVX-512: TCG's. More than that is a change to look at.
var benchMost = map[string]float64{"verbs.append.256.rdma-flush.instructions": 700}

// verbsBench compares an append over verbs: with a bare program that posts the same work requests, by a clock that counts instructions.
func verbsBench(ctx context.Context, b *bed) (string, error) {
	guest, err := b.boot(ctx, machine{name: "counting", isCounting: true})
	if err != nil {
		return "", err
	}
	if _, err := guest.Run(ctx, fmt.Sprintf("rxe-alone 10.7.0.1/24 %d", mtu)); err != nil {
		return "", err
	}
	environment := fmt.Sprintf("FARLOG_BENCH_MACHINE='QEMU TCG -icount, one processor, SoftRoCE' FARLOG_BENCH_DATE=%s", time.Now().UTC().Format(time.DateOnly))
	script := fmt.Sprintf("ulimit -l unlimited; export %s; bench_verbs_counts 10.7.0.1 && bench_verbs 10.7.0.1 && bench_verbs 10.7.0.1 instructions", environment)
	if err := os.MkdirAll(filepath.Dir(benchResult), 0o755); err != nil {
		return "", err
	}
	var seen []string
	for range benchTries {
		output, err := guest.Run(ctx, script)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(benchResult, []byte(output), 0o644); err != nil {
			return "", err
		}
		detail, err := judgeBench(output)
		if err == nil {
			seen = append(seen, detail, benchResult)
			return strings.Join(seen, "; "), guest.PowerOff(ctx)
		}
		seen = append(seen, err.Error())
	}
	return "", fmt.Errorf("in each of %d measurements: %s", benchTries, strings.Join(seen, "; "))
}

func judgeBench(output string) (string, error) {
	var seen, failed []string
	judged := 0
	for line := range strings.Lines(output) {
		var c struct {
			Name               string
			Ours, Floor, Ratio float64
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return "", fmt.Errorf("result line %q: %w", line, err)
		}
		if limit, is := benchLimits[c.Name]; is {
			judged++
			seen = append(seen, fmt.Sprintf("%s %.3f", c.Name, c.Ratio))
			if c.Ratio > limit {
				failed = append(failed, fmt.Sprintf("%s: %.0f ns against %.0f, ratio %.3f; at most %.2f is wanted", c.Name, c.Ours, c.Floor, c.Ratio, limit))
			}
		}
		if count, is := benchCounts[c.Name]; is {
			judged++
			if c.Ours != count {
				failed = append(failed, fmt.Sprintf("%s: %.0f, want %.0f", c.Name, c.Ours, count))
			}
		}
		if most, is := benchMost[c.Name]; is {
			judged++
			seen = append(seen, fmt.Sprintf("%s %.0f", c.Name, c.Ours))
			if c.Ours > most {
				failed = append(failed, fmt.Sprintf("%s: %.0f, at most %.0f is wanted", c.Name, c.Ours, most))
			}
		}
	}
	if wanted := len(benchLimits) + len(benchCounts) + len(benchMost); judged != wanted {
		failed = append(failed, fmt.Sprintf("%d of %d cases were measured", judged, wanted))
	}
	if len(failed) > 0 {
		return "", fmt.Errorf("%s", strings.Join(failed, "; "))
	}
	return strings.Join(seen, ", "), nil
}
