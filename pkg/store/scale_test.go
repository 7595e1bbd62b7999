package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const (
	scaleStreams       = 100
	emptyStreamMax     = 1<<20 + 64<<10 // bytes on the disk, directory and lock included
	streamDescriptors  = 3              // lock, segment, and for a moment a file of work in the background
	scaleSpareTestSize = 1 << 20
)

// TestScale_StreamsThatReceiveLittleTakeLittle: what many streams take is counted on a real file system: blocks of the
// disk and descriptors, of streams without a record, of those with one, and when they are opened again.
func TestScale_StreamsThatReceiveLittleTakeLittle(t *testing.T) {
	dir, before := filepath.Join(t.TempDir(), "store"), descriptors(t)
	check := func(what string) {
		t.Helper()
		if got := diskBytes(t, dir); got > scaleStreams*emptyStreamMax {
			t.Errorf("%s: %d bytes of the disk a stream, expected at most %d", what, got/scaleStreams, emptyStreamMax)
		}
		if got := descriptors(t) - before; got > scaleStreams*streamDescriptors {
			t.Errorf("%s: %d descriptors of %d streams, expected at most %d of each", what, got, scaleStreams,
				streamDescriptors)
		}
	}
	for _, what := range []string{"new", "opened again"} {
		apps := openMany(t, dir)
		check(what)
		for i, a := range apps {
			ring := scaleRing(i)
			if _, _, err := a.Append(storetest.Batch(ring.Records)); err != nil {
				t.Fatal(err)
			}
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		check(what + ", with a record")
		for _, a := range apps {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		check(what + ", closed")
	}
}

func scaleRing(i int) *storetest.Ring {
	return storetest.NewRing(fmt.Sprintf("desk%d/orders", i), uint64(i))
}

func openMany(t *testing.T, dir string) []*store.Appender {
	t.Helper()
	s, err := store.Open(dir, store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	apps := make([]*store.Appender, scaleStreams)
	for i := range apps {
		if apps[i], err = s.OpenStream(scaleRing(i).Source); err != nil {
			t.Fatal(err)
		}
	}
	return apps
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func diskBytes(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // made and renamed in the background
		}
		if err != nil {
			return err
		}
		total += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return total
}

// TestGrow_SizesOfFiles: a file begins small and doubles; the next one is made when a segment is half full, in full
// size when that took little time.
func TestGrow_SizesOfFiles(t *testing.T) {
	const full = 1 << 20
	for _, c := range []struct {
		name  string
		step  time.Duration // between two batches
		spare int64
	}{
		{"of a busy stream", time.Second, full},
		{"of a stream that receives little", time.Hour, full / 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, now := newFixture(t), time.Unix(1763700000, 0)
			f.close()
			options := f.options()
			options.SegmentBytes, options.Now = full, func() time.Time { return now }
			f.ring = storetest.NewRing("desk7/sizes", 1)
			f.openWith(options)
			sizes := map[int64]bool{}
			var spare int64
			for end := int64(0); spare == 0; now = now.Add(c.step) {
				f.ring.Append(4, 1500)
				batch := storetest.Batch(f.ring.Records)
				f.ring.Release(f.ring.NextLSN())
				if _, _, err := f.app.Append(batch); err != nil {
					t.Fatal(err)
				}
				end += int64(len(batch))
				size := f.sizeOf("desk7%2Fsizes/0000000001.seg")
				if sizes[size] = true; size < end || size > 4*end && size > full/64 {
					t.Fatalf("file of %d bytes, records end at %d", size, end)
				}
				spare = f.sizeOf("desk7%2Fsizes/0000000002.seg")
				if isHalf := end+4096 >= full/2; (spare != 0) != isHalf {
					t.Fatalf("next file has %d bytes when records end at %d", spare, end)
				}
			}
			if spare != c.spare || len(sizes) < 5 {
				t.Errorf("next file has %d bytes, expected %d; this one had the sizes %v", spare, c.spare, sizes)
			}
			f.close()
		})
	}
}

// sizeOf is 0 where there is no such file.
func (f *fixture) sizeOf(name string) int64 {
	raw, err := f.fs.Bytes("/store/streams/" + name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	return int64(len(raw))
}

// TestGrow_WhatWasAllocatedInFullIsGivenBack: stores of former versions have two files of full size a stream.
func TestGrow_WhatWasAllocatedInFullIsGivenBack(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(3, 100)
	f.feed()
	f.close()
	for _, name := range []string{"0000000001.seg", "0000000002.seg"} {
		file, err := f.fs.OpenFile(streamPath+name, os.O_RDWR|os.O_CREATE, 0o640)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(file.Allocate(64<<20), file.Sync(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	options := f.options()
	options.SegmentBytes = store.SegmentBytesDefault
	f.openWith(options)
	for _, name := range []string{"0000000001.seg", "0000000002.seg"} {
		raw, err := f.fs.Bytes(streamPath + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || len(raw) > scaleSpareTestSize {
			t.Errorf("%s has %d bytes, %v", name, len(raw), err)
		}
	}
	f.ring.Append(3, 100)
	f.feed()
	f.close()
	if report := f.verify(); report.Failure != nil || report.Records != 6 {
		t.Error(report.Statement())
	}
}

// TestGrow_FirstBatchOnFullDisk: the batch with which a segment begins is larger than its file, and the disk is full:
// nothing is accepted, and the same appender takes the batch when there is space again.
func TestGrow_FirstBatchOnFullDisk(t *testing.T) {
	f := &fixture{t: t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}
	options := f.options()
	options.SegmentBytes = 1 << 20
	f.openWith(options)
	f.ring.Append(20, 1500)
	batch := storetest.Batch(f.ring.Records)
	if raw, err := f.fs.Bytes(streamPath + fileName(1, ".seg")); err != nil || len(raw) >= len(batch) {
		t.Fatalf("file of %d bytes, %v; expected one that is too small for %d", len(raw), err, len(batch))
	}
	f.fs.LimitSpace(1)
	for range 2 {
		if _, _, err := f.app.Append(batch); !errors.Is(err, store.ErrNoSpace) || errors.Is(err, store.ErrBroken) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	if last := f.app.Last(); last.OK {
		t.Fatalf("%+v was accepted", last)
	}
	f.fs.LimitSpace(-1)
	if _, _, err := f.app.Append(batch); err != nil {
		t.Fatal(err)
	}
	f.close()
	if report := f.verify(); report.Failure != nil || report.Generations[0].NextLSN != f.ring.NextLSN() {
		t.Error(report.Statement())
	}
}
