package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const (
	testStream = "desk7/orders"
	streamPath = "/store/streams/desk7%2Forders/"
)

// fixture is a store on a file system in memory, filled from a ring.
type fixture struct {
	t     *testing.T
	fs    *storetest.CrashFS
	store *store.Store
	ring  *storetest.Ring
	app   *store.Appender
	// given is everything that was appended, in order.
	given []storetest.Record
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}
	f.open()
	return f
}

func (f *fixture) options() store.Options {
	return store.Options{Create: true, FS: f.fs, SegmentBytes: crashSegmentBytes, IsSynchronous: true}
}

func (f *fixture) open() {
	f.t.Helper()
	f.openWith(f.options())
}

func (f *fixture) openWith(options store.Options) {
	f.t.Helper()
	var err error
	if f.store, err = store.Open("/store", options); err != nil {
		f.t.Fatal(err)
	}
	if f.app, err = f.store.OpenStream(f.ring.Source); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) close() {
	f.t.Helper()
	if err := f.app.Close(); err != nil {
		f.t.Fatal(err)
	}
}

// feed puts everything in the ring that the store has not into it, in batches of ten, each synced.
func (f *fixture) feed() {
	f.t.Helper()
	records := f.ring.Records
	for len(records) > 0 {
		batch := records[:min(10, len(records))]
		records = records[len(batch):]
		if _, _, err := f.app.Append(storetest.Batch(batch)); err != nil {
			f.t.Fatal(err)
		}
		if err := f.app.Sync(); err != nil {
			f.t.Fatal(err)
		}
	}
	f.given = append(f.given, f.ring.Records...)
	f.ring.Release(f.ring.NextLSN())
}

// fill makes a closed store of several sealed segments and an open one.
func (f *fixture) fill(count int) {
	f.t.Helper()
	f.ring.Append(count, 600)
	f.feed()
	f.close()
}

func (f *fixture) verify() store.StreamReport {
	f.t.Helper()
	report, err := f.store.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(report.Streams) != 1 {
		f.t.Fatalf("%d streams in the report, expected 1", len(report.Streams))
	}
	return report.Streams[0]
}

func (f *fixture) change(name string, change func(data []byte) []byte) {
	f.t.Helper()
	if err := f.fs.Change(streamPath+name, change); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(options store.ReaderOptions) []store.Item {
	f.t.Helper()
	r, err := f.store.OpenReader(testStream, options)
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Close()
	return readAll(f.t, r)
}

func readAll(t *testing.T, r *store.Reader) []store.Item {
	t.Helper()
	var items []store.Item
	for {
		item, err := r.Next()
		if err == io.EOF {
			return items
		}
		if err != nil {
			t.Fatal(err)
		}
		item.Raw = bytes.Clone(item.Raw)
		items = append(items, item)
	}
}

func flip(at int) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at] ^= 0x10
		return data
	}
}

func TestAppend_GivesBackWhatWasAppended(t *testing.T) {
	f := newFixture(t)
	f.fill(300)
	items := f.read(store.ReaderOptions{IncludeControl: true})
	if len(items) != len(f.given) {
		t.Fatalf("read %d records, expected %d", len(items), len(f.given))
	}
	for i, item := range items {
		if !bytes.Equal(item.Raw, f.given[i].Raw) {
			t.Fatalf("record %d differs", i)
		}
	}
	report := f.verify()
	if report.Failure != nil || report.SealedSegments < 5 || report.Duplicates != 0 {
		t.Fatalf("%+v", report)
	}
	for _, item := range f.read(store.ReaderOptions{}) {
		if item.Flags.IsControl() {
			t.Fatalf("control record at lsn %d was not left out", item.LSN)
		}
	}
}

func TestAppend_DropsWhatIsThereAlready(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(20, 100)
	records := f.ring.Records
	pads := 0
	for _, rec := range records[:11] {
		if rec.Flags.IsPad() {
			pads++
		}
	}
	if stored, duplicates, err := f.app.Append(storetest.Batch(records[:11])); err != nil || stored != 11-pads ||
		duplicates != 0 {
		t.Fatalf("got %d, %d, %v", stored, duplicates, err)
	}
	stored, duplicates, err := f.app.Append(storetest.Batch(records[5:15]))
	if err != nil || stored != 4 || duplicates != 6 {
		t.Fatalf("got %d stored, %d duplicates, %v; expected 4 and 6", stored, duplicates, err)
	}
	if last := f.app.Last(); last.LSN != records[14].LSN || last.NextLSN != records[15].LSN ||
		last.NextSeq != records[15].Seq {
		t.Fatalf("stands at %+v", last)
	}
	if err := f.app.Sync(); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.open()
	if stored, duplicates, err := f.app.Append(storetest.Batch(records[:15])); err != nil || stored != 0 ||
		duplicates != 15 {
		t.Fatalf("after opening again: got %d, %d, %v", stored, duplicates, err)
	}
}

func TestAppend_RefusesWhatDoesNotContinue(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(30, 100)
	records := f.ring.Records
	if _, _, err := f.app.Append(storetest.Batch(records[:5])); err != nil {
		t.Fatal(err)
	}
	before := f.app.Last()
	short := storetest.Batch(records[5:7])
	for _, c := range []struct {
		name  string
		batch []byte
		want  error
	}{
		{"hole", storetest.Batch(records[6:8]), store.ErrOutOfOrder},
		{"hole in the middle", append(bytes.Clone(records[5].Raw), records[7].Raw...), store.ErrOutOfOrder},
		{"cut record", short[:len(short)-64], store.ErrOutOfOrder},
		{"no record", make([]byte, 128), store.ErrOutOfOrder},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := f.app.Append(c.batch); !errors.Is(err, c.want) {
				t.Errorf("got %v, expected %v", err, c.want)
			}
			if f.app.Last() != before {
				t.Errorf("moved to %+v", f.app.Last())
			}
		})
	}
	f.ring.Append(40, 3000)
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[5:])); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("batch larger than a segment: got %v", err)
	}
	f.close()
	if _, _, err := f.app.Append(records[5].Raw); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
}

func TestOpenStream_SecondAppenderIsToldWhoHoldsIt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(dir, store.Options{Create: true, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ring := storetest.NewRing(testStream, 1)
	a, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.OpenStream(ring.Source)
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("pid=%d", os.Getpid())) {
		t.Fatalf("got %v, expected %v with the holder's pid", err, store.ErrLocked)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := s.OpenStream(ring.Source)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_RefusesAForeignDirectoryAndWritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, create := range []bool{true, false} {
		if _, err := store.Open(dir, store.Options{Create: create}); !errors.Is(err, store.ErrNotAStore) {
			t.Errorf("create %v: got %v, expected %v", create, err, store.ErrNotAStore)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v, %v", entries, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "store.json"), []byte(`{"format":"farlog-store","version":9}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(dir, store.Options{}); !errors.Is(err, store.ErrNotAStore) ||
		!strings.Contains(err.Error(), "version 9") {
		t.Errorf("other version: got %v", err)
	}
	if _, err := store.Open(dir, store.Options{SegmentBytes: 5000}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("segment size: got %v", err)
	}
}

func TestRecover_TornTailIsCut(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(12, 200)
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[:6])); err != nil {
		t.Fatal(err)
	}
	if err := f.app.Sync(); err != nil {
		t.Fatal(err)
	}
	synced := len(storetest.Batch(f.ring.Records[:6]))
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[6:])); err != nil {
		t.Fatal(err)
	}
	f.fs.Kill()
	f.change("0000000001.seg", flip(4096+synced+60)) // in the first unsynced record
	report := f.verify()
	if report.Failure != nil || report.Tail == nil || report.Tail.Offset != int64(4096+synced) {
		t.Errorf("before recovery: %s, tail %+v", report.Statement(), report.Tail)
	}
	f.open()
	if last := f.app.Last(); last.NextLSN != f.ring.Records[6].LSN {
		t.Fatalf("stands at %+v, expected next lsn %d", last, f.ring.Records[6].LSN)
	}
	data, err := f.fs.Bytes(streamPath + "0000000001.seg")
	if err != nil {
		t.Fatal(err)
	}
	if rest := bytes.Trim(data[4096+synced:], "\x00"); len(rest) == 0 {
		t.Error("the bytes behind the tail are gone before a record came")
	}
	f.ring.Release(f.app.Last().NextLSN)
	if _, _, err := f.app.Append(f.ring.Records[0].Raw); err != nil {
		t.Fatal(err)
	}
	if data, err = f.fs.Bytes(streamPath + "0000000001.seg"); err != nil {
		t.Fatal(err)
	}
	if rest := bytes.Trim(data[4096+synced+len(f.ring.Records[0].Raw):], "\x00"); len(rest) != 0 {
		t.Errorf("%d bytes behind the tail are not zero", len(rest))
	}
	f.feed()
	f.close()
	if report := f.verify(); report.Failure != nil || report.Tail != nil {
		t.Errorf("after recovery: %s", report.Statement())
	}
}

func TestRecover_DamageBelowTheMarkIsRefusedByName(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(6, 200)
	f.feed()
	f.fs.Kill()
	first := f.given[1]
	offset := 4096 + len(f.given[0].Raw)
	f.change("0000000001.seg", flip(offset+58))
	_, err := f.store.OpenStream(f.ring.Source)
	var corrupt *store.CorruptError
	if !errors.Is(err, store.ErrCorrupt) || !errors.As(err, &corrupt) {
		t.Fatalf("got %v, expected %v", err, store.ErrCorrupt)
	}
	if path.Base(corrupt.Path) != "0000000001.seg" || corrupt.LSN != first.LSN || corrupt.Offset != int64(offset) {
		t.Errorf("named %+v, expected lsn %d at offset %d", corrupt, first.LSN, offset)
	}
	if report := f.verify(); report.Failure == nil || report.Failure.LSN != first.LSN ||
		report.Failure.Offset != int64(offset) {
		t.Errorf("verify: %s", report.Statement())
	}
}

func TestSync_FailureTakesTheAppenderBack(t *testing.T) {
	f := newFixture(t)
	f.ring.Append(10, 100)
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[:4])); err != nil {
		t.Fatal(err)
	}
	if err := f.app.Sync(); err != nil {
		t.Fatal(err)
	}
	before := f.app.Last()
	if _, _, err := f.app.Append(storetest.Batch(f.ring.Records[4:])); err != nil {
		t.Fatal(err)
	}
	f.fs.FailNextSync(syscall.EIO)
	if err := f.app.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("got %v", err)
	}
	if f.app.Last() != before {
		t.Fatalf("stands at %+v, expected %+v", f.app.Last(), before)
	}
	f.feed()
	f.fs.Crash()
	f.open()
	if last := f.app.Last(); last.NextLSN != f.ring.NextLSN() {
		t.Fatalf("after the crash: %+v, expected next lsn %d", last, f.ring.NextLSN())
	}
}
