package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farlog/farlog/pkg/drain"
	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
)

const scaleStamps = "stamps" // when the last record of each ring was due: 8 bytes each

func openStamps(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, scaleStamps), os.O_RDWR, 0)
}

// scaleWriter appends to all rings in turn, each at the rate, from the first step until its input ends.
func scaleWriter(dir, streams, rate string) error {
	count, err := strconv.Atoi(streams)
	if err != nil {
		return err
	}
	each, err := strconv.Atoi(rate)
	if err != nil {
		return err
	}
	stamps, err := openStamps(dir)
	if err != nil {
		return err
	}
	writers := make([]*farlog.Writer, count)
	for i := range writers {
		writers[i], err = farlog.OpenWriter(scaleRing(dir, i), farlog.WriterOptions{
			Level: farlog.LevelVisible, CountersDir: "none",
		})
		if err != nil {
			return err
		}
	}
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	var isOver atomic.Bool
	go func() { _, _ = input.ReadString('\n'); isOver.Store(true) }()
	payload, interval := make([]byte, payloadLen), time.Second/time.Duration(count*each)
	began := time.Now()
	for n := 0; !isOver.Load(); n++ {
		due := began.Add(time.Duration(n) * interval)
		if pause := time.Until(due); pause > 0 {
			time.Sleep(pause)
		}
		i := n % count
		stamp := binary.LittleEndian.AppendUint64(nil, uint64(due.UnixNano()))
		if _, err := stamps.WriteAt(stamp, int64(8*i)); err != nil {
			return err
		}
		if _, err := writers[i].Append(farlog.Entry{Data: payload, Class: 1}, time.Second); err != nil {
			return fmt.Errorf("append to ring %d: %w", i, err)
		}
	}
	return nil
}

// scaleMeasure is what the drains of a process note.
type scaleMeasure struct {
	isOn    atomic.Bool
	batches atomic.Uint64
	mutex   sync.Mutex
	lag     spread
}

func (m *scaleMeasure) note(stamps *os.File, ring int) {
	if !m.isOn.Load() {
		return
	}
	now, stamp := time.Now(), make([]byte, 8)
	if _, err := stamps.ReadAt(stamp, int64(8*ring)); err != nil {
		return
	}
	m.batches.Add(1)
	lag := time.Duration(now.UnixNano() - int64(binary.LittleEndian.Uint64(stamp)))
	m.mutex.Lock()
	m.lag.add(lag)
	m.mutex.Unlock()
}

// scaleDrains drains all rings; between two lines of its input it measures.
func scaleDrains(dir, disk, streams string) error {
	count, err := strconv.Atoi(streams)
	if err != nil {
		return err
	}
	stamps, err := openStamps(dir)
	if err != nil {
		return err
	}
	s, err := store.Open(filepath.Join(disk, "store"), store.Options{Create: true})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	measure, began := new(scaleMeasure), time.Now()
	var running, opening sync.WaitGroup
	opening.Add(count)
	for i := range count {
		note := func() { measure.note(stamps, i) }
		running.Go(func() {
			if err := runScaleDrain(ctx, s, scaleRing(dir, i), note, sync.OnceFunc(opening.Done)); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
				os.Exit(1)
			}
		})
	}
	opening.Wait()
	said := scaled{Opened: time.Since(began), EmptyBytes: diskBytes(disk)}
	fmt.Println("ready")
	if err := said.measure(measure, disk); err != nil {
		return err
	}
	cancel()
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(said)
}

func runScaleDrain(ctx context.Context, s *store.Store, uri string, note, opened func()) error {
	batches := uint64(0)
	return drain.Run(ctx, drain.Config{
		RingURI: uri, Store: s, Logger: slog.New(slog.DiscardHandler),
		OnOpen: func(*store.Appender) { opened() },
		OnProgress: func(p drain.Progress) {
			if p.Batches > batches {
				batches = p.Batches
				note()
			}
		},
	})
}

func (s *scaled) measure(measure *scaleMeasure, disk string) error {
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	cpu, began := processorTime(), time.Now()
	measure.isOn.Store(true)
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	measure.isOn.Store(false)
	s.CPU, s.Took = processorTime()-cpu, time.Since(began)
	s.Batches = measure.batches.Load()
	s.Lag = [3]time.Duration{measure.lag.quantile(0.5), measure.lag.quantile(0.99), measure.lag.max}
	s.UsedBytes = diskBytes(disk)
	var err error
	if s.RSSKB, err = maxRSS(); err != nil {
		return err
	}
	if s.Descriptors, err = entriesOf("/proc/self/fd"); err != nil {
		return err
	}
	s.Threads, err = entriesOf("/proc/self/task")
	return err
}

func entriesOf(dir string) (int, error) {
	names, err := os.ReadDir(dir)
	return len(names), err
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// diskBytes is what the files below a directory take of the disk.
func diskBytes(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if stat, isStat := info.Sys().(*syscall.Stat_t); isStat {
			total += stat.Blocks * 512
		}
		return nil
	})
	return total
}
