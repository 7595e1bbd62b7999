package store_test

import (
	"bytes"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// gatedFS counts how often each file is opened, and lets nobody open one of a kind before so many are waiting for that.
type gatedFS struct {
	store.FS
	together int

	mutex   sync.Mutex
	opened  map[string]int
	waiting map[string]int
	gates   map[string]chan struct{}
	isLate  bool
}

func (g *gatedFS) OpenFile(name string, flag int, mode fs.FileMode) (store.File, error) {
	if suffix := path.Ext(name); strings.Contains(name, "/streams/") && (suffix == ".seg" || suffix == ".json") {
		g.wait(name, suffix)
	}
	return g.FS.OpenFile(name, flag, mode)
}

func (g *gatedFS) wait(name, suffix string) {
	g.mutex.Lock()
	g.opened[name]++
	if g.gates[suffix] == nil {
		g.gates[suffix] = make(chan struct{})
	}
	gate := g.gates[suffix]
	if g.waiting[suffix]++; g.waiting[suffix] == g.together {
		close(gate)
	}
	isLate := g.isLate
	g.mutex.Unlock()
	if isLate {
		return
	}
	select {
	case <-gate:
	case <-time.After(time.Minute):
		g.mutex.Lock()
		g.isLate = true
		g.mutex.Unlock()
	}
}

// A reader of a window reads each small file of a long stream about once, and many of them at the same time: each may
// be an answer of an archive to wait for.
func TestWindow_OpensManyFilesAtTheSameTime(t *testing.T) {
	f := clockedStore(t, 7)
	gated := &gatedFS{
		FS: f.fs, together: 8, opened: map[string]int{}, waiting: map[string]int{}, gates: map[string]chan struct{}{},
	}
	opened, err := store.Open(f.store.Dir(), store.Options{FS: gated})
	if err != nil {
		t.Fatal(err)
	}
	r, err := opened.OpenReader(testStream, store.ReaderOptions{Window: store.Window{From: 1, To: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Segments() < gated.together || gated.isLate {
		t.Errorf("%d segments, and less than %d files were opened at the same time", r.Segments(), gated.together)
	}
	count := 0
	for name, times := range gated.opened {
		if count += times; times > 3 {
			t.Errorf("%s was opened %d times", name, times)
		}
	}
	if most := 2*r.Segments() + 6; count > most { // those where epochs begin are read once more
		t.Errorf("%d files were opened for %d segments, want at most %d", count, r.Segments(), most)
	}
}

// The signature of the last manifest is one of all before it, as far as each names the SHA-256 of the one before. A
// manifest with other times is not believed, and those before it by their own signatures.
func TestWindow_BelievesWhatASignedManifestNames(t *testing.T) {
	f := clockedStore(t, 8)
	checked := func() int {
		t.Helper()
		r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		count, err := store.SignaturesChecked(r)
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	if count := checked(); count != 1 {
		t.Errorf("%d signatures are checked of a whole chain, want 1", count)
	}
	f.change(fileName(4, ".json"), func(data []byte) []byte {
		return bytes.Replace(data, []byte(`"max_ts_ns":1`), []byte(`"max_ts_ns":2`), 1)
	})
	if count := checked(); count != 3 {
		t.Errorf("%d signatures are checked, want those of the last one, the altered one and the one before it", count)
	}
	f.change(fileName(5, ".json"), func(data []byte) []byte {
		return bytes.Replace(data, []byte(`"min_ts_ns":17`), []byte(`"min_ts_ns":18`), 1)
	})
	for _, w := range f.windows(rand.New(rand.NewPCG(8, 8)), 15) {
		f.expectWithin("with altered manifests", w)
	}
}
