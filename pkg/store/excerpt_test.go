package store_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// excerptOf copies what Excerpt lists into a directory of the same disk.
func excerptOf(t interface{ Fatal(args ...any) }, disk *storetest.CrashFS, s *store.Store, stream string,
	w store.Window, dir string,
) *store.Store {
	files, err := s.Excerpt(stream, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.IdentityFiles() {
		files = append(files, store.ExcerptFile{Name: name})
	}
	for _, file := range files {
		raw, err := disk.Bytes(path.Join(s.Dir(), file.Name))
		if err != nil {
			t.Fatal(err)
		}
		raw = slices.Clone(raw)
		if file.Size != 0 {
			raw = raw[:file.Size]
		}
		copy(raw, file.Head)
		if err := put(disk, path.Join(dir, file.Name), raw); err != nil {
			t.Fatal(err)
		}
	}
	excerpt, err := store.Open(dir, store.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	return excerpt
}

func put(disk *storetest.CrashFS, name string, raw []byte) error {
	for i := range name {
		if name[i] == '/' {
			if err := disk.Mkdir(name[:i], 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	file, err := disk.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(raw, 0)
	return errors.Join(err, file.Close())
}

// inWindow reads the records of a window.
func inWindow(s *store.Store, stream string, w store.Window) (places []string, err error) {
	r, err := s.OpenReader(stream, store.ReaderOptions{IncludeControl: true, SyncedOnly: true, Window: w})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		item, err := r.Next()
		if errors.Is(err, io.EOF) {
			return places, nil
		}
		if err != nil {
			return places, err
		}
		if w.Has(item.TimestampNS) {
			places = append(places, fmt.Sprintf("%d %d %d %x", item.Generation, item.Epoch, item.LSN, item.Payload))
		}
	}
}

// history fills a stream with several generations, epochs that go back, and PADs, in small segments. The last of them
// is not sealed.
func history(t *rapid.T, disk *storetest.CrashFS) (s *store.Store, low, high uint64) {
	s, err := store.Open("store", store.Options{
		FS: disk, Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for generation := range rapid.IntRange(1, 2).Draw(t, "generations") {
		ring := storetest.NewRing("desk7/orders", uint64(generation)+1)
		appender, err := s.OpenStream(ring.Source)
		if err != nil {
			t.Fatal(err)
		}
		given := 0
		drain := func() {
			for _, rec := range ring.Records[given:] {
				if _, _, err := appender.Append(rec.Raw); err != nil {
					t.Fatal(err)
				}
				low, high = min(low-1, rec.TimestampNS-1)+1, max(high, rec.TimestampNS)
			}
			given = len(ring.Records)
		}
		for range rapid.IntRange(1, 4).Draw(t, "epochs") {
			ring.Append(rapid.IntRange(1, 150).Draw(t, "records"), 600)
			drain()
			if err := appender.Sync(); err != nil {
				t.Fatal(err)
			}
			back := rapid.IntRange(0, 40).Draw(t, "back")
			ring.OpenEpochAt(ring.Records[max(0, len(ring.Records)-1-back)].LSN)
			given = len(ring.Records) - 1
		}
		drain()
		if err := errors.Join(appender.Sync(), appender.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return s, low, high
}

// An excerpt verifies, gives the same records as the store, and is taken for damaged by a reader of another time.
func TestExcerpt_HasTheWindowAndProvesIt(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		disk := storetest.NewCrashFS(1)
		s, low, high := history(t, disk)
		w := store.Window{From: rapid.Uint64Range(low, high).Draw(t, "from")}
		w.To = w.From + rapid.Uint64Range(1, (high-low)/4+1).Draw(t, "for")
		excerpt := excerptOf(t, disk, s, "desk7/orders", w, "excerpt")
		want, err := inWindow(s, "desk7/orders", w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := inWindow(excerpt, "desk7/orders", w)
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d records, %v, expected %d", len(got), err, len(want))
		}
		report, err := excerpt.Verify(t.Context(), store.VerifyOptions{IsExcerpt: true})
		if err != nil || !report.OK() {
			t.Fatalf("%+v, %v", report, err)
		}
		whole, err := s.Verify(t.Context(), store.VerifyOptions{})
		if err != nil || !whole.OK() || fmt.Sprint(whole.Streams[0].Generations) !=
			fmt.Sprint(report.Streams[0].Generations) {
			t.Fatalf("store %+v, %v; excerpt %+v", whole.Streams, err, report.Streams)
		}
		if report.Streams[0].CutSegments == 0 {
			return
		}
		cut++
		if _, err := inWindow(excerpt, "desk7/orders", store.Window{}); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("all of an excerpt: %v, expected ErrCorrupt", err)
		}
		plain, err := excerpt.Verify(t.Context(), store.VerifyOptions{})
		if err != nil || plain.OK() {
			t.Fatalf("an excerpt verifies as a store: %+v, %v", plain, err)
		}
	})
	if cut == 0 {
		t.Error("no excerpt had a segment without records")
	}
}

// What an excerpt says of the segments whose records it leaves out is signed: each of these changes is found.
func TestExcerpt_CutSegmentIsProved(t *testing.T) {
	disk := storetest.NewCrashFS(1)
	s, err := store.Open("store", store.Options{
		FS: disk, Create: true, SegmentBytes: store.SegmentBytesMin, IsSynchronous: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing("a", 1)
	ring.Append(300, 600)
	appender, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range ring.Records {
		if _, _, err := appender.Append(rec.Raw); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(appender.Sync(), appender.Close()); err != nil {
		t.Fatal(err)
	}
	last := store.Window{From: ring.Records[len(ring.Records)-1].TimestampNS}
	one, two, segment := store.ManifestFile("a", 1), store.ManifestFile("a", 2), store.SegmentFile("a", 2)
	for _, test := range []struct {
		what, want string
		change     func(dir string) error
	}{
		{"swapped manifests", "header says lsn 0, seq 0 first, the manifest", func(dir string) error {
			return errors.Join(disk.Rename(path.Join(dir, one), path.Join(dir, "x")),
				disk.Rename(path.Join(dir, two), path.Join(dir, one)),
				disk.Rename(path.Join(dir, "x"), path.Join(dir, two)))
		}},
		{"no manifest", "nothing here", func(dir string) error { return disk.Remove(path.Join(dir, two)) }},
		{"no segment", "is missing", func(dir string) error { return disk.Remove(path.Join(dir, segment)) }},
		{"other manifest", "signature does not match", func(dir string) error {
			return disk.Change(path.Join(dir, two), func(raw []byte) []byte {
				return []byte(strings.Replace(string(raw), `"record_count":`, `"record_count":1`, 1))
			})
		}},
		{"other header", "CRC", func(dir string) error {
			return disk.Change(path.Join(dir, segment), func(raw []byte) []byte {
				raw[100] ^= 1
				return raw
			})
		}},
	} {
		excerpt := excerptOf(t, disk, s, "a", last, test.what)
		if err := test.change(excerpt.Dir()); err != nil {
			t.Fatal(err)
		}
		report, err := excerpt.Verify(t.Context(), store.VerifyOptions{IsExcerpt: true})
		if err != nil || report.OK() || !strings.Contains(report.Streams[0].Failure.String(), test.want) {
			t.Errorf("%s: %v, %v, expected %q", test.what, report.Streams[0].Failure, err, test.want)
		}
	}
}
