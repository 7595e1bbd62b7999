package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/internal/sweep"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestSweep_*: every call of a drain into the file system of its store is made to fail once, in turn. Whatever fails:
// the ring is never released beyond what the store keeps over a power cut, the error names the call, and a drain that
// is started again brings the rest, each record once.

const sweepRecords = 40

// sweepWorld is a ring with records and a store that fails.
type sweepWorld struct {
	uri    string
	disk   *storetest.CrashFS
	faulty *storetest.FaultFS
}

func newSweepWorld(ring string, seed uint64) *sweepWorld {
	disk := storetest.NewCrashFS(seed)
	return &sweepWorld{uri: "mem:" + ring, disk: disk, faulty: storetest.NewFaultFS(disk)}
}

// sweepRing makes a ring with records and gives its bytes: each run begins with them.
func sweepRing(t *testing.T, path string) []byte {
	t.Helper()
	uri := "mem:" + path
	err := farlog.Format(uri, farlog.FormatOptions{
		SizeBytes: 0x3000 + 64<<10, RecordLenMax: 4 << 10,
		StreamName: "test/orders", StreamID: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	writer, err := farlog.OpenWriter(uri, farlog.WriterOptions{CountersDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range sweepRecords {
		if _, err := writer.Append(farlog.Entry{Data: sweepPayload(i), Class: 1}, waitMax); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func sweepPayload(i int) []byte { return fmt.Appendf(nil, "%01000d", i) }

// drain does what Run does until the ring is empty.
func (w *sweepWorld) drain() error {
	opened, err := store.Open("/store", store.Options{
		Create: true, FS: w.faulty, SegmentBytes: store.SegmentBytesMin,
		IsSynchronous: true,
	})
	if err != nil {
		return err
	}
	d, err := open(context.Background(), Config{
		RingURI: w.uri, Store: opened, BatchBytes: 6 << 10,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for isIdle := false; !isIdle && err == nil; {
		isIdle, err = d.step(context.Background())
	}
	if closeErr := d.close(); err == nil {
		err = closeErr
	}
	return err
}

// check compares the store with the ring: what was released is there, and what is there is in order.
func (w *sweepWorld) check(isAll bool) error {
	status, err := farlog.Inspect(w.uri)
	if err != nil {
		return err
	}
	opened, err := store.Open("/store", store.Options{FS: w.disk})
	switch {
	case err != nil && status.HeadLSN > 0:
		return fmt.Errorf("released up to lsn %d, and there is no store: %w", status.HeadLSN, err)
	case err != nil:
		return nil
	}
	r, err := opened.OpenReader("test/orders", store.ReaderOptions{})
	if errors.Is(err, store.ErrNotFound) && status.HeadLSN == 0 && !isAll {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	count, next := 0, uint64(0)
	for ; ; count++ {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if count >= sweepRecords || string(item.Payload) != string(sweepPayload(count)) {
			return fmt.Errorf("record %d of the store is %.20q", count, item.Payload)
		}
		next = item.LSN + item.Extent(64)
	}
	if isAll && (count != sweepRecords || status.HeadLSN < next) {
		return fmt.Errorf("%d of %d records are in the store, the ring is released up to lsn %d of %d", count,
			sweepRecords, status.HeadLSN, next)
	}
	if status.HeadLSN > next && count < sweepRecords {
		return fmt.Errorf("released up to lsn %d, the store keeps what is below %d", status.HeadLSN, next)
	}
	return nil
}

func TestSweep_EachCallOfADrainIntoItsStoreFailsOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.ring")
	image := sweepRing(t, path)
	storetest.Sweep(t, sweep.New(t, 5), func(seed uint64, fault storetest.Fault) ([]storetest.FaultCall, error) {
		return sweepDrain(path, image, seed, fault)
	})
}

// sweepDrain is one run; its error is what is wrong.
func sweepDrain(path string, image []byte, seed uint64, fault storetest.Fault) ([]storetest.FaultCall, error) {
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return nil, err
	}
	w := newSweepWorld(path, seed)
	w.faulty.Plan(fault)
	err := w.drain()
	calls := w.faulty.Calls()
	if err := w.faulty.Check(err); err != nil {
		return calls, err
	}
	w.faulty.Plan(storetest.Fault{Call: -1})
	if seed%4 == 0 {
		w.disk.Kill()
	} else {
		w.disk.Crash()
	}
	if err := w.check(err == nil); err != nil {
		return calls, err
	}
	if err := w.drain(); err != nil {
		return calls, fmt.Errorf("again: %w", err)
	}
	w.disk.Crash()
	return calls, w.check(true)
}

// A stream with several rings goes on by the ring that the store knows it by: where that cannot be read it is not taken
// for another one.
func TestSweep_EachCallForTheKnownRingFailsOnce(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	faulty := storetest.NewFaultFS(disk)
	opened, err := store.Open("/store", store.Options{
		Create: true, FS: faulty, SegmentBytes: store.SegmentBytesMin,
		IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("test/orders", 1)
	ring.Append(20, 1000)
	app, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = app.Append(storetest.Batch(ring.Records)); err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	replaced := ring.Source
	replaced.RingUUID[0]++
	faulty.Plan(storetest.Fault{Call: -1})
	if known, err := knownRing(opened, replaced); err != nil || known != ring.Source.RingUUID {
		t.Fatalf("without a fault: %x, %v, expected %x", known, err, ring.Source.RingUUID)
	}
	for _, fault := range storetest.Faults(faulty.Calls()) {
		faulty.Plan(fault)
		known, err := knownRing(opened, replaced)
		if err == nil && known != ring.Source.RingUUID || faulty.Check(err) != nil {
			call, _ := faulty.Failed()
			t.Errorf("%s fails with %v: ring %x, %v", call, fault.Err, known, err)
		}
	}
}
