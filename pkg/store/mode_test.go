package store_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// Records are for the store's user and group alone, its private key and its locks for its user: who can open a lock's
// file can hold it.
func TestOpenStream_FilesAreForTheUserAndHisGroup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	f := &fixture{t: t, ring: storetest.NewRing(testStream, 1)}
	var err error
	if f.store, err = store.Open(dir, store.Options{Create: true, SegmentBytes: crashSegmentBytes}); err != nil {
		t.Fatal(err)
	}
	if f.app, err = f.store.OpenStream(f.ring.Source); err != nil {
		t.Fatal(err)
	}
	f.fill(100)
	counts := map[string]int{}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		allowed := fs.FileMode(0o640)
		switch name := entry.Name(); {
		case entry.IsDir():
			allowed = 0o750
		case name == "signing.key" || strings.Contains(name, "lock"):
			allowed = 0o600
			counts[name]++
		default:
			counts[filepath.Ext(name)]++
		}
		if info.Mode().Perm()&^allowed != 0 {
			t.Errorf("%s: mode %v, expected at most %v", path, info.Mode().Perm(), allowed)
		}
		return nil
	})
	if err != nil || counts["signing.key"] != 1 || len(counts) < 5 {
		t.Fatalf("%v, seen %v", err, counts)
	}
}
