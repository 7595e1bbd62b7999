package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// rolled is a stream of several segments in a directory, and the appender that holds it.
func rolled(t *testing.T) (dir string, ring *storetest.Ring, opened *store.Store, app *store.Appender) {
	t.Helper()
	dir = t.TempDir()
	opened, err := store.Open(dir, store.Options{Create: true, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	ring = storetest.NewRing("desk7/orders", 1)
	app, err = opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	appendMany(t, ring, app, 150)
	return filepath.Join(dir, "streams", "desk7%2Forders"), ring, opened, app
}

func appendMany(t *testing.T, ring *storetest.Ring, app *store.Appender, count int) {
	t.Helper()
	from := len(ring.Records)
	ring.Append(count, 600)
	for _, rec := range ring.Records[from:] {
		if _, _, err := app.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
		if err := app.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

// Each segment, and each manifest of a sealed one, is removed in turn under the appender: it names the file, accepts
// nothing more, and cannot be opened again before the file is back, unless the appender's end is what is gone.
func TestAppender_EachFileIsRemoved(t *testing.T) {
	dir, ring, opened, app := rolled(t)
	if err := app.CheckSegments(); err != nil {
		t.Fatalf("all is there: %v", err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil || len(segments) < 4 {
		t.Fatalf("%v, %v", segments, err)
	}
	for _, name := range []string{"0000000001.seg", "0000000002.seg", "0000000002.json"} {
		path, aside := filepath.Join(dir, name), filepath.Join(dir, "..", "aside")
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		err := app.CheckSegments()
		if !errors.Is(err, store.ErrMissing) || !errors.Is(err, store.ErrCorrupt) ||
			!strings.Contains(err.Error(), path) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := app.Sync(); !errors.Is(err, store.ErrMissing) {
			t.Fatalf("%s: sync: %v", name, err)
		}
		app.Close()
		if _, err := opened.OpenStream(ring.Source); !errors.Is(err, store.ErrMissing) {
			t.Fatalf("%s: opened again: %v", name, err)
		}
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
		if app, err = opened.OpenStream(ring.Source); err != nil {
			t.Fatal(err)
		}
		if err := app.CheckSegments(); err != nil {
			t.Fatalf("%s is back: %v", name, err)
		}
	}
	aside := dir + "-aside"
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	if err := app.CheckSegments(); !errors.Is(err, store.ErrMissing) || !errors.Is(app.Missing(), store.ErrMissing) {
		t.Errorf("the whole directory: %v, %v", err, app.Missing())
	}
	app.Close()
	if err := os.Rename(aside, dir); err != nil {
		t.Fatal(err)
	}
	if app, err = opened.OpenStream(ring.Source); err != nil {
		t.Fatal(err)
	}
	appendMany(t, ring, app, 1)
	newest := segments[0]
	for _, one := range segments {
		if _, err := os.Stat(strings.TrimSuffix(one, ".seg") + ".json"); err != nil {
			newest = one
			break
		}
	}
	if err := os.Remove(newest); err != nil {
		t.Fatal(err)
	}
	if err := app.CheckSegments(); !errors.Is(err, store.ErrMissing) || !strings.Contains(err.Error(), newest) {
		t.Errorf("the one that is written: %v", err)
	}
	app.Close()
}

// Segments begin, are sealed and are removed by retention while somebody looks for them: none is missed.
func TestAppender_ChecksBesideAppendsAndRemovals(t *testing.T) {
	_, ring, opened, app := rolled(t)
	var looking sync.WaitGroup
	done := make(chan struct{})
	looking.Go(func() {
		for {
			if err := app.CheckSegments(); err != nil {
				t.Errorf("all is there: %v", err)
				return
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range 12 {
		appendMany(t, ring, app, 40)
		history, err := opened.History("desk7/orders")
		if err != nil {
			t.Fatal(err)
		}
		if count := uint64(len(history.Sizes)); count > 1 {
			removal := store.Removal{Before: history.First + count - 1, Policy: "test"}
			if _, err := app.RemoveBefore(removal); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(done)
	looking.Wait()
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
}

// blindFS is a file system whose directories of streams cannot be listed for a while.
type blindFS struct {
	store.FS
	err atomic.Pointer[error]
}

func (f *blindFS) ReadDir(name string) ([]string, error) {
	if err := f.err.Load(); err != nil {
		return nil, *err
	}
	return f.FS.ReadDir(name)
}

// A look that fails once is made again; one that fails again and again is no sign that all is there.
func TestAppender_SegmentsThatCannotBeLookedFor(t *testing.T) {
	disk := &blindFS{FS: storetest.NewCrashFS(1)}
	opened, err := store.Open("/store", store.Options{Create: true, FS: disk, SegmentBytes: store.SegmentBytesMin})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("desk7/orders", 1)
	app, err := opened.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	appendMany(t, ring, app, 150)
	cause := error(syscall.EIO)
	for looks := 1; app.Missing() == nil; looks++ {
		disk.err.Store(&cause)
		if err := app.CheckSegments(); !errors.Is(err, cause) {
			t.Fatal(err)
		}
		disk.err.Store(nil)
		if looks == 5 && (app.CheckSegments() != nil || app.Sync() != nil) {
			t.Fatal("it failed after a few looks, of which the last one found all")
		}
		if looks > 20 {
			t.Fatal("20 looks failed, and nobody is told")
		}
	}
	if err := app.Sync(); !errors.Is(err, cause) {
		t.Errorf("sync: %v", err)
	}
	app.Close()
	if app, err = opened.OpenStream(ring.Source); err != nil {
		t.Fatal(err)
	}
	app.Close()
}
