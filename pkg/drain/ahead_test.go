package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// Drains whose order is broken, for the tests that must notice.

func releaseBeforeSync(d *drainer, batch farlog.Batch) {
	_ = d.reader.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch) // a dead memory refuses it
}

func releaseReadAhead(d *drainer, _ farlog.Batch) {
	if a := d.ahead; a != nil && a.err == nil && d.appender.Sync() == nil {
		_ = d.reader.Release(a.batch.NextLSN, a.batch.NextSeq, a.batch.LastEpoch)
	}
}

// aheadBench is a ring with many batches in it, on a store that can crash.
type aheadBench struct {
	*bench
	disk *storetest.CrashFS
	want []string
	hook func(*drainer, farlog.Batch)
}

func newAheadBench(t *testing.T, seed uint64) *aheadBench {
	t.Helper()
	disk := storetest.NewCrashFS(seed)
	b := &aheadBench{disk: disk, bench: newBench(t, store.Options{
		FS: disk, SegmentBytes: 128 << 10,
		IsSynchronous: true,
	})}
	for i := range 40 {
		b.want = append(b.want, fmt.Sprint(i, strings.Repeat("x", 5000)))
	}
	b.append(b.want...)
	return b
}

func (b *aheadBench) open() (*drainer, error) {
	opened, err := store.Open("/store", store.Options{
		Create: true, FS: b.disk, SegmentBytes: 128 << 10,
		IsSynchronous: true,
	})
	if err != nil {
		return nil, err
	}
	config := b.config()
	config.Store, config.BatchBytes, config.afterAppend = opened, 16<<10, b.hook
	d, err := open(context.Background(), config)
	if err == nil {
		d.buffers.class = len(readBuffers) - 1 // as behind a large batch
	}
	return d, err
}

// drain steps until the ring is empty. aheadCount is how many batches were read ahead.
func (b *aheadBench) drain() (aheadCount int, err error) {
	d, err := b.open()
	if err != nil {
		return 0, err
	}
	for isIdle := false; !isIdle && err == nil; {
		isIdle, err = d.step(context.Background())
		if d.ahead != nil && d.ahead.err == nil {
			aheadCount++
		}
	}
	if closeErr := d.close(); err == nil {
		err = closeErr
	}
	return aheadCount, err
}

// drainRest drains with everything whole and says how the store differs from what was appended. A store that has less
// than the ring released is ErrStoreBehind.
func (b *aheadBench) drainRest() error {
	b.hook = nil
	if _, err := b.drain(); err != nil {
		return err
	}
	if got := b.stored(); strings.Join(got, "\n") != strings.Join(b.want, "\n") {
		return fmt.Errorf("the store has %d records %.40q, expected %d", len(got), got, len(b.want))
	}
	return nil
}

// crashAtEach cuts the disk's power at each of its operations in turn, and comes up again.
func crashAtEach(t *testing.T, hook func(*drainer, farlog.Batch)) (crashes, aheadCount int, err error) {
	for operation := 0; ; operation++ {
		b := newAheadBench(t, uint64(operation))
		b.hook = hook
		b.disk.CrashAfter(operation)
		count, err := b.drain()
		aheadCount += count
		isPast := !b.disk.IsCrashed()
		if isPast && err != nil {
			return operation, aheadCount, err
		}
		b.disk.Crash()
		if err := b.drainRest(); err != nil {
			return operation, aheadCount, fmt.Errorf("crash in operation %d: %w", operation, err)
		}
		b.writer.Close()
		if isPast {
			return operation, aheadCount, nil
		}
	}
}

// A crash of the store at any point, most of them while the batch behind is already read, loses nothing that was
// released.
func TestStep_CrashWhileTheNextBatchIsRead(t *testing.T) {
	crashes, aheadCount, err := crashAtEach(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d crashes, %d batches read ahead", crashes, aheadCount); crashes < 50 || aheadCount < crashes {
		t.Errorf("%d crashes, %d batches read ahead: the test proves nothing", crashes, aheadCount)
	}
}

func TestStep_CrashCatchesTheMutants(t *testing.T) {
	for _, c := range []struct {
		name string
		hook func(*drainer, farlog.Batch)
	}{
		{"head released before the store synced", releaseBeforeSync},
		{"head released up to what was only read ahead", releaseReadAhead},
	} {
		t.Run(c.name, func(t *testing.T) {
			crashes, _, err := crashAtEach(t, c.hook)
			if err == nil {
				t.Fatalf("not caught in %d crashes", crashes)
			}
			t.Logf("caught after %d crashes: %v", crashes, err)
		})
	}
}

// The sync of each batch in turn fails while the next one is already read: the head stays, and the next drain stores
// both.
func TestStep_SyncFailsWhileTheNextBatchIsRead(t *testing.T) {
	for nth := 0; ; nth++ {
		b := newAheadBench(t, 1)
		var released uint64
		batches, isFailed := 0, false
		b.hook = func(d *drainer, batch farlog.Batch) {
			if batches == nth {
				b.disk.FailNextSync(syscall.EIO)
				released, isFailed = batch.FirstLSN, true
			}
			batches++
		}
		_, err := b.drain()
		if !isFailed {
			if nth < 5 || err != nil {
				t.Fatalf("%d batches, %v", nth, err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("batch %d: %v, expected EIO", nth, err)
		}
		if head := b.writer.Cursors().HeadLSN; head != released {
			t.Fatalf("batch %d: head is %d, expected %d, where the batch that was not synced begins", nth, head,
				released)
		}
		b.disk.Crash()
		if err := b.drainRest(); err != nil {
			t.Fatalf("batch %d: %v", nth, err)
		}
		b.writer.Close()
	}
}

// A power cut of the region while the store takes a batch: the batch read ahead begins inside it. Its end is no longer
// the log's.
func TestStep_EndThatWasUndoneIsNotReleased(t *testing.T) {
	b := newAheadBench(t, 1)
	b.hook = func(d *drainer, batch farlog.Batch) {
		d.ahead.batch.FirstLSN = batch.NextLSN - 64
	}
	d, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if isIdle, err := d.step(context.Background()); isIdle || err != nil {
		t.Fatal(isIdle, err)
	}
	if head := b.writer.Cursors().HeadLSN; head != 0 {
		t.Errorf("the head was released up to %d", head)
	}
}

// A ring that is kept nearly empty is read when the last sync is over, so that all that came meanwhile goes out with
// the next one.
func TestStep_SmallBatchIsNotReadAhead(t *testing.T) {
	b := newBench(t, store.Options{})
	d, err := open(context.Background(), b.config())
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	b.append("one")
	if isIdle, err := d.step(context.Background()); isIdle || err != nil || d.ahead != nil {
		t.Errorf("idle %v, %v, ahead %v: expected a batch and nothing read ahead", isIdle, err, d.ahead)
	}
}

// The store still hashes a batch while the next one is written and the one after that is read. If that one came into
// the same buffer, the digest that is signed would not be that of the segment.
func TestRun_BufferThatIsHashedIsNotReadInto(t *testing.T) {
	b := newBench(t, store.Options{FS: storetest.NewCrashFS(1), SegmentBytes: 1 << 20})
	config := b.config()
	config.BatchBytes = 256 << 10
	progress, stop := b.run(config)
	entries := make([]farlog.Entry, 64)
	for i := range entries {
		entries[i] = farlog.Entry{Data: []byte(strings.Repeat(string(rune('a'+i%26)), 8<<10)), Class: 1}
	}
	for range 40 {
		if _, _, err := b.writer.AppendBatch(entries, 10*time.Second,
			make([]farlog.Position, len(entries))); err != nil {
			t.Fatal(err)
		}
	}
	b.await(progress, "drained", b.isDrained)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	report, err := b.store.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range report.Streams {
		if stream.Failure != nil || stream.SealedSegments < 10 {
			t.Errorf("%s (%d segments sealed)", stream.Statement(), stream.SealedSegments)
		}
	}
}
