package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farlog/farlog/testbed/vm"
)

const benchResult = "build/testbed-bench.json"

// benchTries: when the guest's kernel schedules what is not quite the same each time, and an average shows it. What is
// slower is so every time.
const benchTries = 5

// benchLimits are ratios of ours to the bare program that may not be passed. The others are only told.
var benchLimits = map[string]float64{
	"verbs.append.256.rdma-flush": 1.05, "verbs.append.256.rdma-flush.mean": 1.10,
	"verbs.append.256.rdma-flush.persistent": 1.05, "verbs.append.256.rdma-flush.persistent.mean": 1.10,
	"verbs.append.256.rdma-read": 1.05, "verbs.append.256.rdma-read.mean": 1.10,
	"verbs.submit.16.rdma-flush": 1.10, "verbs.submit.16.rdma-flush.mean": 1.10,
	"verbs.submit.16.rdma-read": 1.10, "verbs.submit.16.rdma-read.mean": 1.10,
	"verbs.submit.16.piece.rdma-flush": 1.10, "verbs.submit.16.piece.rdma-flush.mean": 1.10,
	"verbs.submit.16.piece.rdma-read": 1.10, "verbs.submit.16.piece.rdma-read.mean": 1.10,
}

// benchCounts are what an append posts.
var benchCounts = map[string]float64{
	"verbs.append.256.rdma-flush.requests": 2, "verbs.append.256.rdma-flush.doorbells": 1,
	"verbs.append.256.rdma-flush.completions": 1,
	"verbs.append.256.rdma-read.requests":     2, "verbs.append.256.rdma-read.doorbells": 1,
	"verbs.append.256.rdma-read.completions": 1,
}

// benchMost are counts that may not be passed. Instructions of ours in an append, on a processor without AVX-512,
// TCG's: more than that is a change to look at. READs of a drain per MB of a backlog, in batches of 1 MiB: with a look
// at the header for each batch there would be two.
var benchMost = map[string]float64{"verbs.append.256.rdma-flush.instructions": 599, "verbs.drain.reads": 1.5}

// benchModes are measured one after the other, each by a run of its own, and again by itself when a figure of it is
// above its mark.
var benchModes = []string{
	"bench_verbs_counts %s", "bench_verbs %s single", "bench_verbs %s queue",
	"bench_verbs %s persistent /dev/dax0.0", "bench_verbs %s drain",
	"bench_verbs %s instructions",
}

// verbsBench compares an append over verbs: with a bare program that posts the same work requests, by a clock that
// counts instructions.
func verbsBench(ctx context.Context, b *bed) (string, error) {
	const address = "10.7.0.1"
	guest, err := b.boot(ctx, machine{name: "counting", isCounting: true, hasNVDIMM: true})
	if err != nil {
		return "", err
	}
	if _, err := guest.Run(ctx, fmt.Sprintf("rxe-alone %s/24 %d && dax-up", address, mtu)); err != nil {
		return "", err
	}
	environment := fmt.Sprintf("ulimit -l unlimited; export FARLOG_BENCH_MACHINE='QEMU TCG -icount, one processor, "+
		"SoftRoCE' FARLOG_BENCH_DATE=%s; ",
		time.Now().UTC().Format(time.DateOnly))
	var seen []string
	var output strings.Builder
	judged := 0
	for _, mode := range benchModes {
		j, err := measure(ctx, guest, environment+fmt.Sprintf(mode, address))
		if err != nil {
			return "", err
		}
		seen = append(seen, j.seen...)
		judged += j.count
		output.WriteString(j.output)
	}
	if wanted := len(benchLimits) + len(benchCounts) + len(benchMost); judged != wanted {
		return "", fmt.Errorf("%d of %d cases were measured", judged, wanted)
	}
	if err := os.MkdirAll(filepath.Dir(benchResult), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(benchResult, []byte(output.String()), 0o644); err != nil {
		return "", err
	}
	return strings.Join(append(seen, benchResult), "; "), guest.PowerOff(ctx)
}

// measure runs a mode until nothing of it is above its mark, or benchTries times.
func measure(ctx context.Context, guest *vm.Guest, script string) (judgement, error) {
	var told []string
	for range benchTries {
		output, err := guest.Run(ctx, script)
		if err != nil {
			return judgement{}, err
		}
		j, err := judgeBench(output)
		if err != nil {
			return j, err
		}
		if len(j.failed) == 0 {
			if len(j.seen) > 0 {
				told = append(told, strings.Join(j.seen, ", "))
			}
			j.seen = told
			return j, nil
		}
		told = append(told, "measured again: "+strings.Join(j.failed, ", "))
	}
	return judgement{}, fmt.Errorf("in each of %d measurements: %s", benchTries, strings.Join(told, "; "))
}

// judgement of a mode's output.
type judgement struct {
	output string
	seen   []string // figures that have a mark
	failed []string // those above it
	count  int      // of figures that have a mark
	cases  []benchCase
}

func judgeBench(output string) (judgement, error) {
	j := judgement{output: output}
	for line := range strings.Lines(output) {
		var c benchCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return j, fmt.Errorf("result line %q: %w", line, err)
		}
		j.cases = append(j.cases, c)
		j.judge(&c)
	}
	return j, nil
}

// benchCase is one result line.
type benchCase struct {
	Name               string
	Ours, Floor, Ratio float64
}

func (j *judgement) judge(c *benchCase) {
	if limit, is := benchLimits[c.Name]; is {
		j.count++
		j.seen = append(j.seen, fmt.Sprintf("%s %.3f", c.Name, c.Ratio))
		if c.Ratio > limit {
			j.failed = append(j.failed, fmt.Sprintf("%s: %.0f ns against %.0f, ratio %.3f; at most %.2f is wanted",
				c.Name, c.Ours, c.Floor, c.Ratio, limit))
		}
	}
	if count, is := benchCounts[c.Name]; is {
		j.count++
		if c.Ours != count {
			j.failed = append(j.failed, fmt.Sprintf("%s: %.0f, want %.0f", c.Name, c.Ours, count))
		}
	}
	if most, is := benchMost[c.Name]; is {
		j.count++
		j.seen = append(j.seen, fmt.Sprintf("%s %.4g", c.Name, c.Ours))
		if c.Ours > most {
			j.failed = append(j.failed, fmt.Sprintf("%s: %.4g, at most %.4g is wanted", c.Name, c.Ours, most))
		}
	}
}
