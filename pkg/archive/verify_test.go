package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/store"
)

// put puts an object as somebody with the bucket's credentials can.
func (s *site) put(name, text string) {
	s.Helper()
	_, err := s.server.Client.PutObject(s.Context(), s.bucket.Bucket, s.bucket.key(name), strings.NewReader(text),
		int64(len(text)), minio.PutObjectOptions{})
	s.must(err)
}

func TestVerify_FindsWhatSomebodyDid(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	all := uint64(s.sealed())
	s.verify(int(all))
	for _, one := range []struct {
		what, name, expected string
		do                   func()
	}{
		{"delete marker", store.SegmentFile(stream, 1), "a delete marker hides it", func() {
			s.must(s.server.Client.RemoveObject(t.Context(), s.bucket.Bucket,
				s.bucket.key(store.SegmentFile(stream, 1)), minio.RemoveObjectOptions{}))
		}},
		{"overwritten segment", store.SegmentFile(stream, 1), "somebody overwrote it", func() {
			s.put(store.SegmentFile(stream, 1), "other")
		}},
		{"overwritten manifest", store.ManifestFile(stream, all), "somebody overwrote it", func() {
			s.put(store.ManifestFile(stream, all), "other")
		}},
		{"object of nobody", "other", "an object that no store has", func() { s.put("other", "other") }},
		{"forged identity", store.IdentityFile, "somebody overwrote it", func() { s.put(store.IdentityFile, "{}") }},
	} {
		one.do()
		after, err := Verify(t.Context(), s.bucket, VerifyOptions{})
		s.must(err)
		found := slices.ContainsFunc(after.Failures, func(failure string) bool {
			return strings.HasPrefix(failure, one.name) && strings.Contains(failure, one.expected)
		})
		if after.OK() || !found {
			t.Errorf("%s: found %q, expected %s: %q", one.what, after.Failures, one.name, one.expected)
		}
		if !after.Store.OK() || after.Segments != int(all) {
			t.Errorf("%s: the records are %+v, expected them to be whole: what was put later counts for nothing",
				one.what, after.Store)
		}
	}
}

// TestVerify_ForgedManifestAndShortLock: a manifest that another key signed, and a segment that is locked for less than
// what was asked for.
func TestVerify_ForgedManifestAndShortLock(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	next := uint64(s.sealed()) + 1
	view, err := NewView(t.Context(), s.bucket)
	s.must(err)
	last := view.files[store.ManifestFile(stream, next-1)]
	raw, err := s.bucket.read(t.Context(), last, smallMax)
	s.must(err)
	o, err := newObject(s.bucket.key(store.ManifestFile(stream, next)), strings.NewReader(string(raw)),
		int64(len(raw)), nil)
	s.must(err)
	o.metadata = last.Metadata
	_, err = s.bucket.put(t.Context(), o, s.keep.After(time.Now()))
	s.must(err)
	report, err := Verify(t.Context(), s.bucket, VerifyOptions{})
	s.must(err)
	if report.OK() {
		t.Errorf("a manifest of another segment is not found: %+v", report)
	}
	longer, err := ParsePeriod("2h")
	s.must(err)
	report, err = Verify(t.Context(), s.bucket, VerifyOptions{Keep: &longer})
	s.must(err)
	if text := strings.Join(report.Failures, "; "); !strings.Contains(text, "expected 2h from its sealing on") {
		t.Errorf("found %q, expected locks that are too short", text)
	}
}

// TestVerify_WhatIsNotCommittedDoesNotCount: the objects of a segment without its manifest.
func TestVerify_WhatIsNotCommittedDoesNotCount(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	all := s.sealed()
	s.put(store.SegmentFile(stream, uint64(all)+1), "begun")
	report, err := Verify(t.Context(), s.bucket, VerifyOptions{})
	s.must(err)
	if !report.OK() || report.Uncommitted != 1 || report.Segments != all {
		t.Errorf("archive is %+v, expected one object that is not committed", report)
	}
}

func TestRestore_IsTheStore(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	dir := filepath.Join(t.TempDir(), "restored")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Restore(ctx, s.bucket, dir, RestoreOptions{Progress: func(string, int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, expected to be interrupted", err)
	}
	if _, err := store.Open(dir, store.Options{}); !errors.Is(err, store.ErrNotAStore) {
		t.Errorf("error %v: half of a store is none", err)
	}
	restored, err := Restore(t.Context(), s.bucket, dir, RestoreOptions{})
	s.must(err)
	report, err := restored.Verify(t.Context(), store.VerifyOptions{})
	s.must(err)
	if !report.OK() || len(report.Streams) != 1 || report.Streams[0].SealedSegments != s.sealed() {
		t.Errorf("restored store is %+v", report)
	}
	for number := uint64(1); number <= uint64(s.sealed()); number++ {
		for _, name := range []string{
			store.SegmentFile(stream, number), store.ManifestFile(stream, number), store.IndexFile(stream, number),
		} {
			want, err := os.ReadFile(filepath.Join(s.dir, name))
			s.must(err)
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(got) != string(want) {
				t.Errorf("%s differs: %v", name, err)
			}
		}
	}
	if _, err := Restore(t.Context(), s.bucket, dir, RestoreOptions{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("error %v: a store is not restored into", err)
	}
	if _, err := Restore(t.Context(), s.bucket, dir+"2", RestoreOptions{Stream: "none"}); !errors.Is(err,
		store.ErrNotFound) {
		t.Errorf("error %v, expected no such stream", err)
	}
}

// TestArchive_HasTheKeysThatFollow: the key is rotated before the archive begins, and while an uploader works.
func TestArchive_HasTheKeysThatFollow(t *testing.T) {
	s := newSite(t)
	s.rotate()
	u := s.uploader()
	s.must(u.Once(t.Context()))
	s.rotate()
	s.fill(60)
	u.config.Store, u.writer.store = s.store, s.store
	s.must(u.Once(t.Context()))
	s.verify(s.sealed())
	restored, err := Restore(t.Context(), s.bucket, filepath.Join(t.TempDir(), "restored"), RestoreOptions{})
	s.must(err)
	report, err := restored.Verify(t.Context(), store.VerifyOptions{})
	s.must(err)
	if !report.OK() || len(restored.Keys()) != 3 {
		t.Errorf("restored store is %+v, with %d keys, expected 3", report, len(restored.Keys()))
	}
}

// rotate makes another key sign for the store.
func (s *site) rotate() {
	s.Helper()
	opened, err := store.Open(s.dir, store.Options{KeyDir: s.keys})
	s.must(err)
	_, err = opened.RotateKey("test", nil)
	s.must(err)
}

// TestArchive_BeginsWhereTheStoreBegins: behind a base manifest, when segments were removed before there was an
// archive; and it says so when segments are removed that it has not got.
func TestArchive_BeginsWhereTheStoreBegins(t *testing.T) {
	s := newSite(t)
	_, err := s.store.RemoveBefore(stream, store.Removal{Before: 2, Policy: "test"})
	s.must(err)
	s.fill(60)
	_, err = s.store.RemoveBefore(stream, store.Removal{Before: 3, Policy: "test"})
	s.must(err)
	s.must(s.uploader().Once(t.Context()))
	s.verify(s.sealed())
	restored, err := Restore(t.Context(), s.bucket, filepath.Join(t.TempDir(), "restored"), RestoreOptions{})
	s.must(err)
	report, err := restored.Verify(t.Context(), store.VerifyOptions{})
	s.must(err)
	if !report.OK() || report.Streams[0].Base == nil || report.Streams[0].Base.Segment != 3 {
		t.Errorf("restored store is %+v", report)
	}
	s.fill(120)
	sealed, err := s.store.Sealed(stream)
	s.must(err)
	_, err = s.store.RemoveBefore(stream, store.Removal{
		Before: sealed.Segments[len(sealed.Segments)-1], Policy: "test",
	})
	s.must(err)
	if err := s.uploader().Once(t.Context()); !errors.Is(err, ErrGap) {
		t.Errorf("error %v, expected a gap", err)
	}
}

// TestRestore_IntoADirectoryOfAnyName ends, and syncs the directory that the store is in.
func TestRestore_IntoADirectoryOfAnyName(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	disk := store.OS
	t.Cleanup(func() { store.OS = disk })
	for _, dir := range []string{".", "r", "./r/../q/"} {
		t.Chdir(t.TempDir())
		synced := syncedDirs{FS: disk, names: map[string]bool{}}
		store.OS = synced
		ended := make(chan error, 1)
		go func() {
			_, err := Restore(t.Context(), s.bucket, dir, RestoreOptions{})
			ended <- err
		}()
		select {
		case err := <-ended:
			s.must(err)
		case <-time.After(time.Minute):
			t.Fatalf("restore into %q does not end", dir)
		}
		if _, err := store.Open(dir, store.Options{}); err != nil {
			t.Errorf("restore into %q: %v", dir, err)
		}
		full, err := filepath.Abs(dir)
		s.must(err)
		for _, name := range []string{full, filepath.Dir(full), filepath.Join(full, "streams")} {
			if !synced.names[name] {
				t.Errorf("restore into %q: %s was not synced", dir, name)
			}
		}
	}
}

// syncedDirs notes which directories were synced.
type syncedDirs struct {
	store.FS
	names map[string]bool
}

func (s syncedDirs) SyncDir(name string) error {
	s.names[name] = true
	return s.FS.SyncDir(name)
}

// TestRestore_ReplacesWhatIsDamaged: a file that an interrupted restore has left, with the size and not the bytes.
func TestRestore_ReplacesWhatIsDamaged(t *testing.T) {
	s := newSite(t)
	s.must(s.uploader().Once(t.Context()))
	dir := filepath.Join(t.TempDir(), "restored")
	name := filepath.Join(dir, store.SegmentFile(stream, 1))
	s.must(os.MkdirAll(filepath.Dir(name), 0o750))
	want, err := os.ReadFile(filepath.Join(s.dir, store.SegmentFile(stream, 1)))
	s.must(err)
	m, _, err := s.store.ReadManifest(stream, 1)
	s.must(err)
	s.must(os.WriteFile(name, make([]byte, m.UsedBytes), 0o440))
	restored, err := Restore(t.Context(), s.bucket, dir, RestoreOptions{})
	s.must(err)
	report, err := restored.Verify(t.Context(), store.VerifyOptions{})
	s.must(err)
	if got, err := os.ReadFile(name); err != nil || string(got) != string(want[:m.UsedBytes]) || !report.OK() {
		t.Errorf("restored store is %+v, %v", report, err)
	}
}
