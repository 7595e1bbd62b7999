package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	payloadLen  = 192
	recordLen   = 256
	ringBytes   = 64 << 20
	clientCount = 100_000 // records between two drains: 25 MB of the ring
	roundCount  = 9
)

// ring is a ring on tmpfs with a drain that only releases.
type ring struct {
	path, uri string
	writer    *farlog.Writer
	drain     *farlog.Reader
	buf       []byte
}

func shmDir() string {
	if dir := os.Getenv("FARLOG_BENCH_DIR"); dir != "" {
		return dir
	}
	return "/dev/shm"
}

func makeRing(name string, size uint64) (*ring, error) {
	r := &ring{
		path: filepath.Join(shmDir(), fmt.Sprintf("farlog-bench-%d-%s", os.Getpid(), name)),
		buf:  make([]byte, 1<<20),
	}
	r.uri = "mem:" + r.path + "?flush=auto"
	err := farlog.Format(r.uri, farlog.FormatOptions{SizeBytes: size, StreamName: "bench", Force: true})
	if err != nil {
		return nil, err
	}
	r.writer, err = farlog.OpenWriter(r.uri, farlog.WriterOptions{Level: farlog.LevelVisible, CountersDir: "none"})
	return r, err
}

func (r *ring) close() {
	if r.drain != nil {
		r.drain.Close()
	}
	if r.writer != nil {
		r.writer.Close()
	}
	os.Remove(r.path)
}

// release empties the ring; the clock does not run meanwhile.
func (r *ring) release() error {
	if r.drain == nil {
		drain, err := farlog.OpenReader(r.uri, farlog.ReaderOptions{Drain: true})
		if err != nil {
			return err
		}
		r.drain = drain
	}
	for {
		batch, err := r.drain.Read(r.buf)
		if err != nil {
			return nil // nothing more
		}
		if err := r.drain.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
			return err
		}
	}
}

// appendMethod is one manner of appending clientCount records.
type appendMethod struct {
	name, note string
	append     func(*farlog.Writer, []byte) error
}

func appendSingly(w *farlog.Writer, payload []byte) error {
	for range clientCount {
		if _, err := w.Append(farlog.Entry{Data: payload, Class: 1}, time.Second); err != nil {
			return err
		}
	}
	return nil
}

func callOnly(w *farlog.Writer, _ []byte) error {
	for range clientCount {
		if _, err := w.Poll(); err != nil {
			return err
		}
	}
	return nil
}

func appendBatches(size int) func(*farlog.Writer, []byte) error {
	return func(w *farlog.Writer, payload []byte) error {
		entries := make([]farlog.Entry, size)
		positions := make([]farlog.Position, size)
		for i := range entries {
			entries[i] = farlog.Entry{Data: payload, Class: 1}
		}
		for count := 0; count < clientCount; count += size {
			if _, _, err := w.AppendBatch(entries, time.Second, positions); err != nil {
				return err
			}
		}
		return nil
	}
}

func benchClient() error {
	r, err := makeRing("client", ringBytes)
	if err != nil {
		return err
	}
	defer r.close()
	payload := make([]byte, payloadLen)
	ways := []appendMethod{
		{"go.call", "one call into C that finds nothing to do (Poll)", callOnly},
		{"go.append.256", "Append, one record a call", appendSingly},
		{"go.batch.256.32", "AppendBatch of 32", appendBatches(32)},
		{"go.batch.256.512", "AppendBatch of 512", appendBatches(512)},
	}
	took := make([][]time.Duration, len(ways))
	for range roundCount { // the ways take turns, so that noise meets all
		for i, w := range ways {
			start := time.Now()
			if err := w.append(r.writer, payload); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			took[i] = append(took[i], time.Since(start))
			if err := r.release(); err != nil {
				return err
			}
		}
	}
	for i, w := range ways {
		each := float64(median(took[i]).Nanoseconds()) / clientCount
		note := w.note
		if i > 0 {
			note += fmt.Sprintf(": %.0f records/s", 1e9/each)
		}
		err := report(result{
			Name: w.name, Ours: each, Unit: "ns", Flush: r.writer.Contract().FlushMethod,
			Level: "visible", Note: note,
		}, 0)
		if err != nil {
			return err
		}
	}
	return nil
}
