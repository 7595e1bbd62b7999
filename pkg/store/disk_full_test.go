package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestAppend_FullDisk lets the disk run full at every size in turn: appends give ErrNoSpace, nothing half-accepted
// stays, and the same appender goes on when there is space again.
func TestAppend_FullDisk(t *testing.T) {
	for space := int64(20 << 10); space < 78<<10; space += 1700 {
		f := newFixture(t)
		f.fs.LimitSpace(space)
		f.ring.Append(150, 500)
		isFull := false
		for from := 0; from < len(f.ring.Records); {
			until := min(from+7, len(f.ring.Records))
			before := f.app.Last()
			_, _, err := f.app.Append(storetest.Batch(f.ring.Records[from:until]))
			if err == nil {
				err = f.app.Sync()
			}
			switch {
			case errors.Is(err, store.ErrNoSpace):
				if f.app.Last() != before {
					t.Fatalf("space %d: moved from %+v to %+v", space, before, f.app.Last())
				}
				if got := f.read(store.ReaderOptions{IncludeControl: true}); len(got) != from {
					t.Fatalf("space %d: %d records are visible, expected %d", space, len(got), from)
				}
				isFull = true
				f.fs.LimitSpace(-1)
				if space%2 == 0 {
					f.close()
					f.open()
				}
			case err != nil:
				t.Fatal(err)
			default:
				from = until
			}
		}
		if !isFull {
			t.Fatalf("space %d was enough", space)
		}
		f.given = f.ring.Records
		f.close()
		if report := f.verify(); report.Failure != nil || report.Generations[0].NextLSN != f.ring.NextLSN() {
			t.Fatalf("space %d: %s", space, report.Statement())
		}
	}
}

// TestAppend_FullTmpfs is the same on a real, small file system.
func TestAppend_FullTmpfs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a tmpfs of 2 MiB")
	}
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("needs mount(2): %v", err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	}()
	ballast := filepath.Join(mount, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(filepath.Join(mount, "store"), store.Options{Create: true, SegmentBytes: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(testStream, 5)
	a, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	fullCount := 0
	for range 120 {
		ring.Append(10, 1500)
		for {
			_, _, err := a.Append(storetest.Batch(ring.Records))
			if err == nil {
				err = a.Sync()
			}
			if err == nil {
				break
			}
			if fullCount++; !errors.Is(err, store.ErrNoSpace) || fullCount > 1 {
				t.Fatal(err)
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
		ring.Release(ring.NextLSN())
		if fullCount > 0 && ring.NextLSN() > 1<<20+128<<10 {
			break
		}
	}
	if fullCount == 0 {
		t.Fatal("the disk never ran full")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	report, err := s.Verify(context.Background(), store.VerifyOptions{})
	if err != nil || !report.OK() || report.Streams[0].Generations[0].NextLSN != ring.NextLSN() {
		t.Fatalf("%+v, %v", report, err)
	}
}
