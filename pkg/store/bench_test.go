package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const benchBatchBytes = 1 << 20

// benchRing makes records of 256 bytes: 192 of payload.
func benchRing() *storetest.Ring {
	ring := storetest.NewRing("bench", 1)
	ring.Capacity = 1 << 30
	return ring
}

func benchBatch(ring *storetest.Ring) []byte {
	ring.Records = ring.Records[:0]
	payload := make([]byte, 192)
	for range benchBatchBytes / 256 {
		ring.AppendPayload(payload)
	}
	return storetest.Batch(ring.Records)
}

// BenchmarkAppendSync puts batches of 1 MiB into the store and onto the disk, hash and index included, and in turn with
// each the same bytes by plain write and fdatasync into preallocated files of the same size: the floor. Both get new
// blocks.
func BenchmarkAppendSync(b *testing.B) {
	dir := b.TempDir()
	s, err := store.Open(filepath.Join(dir, "store"), store.Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	ring := benchRing()
	a, err := s.OpenStream(ring.Source)
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := a.Append(storetest.Batch(ring.Records)); err != nil {
		b.Fatal(err)
	}
	plain := &plainFile{b: b, dir: dir}
	var ours, floor []time.Duration
	b.SetBytes(benchBatchBytes)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		batch := benchBatch(ring)
		plain.makeRoom(len(batch))
		floor = append(floor, plain.write(batch))
		b.StartTimer()
		start := time.Now()
		if _, _, err := a.Append(batch); err != nil {
			b.Fatal(err)
		}
		if err := a.Sync(); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(start))
	}
	b.StopTimer()
	b.ReportMetric(micros(ours, 0.5), "ours-p50-µs")
	b.ReportMetric(micros(floor, 0.5), "floor-p50-µs")
	b.ReportMetric(micros(ours, 0.5)/micros(floor, 0.5), "ratio-p50")
	b.ReportMetric(total(ours)/total(floor), "ratio-total")
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
}

func micros(all []time.Duration, quantile float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return float64(sorted[int(quantile*float64(len(sorted)-1))].Nanoseconds()) / 1000
}

func total(all []time.Duration) float64 {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum.Seconds()
}

// plainFile is the floor: a preallocated file, a new one every 64 MiB.
type plainFile struct {
	b     *testing.B
	dir   string
	file  *os.File
	count int
	off   int64
}

func (p *plainFile) makeRoom(length int) {
	if p.file != nil && p.off+int64(length) <= store.SegmentBytesDefault {
		return
	}
	if p.file != nil {
		p.file.Close()
	}
	p.count++
	file, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("plain%d", p.count)))
	if err != nil {
		p.b.Fatal(err)
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, store.SegmentBytesDefault); err != nil {
		p.b.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		p.b.Fatal(err)
	}
	p.file, p.off = file, 0
}

func (p *plainFile) write(batch []byte) time.Duration {
	start := time.Now()
	if _, err := p.file.WriteAt(batch, p.off); err != nil {
		p.b.Fatal(err)
	}
	if err := unix.Fdatasync(int(p.file.Fd())); err != nil {
		p.b.Fatal(err)
	}
	p.off += int64(len(batch))
	return time.Since(start)
}

// BenchmarkVerify checks a store of 128 MiB.
func BenchmarkVerify(b *testing.B) {
	s, err := store.Open(filepath.Join(b.TempDir(), "store"), store.Options{Create: true})
	if err != nil {
		b.Fatal(err)
	}
	ring := benchRing()
	a, err := s.OpenStream(ring.Source)
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := a.Append(storetest.Batch(ring.Records)); err != nil {
		b.Fatal(err)
	}
	const batches = 128
	for range batches {
		if _, _, err := a.Append(benchBatch(ring)); err != nil {
			b.Fatal(err)
		}
	}
	if err := a.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(batches * benchBatchBytes)
	for b.Loop() {
		report, err := s.Verify(context.Background(), store.VerifyOptions{})
		if err != nil || !report.OK() {
			b.Fatal(err, report)
		}
	}
}

// BenchmarkPlan is the walk over the headers of a batch that an append makes.
func BenchmarkPlan(b *testing.B) {
	batch := benchBatch(benchRing())
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		for rest := batch; len(rest) > 0; {
			h, err := record.ParseHeader(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[h.StoredLen(64):]
		}
	}
}
