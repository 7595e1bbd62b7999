package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

// Many streams into one store: rings in memory, one process that writes them all at a steady rate, and one that drains
// them. `gobench scale 10000 1 20`: streams, records a second of each, seconds.
const (
	scaleDrain     = "scale-drain" // the drains run in a process of their own, so that its memory is its own
	scaleWrite     = "scale-write"
	scaleRingBytes = 0x3000 + 64<<10
	scaleRecordMax = 4 << 10
	scaleTimeout   = 10 * time.Minute
)

// scaled is what the drains say.
type scaled struct {
	Opened      time.Duration // all streams of an empty store
	EmptyBytes  int64         // on the disk, before the first record
	UsedBytes   int64         // on the disk, in the end
	RSSKB       int64         // most that was resident
	Descriptors int
	Threads     int
	Batches     uint64
	Lag         [3]time.Duration // p50, p99, max
	CPU, Took   time.Duration
}

func benchScale(args []string) error {
	if len(args) != 3 {
		return errors.New("expected: scale STREAMS RECORDS-A-SECOND SECONDS")
	}
	seconds, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	rings, err := os.MkdirTemp(shmDir(), "farlog-bench-scale-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(rings)
	disk, err := diskDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(disk)
	if err := makeScaleRings(rings, args[0]); err != nil {
		return err
	}
	said, err := runScale(rings, disk, args[0], args[1], time.Duration(seconds)*time.Second)
	if err != nil {
		return err
	}
	return reportScale(args[0], args[1], said)
}

func scaleRing(dir string, i int) string {
	return "mem:" + filepath.Join(dir, fmt.Sprintf("ring%d", i))
}

func makeScaleRings(dir, streams string) error {
	count, err := strconv.Atoi(streams)
	if err != nil {
		return err
	}
	for i := range count {
		err := farlog.Format(scaleRing(dir, i), farlog.FormatOptions{
			SizeBytes: scaleRingBytes, RecordLenMax: scaleRecordMax, StreamName: fmt.Sprintf("desk%d/orders", i),
			StreamID: uint32(i + 1), Salt: uint64(i + 1),
		})
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, scaleStamps), make([]byte, 8*count), 0o600)
}

// scaleChild is one of the two processes; it says "ready" and waits for a line before each step.
type scaleChild struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func startScaleChild(args ...string) (*scaleChild, error) {
	c := &scaleChild{command: exec.Command(os.Args[0], args...)}
	c.command.Stderr = os.Stderr
	in, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	return c, c.await()
}

func (c *scaleChild) await() error {
	timer := time.AfterFunc(scaleTimeout, func() { _ = c.command.Process.Kill() })
	defer timer.Stop()
	if _, err := c.out.ReadString('\n'); err != nil {
		return fmt.Errorf("%s: %w", c.command.Args[1], err)
	}
	return nil
}

func (c *scaleChild) step() error {
	_, err := io.WriteString(c.in, "\n")
	return err
}

func (c *scaleChild) end() error { return errors.Join(c.in.Close(), c.command.Wait()) }

func runScale(rings, disk, streams, rate string, length time.Duration) (said scaled, err error) {
	drains, err := startScaleChild(scaleDrain, rings, disk, streams)
	if err != nil {
		return said, err
	}
	defer func() { err = errors.Join(err, drains.end()) }()
	writers, err := startScaleChild(scaleWrite, rings, streams, rate)
	if err != nil {
		return said, err
	}
	defer func() { err = errors.Join(err, writers.end()) }()
	if err := writers.step(); err != nil {
		return said, err
	}
	time.Sleep(5 * time.Second) // the streams' first records are behind them
	if err := drains.step(); err != nil {
		return said, err
	}
	time.Sleep(length)
	if err := drains.step(); err != nil {
		return said, err
	}
	return said, json.NewDecoder(drains.out).Decode(&said)
}

func reportScale(streams, rate string, said scaled) error {
	name := fmt.Sprintf("scale.%s x %s/s", streams, rate)
	seconds := said.Took.Seconds()
	for _, one := range []result{
		{Name: name + " open", Ours: said.Opened.Seconds(), Unit: "s"},
		{Name: name + " empty disk", Ours: float64(said.EmptyBytes) / (1 << 30), Unit: "GiB"},
		{Name: name + " disk", Ours: float64(said.UsedBytes) / (1 << 30), Unit: "GiB"},
		{Name: name + " resident", Ours: float64(said.RSSKB) / 1024, Unit: "MiB"},
		{Name: name + " descriptors", Ours: float64(said.Descriptors)},
		{Name: name + " threads", Ours: float64(said.Threads)},
		{Name: name + " syncs", Ours: float64(said.Batches) / seconds, Unit: "/s"},
		{Name: name + " lag p50", Ours: said.Lag[0].Seconds() * 1e3, Unit: "ms"},
		{Name: name + " lag p99", Ours: said.Lag[1].Seconds() * 1e3, Unit: "ms"},
		{Name: name + " lag max", Ours: said.Lag[2].Seconds() * 1e3, Unit: "ms"},
		{Name: name + " processor", Ours: said.CPU.Seconds() / seconds * 100, Unit: "% of a core"},
	} {
		one.Flush, one.Level = "fdatasync", "stored"
		if err := report(one, 0); err != nil {
			return err
		}
	}
	return nil
}
