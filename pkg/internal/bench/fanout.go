package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

// One producer and five readers of one ring, in the shape of STAC-M2: from the moment at which a message is due to that at which a reader has it,
// checked and copied. The producer keeps to a rate and not to its readers (open loop): what it is late by counts.
const (
	fanoutReaders   = 5
	fanoutPayload   = 192
	fanoutRingBytes = 256 << 20
	fanoutPause     = 20 * time.Microsecond // of a reader that found nothing: there are fewer processors than readers
	fanoutTimeout   = 30 * time.Second
)

var fanoutRates = []int{1_000, 10_000, 50_000, 100_000, 200_000, 400_000}

// benchFanout goes up through the rates until one is not held: the producer then takes more than 1 % longer than it should.
func benchFanout() error {
	held := 0
	for _, rate := range fanoutRates {
		delays, took, err := fanoutOnce(rate)
		if err != nil {
			return err
		}
		if took > time.Second*101/100 {
			break
		}
		held = rate
		mean, deviation := moments(delays)
		slices.Sort(delays)
		note := fmt.Sprintf("1 producer, %d readers, %d bytes, %d messages a second", fanoutReaders, fanoutPayload, rate)
		for _, one := range []struct {
			what  string
			value float64
		}{{"mean", mean}, {"p99", float64(delays[len(delays)*99/100])}, {"deviation", deviation}} {
			if err := report(result{Name: fmt.Sprintf("fanout/%d/%s", rate, one.what), Ours: one.value / 1e3, Unit: "us", Flush: "none", Level: "visible", Note: note}, 0); err != nil {
				return err
			}
		}
	}
	return report(result{Name: "fanout/rate-held", Ours: float64(held), Unit: "messages/s", Flush: "none", Level: "visible",
		Note: fmt.Sprintf("highest of %v that the producer kept to within 1 %%, all of them read by each of %d readers", fanoutRates, fanoutReaders)}, 0)
}

// fanoutOnce runs one second at a rate. The delays are those of all readers.
func fanoutOnce(rate int) (delays []time.Duration, took time.Duration, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "farlog-bench-")
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	uri := "mem:" + filepath.Join(dir, "fanout.ring")
	if err := farlog.Format(uri, farlog.FormatOptions{SizeBytes: fanoutRingBytes, RecordLenMax: 4096, StreamName: "bench"}); err != nil {
		return nil, 0, err
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible})
	if err != nil {
		return nil, 0, err
	}
	defer writer.Close()
	began := time.Now().Add(50 * time.Millisecond)
	var readers sync.WaitGroup
	seen, errs := make([][]time.Duration, fanoutReaders), make([]error, fanoutReaders)
	for i := range fanoutReaders {
		readers.Go(func() { seen[i], errs[i] = receive(uri, began, rate) })
	}
	took, err = supply(writer, began, rate)
	readers.Wait()
	return slices.Concat(seen...), took, errors.Join(append(errs, err)...)
}

// supply appends each message when it is due, or at once when that has passed.
func supply(writer *farlog.Writer, began time.Time, rate int) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	payload := make([]byte, fanoutPayload)
	for i := range rate {
		due := time.Duration(i) * time.Second / time.Duration(rate)
		for wait := due - time.Since(began); wait > 0; wait = due - time.Since(began) {
			if wait > 100*time.Microsecond {
				time.Sleep(wait - 80*time.Microsecond)
			}
		}
		binary.LittleEndian.PutUint64(payload, uint64(due))
		if _, err := writer.Append(farlog.Entry{Data: payload, Class: 1}, time.Second); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// receive takes all messages in, in order and none left out, and says how long after each was due.
func receive(uri string, began time.Time, count int) ([]time.Duration, error) {
	reader, err := farlog.OpenReader(uri, farlog.ReaderOptions{})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	buf, delays := make([]byte, 1<<20), make([]time.Duration, 0, count)
	for len(delays) < count {
		batch, err := reader.Read(buf)
		if errors.Is(err, farlog.ErrNotYet) {
			if time.Since(began) > fanoutTimeout {
				return nil, fmt.Errorf("%d of %d messages after %s", len(delays), count, fanoutTimeout)
			}
			time.Sleep(fanoutPause)
			continue
		}
		if err != nil {
			return nil, err
		}
		now := time.Since(began)
		for rest := batch.Bytes; len(rest) > 0; {
			h, err := record.ParseHeader(rest)
			if err != nil {
				return nil, err
			}
			if h.Class == 1 && !h.Flags.IsControl() {
				due := time.Duration(binary.LittleEndian.Uint64(rest[record.HeaderLen:]))
				if want := time.Duration(len(delays)) * time.Second / time.Duration(count); due != want {
					return nil, fmt.Errorf("message %d is the one due at %s, expected %s", len(delays), due, want)
				}
				delays = append(delays, now-due)
			}
			rest = rest[h.StoredLen(record.AlignMin):]
		}
	}
	return delays, nil
}

// moments gives mean and standard deviation in nanoseconds.
func moments(delays []time.Duration) (mean, deviation float64) {
	for _, d := range delays {
		mean += float64(d) / float64(len(delays))
	}
	for _, d := range delays {
		deviation += (float64(d) - mean) * (float64(d) - mean) / float64(len(delays))
	}
	return mean, math.Sqrt(deviation)
}
