package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	blocksBenchResult = "build/testbed-bench-blocks.json"
	// What an NVMe device of flash takes for a small write, and the kernel's default of such a device in RAM.
	blocksBenchLatency = 10 * time.Microsecond
	// Of all that an append and the kernel below it execute ours may be so much more than bare io_uring. It is a mark
	// against growth: under this clock an instruction of ours counts as one of the kernel's, which on a processor takes
	// several times as long.
	blocksBenchMarked = "blocks.append.4096.p50"
	blocksBenchMost   = 1.12
)

// blocksBench compares appends to a ring in a namespace with bare io_uring and with fio, in turns, by a clock that
// counts instructions: what the device takes is the same each time, and the rest is the instructions of all that lie
// between, the kernel's among them.
func blocksBench(ctx context.Context, b *bed) (string, error) {
	guest, err := b.boot(ctx, machine{name: "counting", isCounting: true, isNewer: true, memoryMiB: 1024})
	if err != nil {
		return "", err
	}
	devices, err := guest.Run(ctx, fmt.Sprintf("blocks-up %d %s %s %s", blocksBenchLatency.Nanoseconds(), nvmeSubsystem,
		nvmeHostNQN("host"), nvmeHostID("host")))
	if err != nil {
		return "", err
	}
	process, err := b.start(guest, "bench",
		fmt.Sprintf("ulimit -l unlimited; export FARLOG_BENCH_SECONDS=0.2 FARLOG_BENCH_BLOCKS=%s FARLOG_BENCH_DATE=%s "+
			"FARLOG_BENCH_MACHINE='QEMU TCG -icount, one processor, nvmet over RAM of %s'; exec bench blocks-append",
			strings.TrimSpace(devices), time.Now().UTC().Format(time.DateOnly), blocksBenchLatency))
	if err != nil {
		return "", err
	}
	if err := process.Wait(ctx); err != nil {
		return "", fmt.Errorf("%w: %s", err, process.Stderr())
	}
	seen, err := judgeBlocks(process.Stdout())
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(blocksBenchResult), 0o755),
		os.WriteFile(blocksBenchResult, []byte(process.Stdout()), 0o644)); err != nil {
		return "", err
	}
	return strings.Join(append(seen, blocksBenchResult), "; "), guest.PowerOff(ctx)
}

func judgeBlocks(output string) (seen []string, err error) {
	isJudged := false
	j, err := judgeBench(output)
	if err != nil {
		return nil, err
	}
	for _, c := range j.cases {
		seen = append(seen, fmt.Sprintf("%s %.0f ns against %.0f, ratio %.3f", c.Name, c.Ours, c.Floor, c.Ratio))
		isJudged = isJudged || c.Name == blocksBenchMarked
		if c.Name == blocksBenchMarked && c.Ratio > blocksBenchMost {
			return nil, fmt.Errorf("%s; at most %.2f is wanted", seen[len(seen)-1], blocksBenchMost)
		}
	}
	if !isJudged {
		return nil, fmt.Errorf("%s was not measured: %s", blocksBenchMarked, output)
	}
	return seen, nil
}
