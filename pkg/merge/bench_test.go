package merge_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// BenchmarkMerge puts the records of 16, 64 and 256 streams in the page cache into one order, on one processor: reading
// and checking every record, choosing, hashing and writing the order. 192 bytes of payload.
func BenchmarkMerge(b *testing.B) {
	for _, streams := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) { benchmarkMerge(b, streams) })
	}
}

func benchmarkMerge(b *testing.B, streams int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s, err := store.Open(b.TempDir(), store.Options{Create: true, SegmentBytes: 4 << 20})
	must(b, err)
	const records = 1 << 19
	fill(b, s, streams, records)
	var used time.Duration
	b.ResetTimer()
	for range b.N {
		before := processorTime(b)
		m, err := merge.Open(s, merge.Options{})
		must(b, err)
		must(b, m.Finish(context.Background()))
		if got := m.Progress().Entries; got < records/2 {
			b.Fatalf("%d entries", got)
		}
		must(b, m.Close())
		used += processorTime(b) - before
		b.StopTimer()
		must(b, merge.Remove(s))
		b.StartTimer()
	}
	b.ReportMetric(float64(records)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(records)*float64(b.N)/used.Seconds(), "records/processor-s")
}

// processorTime is what this process has used by now: on a machine that is busy otherwise, it tells more than the time
// that went by.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func fill(b *testing.B, s *store.Store, streams, records int) {
	rng := rand.New(rand.NewPCG(1, 2))
	feeds := make([]*feed, streams)
	now := begin
	payload := string(make([]byte, 192))
	for i := range feeds {
		feeds[i] = &feed{source: store.Source{
			StreamName: fmt.Sprintf("desk%03d", i), StreamID: uint32(i),
			RingUUID: record.UUID{byte(i), 1}, Salt: 77, Align: 64, RecordLenMax: 4096,
		}}
		must(b, feeds[i].open(s))
		feeds[i].put(now, record.FlagEpoch, "")
	}
	for i := range records {
		now += rng.Uint64N(1000)
		f := feeds[rng.IntN(streams)]
		f.put(now, 0, payload)
		if len(f.ring) >= 1000 || i >= records-streams {
			flushFeed(b, f)
		}
	}
	for _, f := range feeds {
		flushFeed(b, f)
		must(b, f.app.Close())
	}
}

func flushFeed(b *testing.B, f *feed) {
	var batch []byte
	for _, rec := range f.ring {
		batch = append(batch, rec.Raw...)
	}
	_, _, err := f.app.Append(batch)
	must(b, err)
	f.ring = nil
}
