package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

const (
	drainChild     = "drain-once" // the drain runs in a process of its own, so that its memory is its own
	drainRingBytes = 256 << 20
	drainRounds    = 7
	batchBytes     = drain.BatchBytesDefault
	segmentBytes   = 64 << 20
)

// drained is what the child says.
type drained struct {
	Took     time.Duration
	Bytes    uint64
	Records  uint64
	MaxRSSKB int64
}

// drainOnce drains a ring up to endLSN and prints how long that took.
func drainOnce(uri, dir, end string) error {
	endLSN, err := strconv.ParseUint(end, 10, 64)
	if err != nil {
		return err
	}
	s, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var said drained
	var start time.Time // the first word comes when ring and stream are open; the floor's files are open too
	err = drain.Run(ctx, drain.Config{
		RingURI: uri, Store: s, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnProgress: func(p drain.Progress) {
			if start.IsZero() {
				start = time.Now()
			}
			if p.HeadLSN >= endLSN && said.Took == 0 {
				said = drained{Took: time.Since(start), Bytes: p.Bytes, Records: p.Records}
				cancel()
			}
		},
	})
	if err != nil {
		return err
	}
	said.MaxRSSKB, err = maxRSS()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

// maxRSS is the most memory that this process ever had resident, mapped ring included.
func maxRSS() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM line")
}

// plainWrite is the floor: the same bytes in the same batches, written and synced into files of a segment's size whose
// blocks are allocated.
func plainWrite(dir string, total uint64) (time.Duration, error) {
	batch := make([]byte, batchBytes)
	var file *os.File
	var took time.Duration
	for written := uint64(0); written < total; written += batchBytes {
		if written%segmentBytes == 0 {
			if file != nil {
				file.Close()
			}
			var err error
			file, err = os.Create(filepath.Join(dir, fmt.Sprintf("plain-%d", written/segmentBytes)))
			if err != nil {
				return 0, err
			}
			if err := syscall.Fallocate(int(file.Fd()), 0, 0, segmentBytes); err != nil {
				return 0, err
			}
			if err := file.Sync(); err != nil {
				return 0, err
			}
		}
		start := time.Now()
		if _, err := file.Write(batch); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(file.Fd())); err != nil {
			return 0, err
		}
		took += time.Since(start)
	}
	return took, file.Close()
}

func fill(w *farlog.Writer) (uint64, error) {
	const size = 256
	payload := make([]byte, payloadLen)
	entries := make([]farlog.Entry, size)
	positions := make([]farlog.Position, size)
	for i := range entries {
		entries[i] = farlog.Entry{Data: payload, Class: 1}
	}
	for used := uint64(0); used < drainRingBytes*9/10; used += size * recordLen {
		if _, _, err := w.AppendBatch(entries, time.Second, positions); err != nil {
			return 0, err
		}
	}
	return w.Cursors().AppendedLSN, nil
}

func drainInChild(uri, dir string, endLSN uint64) (said drained, err error) {
	child := exec.Command(os.Args[0], drainChild, uri, dir, strconv.FormatUint(endLSN, 10))
	child.Stderr = os.Stderr
	out, err := child.Output()
	if err != nil {
		return said, fmt.Errorf("drain: %w", err)
	}
	return said, json.Unmarshal(out, &said)
}

// drainRound fills a ring, drains it, and writes as many bytes plainly; the order of the last two alternates.
func drainRound(dir string, isFloorFirst bool) (said drained, floor time.Duration, err error) {
	r, err := makeRing("drain", drainRingBytes)
	if err != nil {
		return said, 0, err
	}
	defer r.close()
	endLSN, err := fill(r.writer)
	if err != nil {
		return said, 0, err
	}
	steps := []func() error{
		func() error { said, err = drainInChild(r.uri, filepath.Join(dir, "store"), endLSN); return err },
		func() error { floor, err = plainWrite(dir, endLSN/batchBytes*batchBytes); return err },
	}
	if isFloorFirst {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return said, 0, err
		}
	}
	return said, floor, nil
}

func diskDir() (string, error) {
	parent := os.Getenv("FARLOG_BENCH_DISK")
	parent = cmp.Or(parent, "build")
	return os.MkdirTemp(parent, "bench-store-")
}

func benchDrain() error {
	var ours, floors []time.Duration
	var last drained
	var rssMax int64
	for round := range drainRounds {
		dir, err := diskDir()
		if err != nil {
			return err
		}
		said, floor, err := drainRound(dir, round%2 == 1)
		os.RemoveAll(dir)
		if err != nil {
			return err
		}
		ours, floors, last, rssMax = append(ours, said.Took), append(floors, floor), said, max(rssMax, said.MaxRSSKB)
	}
	each := float64(median(ours).Nanoseconds()) / float64(last.Records)
	floorEach := float64(median(floors).Nanoseconds()) / float64(last.Records)
	note := fmt.Sprintf("%.0f records/s, %.0f MB/s; floor: write + fdatasync of 1 MiB", 1e9/each,
		float64(last.Bytes)/1e6/median(ours).Seconds())
	if err := report(result{
		Name: "drain.store", Ours: each, Unit: "ns", Flush: "fdatasync", Level: "stored",
		Note: note,
	}, floorEach); err != nil {
		return err
	}
	return report(result{
		Name: "drain.rss", Ours: float64(rssMax) / 1024, Unit: "MiB", Flush: "fdatasync",
		Level: "stored",
		Note:  "most that was resident, of a drain of a 256 MiB ring; at most 64 is wanted",
	}, 0)
}
