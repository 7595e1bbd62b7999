package store_test

import (
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// The hash of a segment lags behind its syncs and reads the caller's batch. These tests give batches that take long to
// hash, do at once what the contract of Append allows, and let Verify compare the digest that was signed with the bytes
// that were stored.
const (
	hashSegmentBytes = 1 << 20
	hashBatchRecords = 100 // about 200 KiB
)

func hashRounds(count int) int {
	if testing.Short() {
		return count / 2
	}
	return count
}

func newHashFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}
	f.ring.Capacity = 1 << 30
	var err error
	if f.store, err = store.Open("/store", store.Options{
		Create: true, FS: f.fs,
		SegmentBytes: hashSegmentBytes,
	}); err != nil {
		t.Fatal(err)
	}
	if f.app, err = f.store.OpenStream(f.ring.Source); err != nil {
		t.Fatal(err)
	}
	return f
}

// nextBatch gives records that the store has not, behind its last one.
func (f *fixture) nextBatch() []byte {
	from, last := 0, f.app.Last()
	for last.OK && from < len(f.ring.Records) && f.ring.Records[from].LSN <= last.LSN {
		from++
	}
	if from == len(f.ring.Records) {
		f.ring.Append(hashBatchRecords, 3900)
	}
	return storetest.Batch(f.ring.Records[from:min(len(f.ring.Records), from+hashBatchRecords)])
}

func (f *fixture) appendBatch(batch []byte) {
	f.t.Helper()
	if _, _, err := f.app.Append(batch); err != nil {
		f.t.Fatal(err)
	}
}

// expectSealed closes and verifies.
func (f *fixture) expectSealed(segments int) {
	f.t.Helper()
	f.close()
	report := f.verify()
	if report.Failure != nil {
		f.t.Fatal(report.Statement())
	}
	if report.SealedSegments < segments {
		f.t.Fatalf("%d segments are sealed, expected %d or more: the test proves nothing", report.SealedSegments,
			segments)
	}
	for i, item := range f.read(store.ReaderOptions{IncludeControl: true}) {
		if string(item.Raw) != string(f.ring.Records[i].Raw) {
			f.t.Fatalf("record %d is not what was appended", i)
		}
	}
}

func TestAppend_GivesTheBatchBeforeBack(t *testing.T) {
	for _, c := range []struct {
		name string
		next func(f *fixture, batch []byte) []byte // what the second Append gets
	}{
		{"to one that stores", func(f *fixture, _ []byte) []byte { return f.nextBatch() }},
		{"to one of duplicates alone", func(_ *fixture, batch []byte) []byte { return append([]byte(nil), batch...) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newHashFixture(t)
			for range hashRounds(30) {
				batch := f.nextBatch()
				f.appendBatch(batch)
				next := c.next(f, batch)
				f.appendBatch(next)
				for i := range batch {
					batch[i] = 0xa5
				}
				if err := f.app.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			f.expectSealed(2)
		})
	}
}

// A sync does not wait for the hash. When the next write or sync fails the hash must go back to what was synced, which
// it may not yet have reached.
func TestAppender_FailureTakesTheLaggingHashBack(t *testing.T) {
	random := rand.New(rand.NewPCG(seedOf(t), 5))
	f := newHashFixture(t)
	failures := 0
	isFailure := func(err error) bool {
		if err != nil && !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		if err != nil {
			failures++
		}
		return err != nil
	}
	for range hashRounds(150) {
		if random.IntN(4) == 0 {
			f.fs.FailNextWrite(syscall.EIO)
		}
		_, _, err := f.app.Append(f.nextBatch())
		f.fs.FailNextWrite(nil)
		if isFailure(err) || random.IntN(4) == 0 {
			continue
		}
		if random.IntN(3) == 0 {
			f.fs.FailNextSync(syscall.EIO)
		}
		isFailure(f.app.Sync())
		f.fs.FailNextSync(nil)
	}
	f.appendBatch(f.nextBatch())
	if failures == 0 {
		t.Error("nothing failed: the test proves nothing")
	}
	f.expectSealed(2)
}
