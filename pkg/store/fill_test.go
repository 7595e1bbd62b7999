package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// fillTiny makes a store whose one segment is unsealed and whose records are of 1 to 5 bytes, with much fill.
func (f *fixture) fillTiny(count int) {
	f.t.Helper()
	for i := range count {
		f.ring.AppendPayload([]byte("fills")[:1+i%5])
	}
	f.feed()
	f.close()
}

func set(at int64) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at] = 0xff
		return data
	}
}

func clearByte(at int64) func([]byte) []byte {
	return func(data []byte) []byte {
		data[at] = 0
		return data
	}
}

// withFill gives everything in the store with the first and the last offset of its fill; records without fill are left
// out.
func (f *fixture) withFill(visit func(item store.Item, name string, first, last int64)) {
	f.t.Helper()
	count := 0
	for _, item := range f.read(store.ReaderOptions{IncludeControl: true}) {
		from, to := item.FillBounds(len(item.Raw))
		if from == to {
			continue
		}
		count++
		visit(item, fmt.Sprintf("%010d.seg", item.Segment), item.Offset+int64(from), item.Offset+int64(to)-1)
	}
	if count == 0 {
		f.t.Fatal("no record has fill: the test shows nothing")
	}
}

func TestVerify_FillThatIsNotZeroIsNamedByItsByte(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(f *fixture)
	}{
		{"unsealed segment of tiny records", func(f *fixture) { f.fillTiny(40) }},
		{"sealed segments", func(f *fixture) { f.fill(80) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			c.make(f)
			f.withFill(func(item store.Item, name string, first, last int64) {
				for _, at := range []int64{first, last} {
					f.change(name, set(at))
					failure := f.verify().Failure
					if failure == nil || failure.Segment != name || failure.LSN != item.LSN || failure.Offset != at {
						t.Fatalf("offset %d of %s is 0xff: got %v, expected lsn %d and that offset", at, name, failure,
							item.LSN)
					}
					report, err := store.VerifySegment(context.Background(), f.fs, streamPath+name, nil)
					if err != nil || report.Failure == nil || *report.Failure != *failure {
						t.Fatalf("the segment by itself: %v, %v, expected %v", report.Failure, err, failure)
					}
					f.change(name, clearByte(at))
				}
			})
			if report := f.verify(); report.Failure != nil {
				t.Fatal(report.Statement())
			}
		})
	}
}

func TestReader_DoesNotLookAtFill(t *testing.T) {
	f := newFixture(t)
	f.fillTiny(20)
	want := len(f.given)
	f.withFill(func(_ store.Item, name string, first, _ int64) { f.change(name, set(first)) })
	if got := len(f.read(store.ReaderOptions{IncludeControl: true})); got != want {
		t.Errorf("%d records read, expected %d", got, want)
	}
}

func TestOpenStream_RefusesFillThatIsNotZero(t *testing.T) {
	f := newFixture(t)
	f.fillTiny(20)
	at := int64(0)
	f.withFill(func(_ store.Item, _ string, first, _ int64) { at = first })
	f.change("0000000001.seg", set(at))
	app, err := f.store.OpenStream(f.ring.Source)
	if err == nil {
		app.Close()
	}
	var damage *store.CorruptError
	if !errors.As(err, &damage) || damage.Offset != at || !strings.Contains(err.Error(), "fill") {
		t.Fatalf("got %v, expected ErrCorrupt at offset %d", err, at)
	}
	f.change("0000000001.seg", clearByte(at))
	f.open()
	f.close()
}

// A ring may hold stale bytes around a sound record after a power cut: the store takes the record and leaves the bytes
// behind.
func TestAppend_WritesFillAsZero(t *testing.T) {
	f := newFixture(t)
	f.fillTiny(5)
	f.open()
	for range 10 {
		f.ring.AppendPayload([]byte("abc"))
	}
	var batch []byte
	for _, rec := range f.ring.Records {
		raw := bytes.Clone(rec.Raw)
		from, to := rec.FillBounds(len(raw))
		for i := from; i < to; i++ {
			raw[i] = 0xa5
		}
		batch = append(batch, raw...)
	}
	before := bytes.Clone(batch)
	if _, _, err := f.app.Append(batch); err != nil {
		t.Fatal(err)
	}
	f.close()
	if !bytes.Equal(batch, before) {
		t.Error("the caller's batch was changed")
	}
	if report := f.verify(); report.Failure != nil {
		t.Error(report.Statement())
	}
	id := record.Identity{
		Salt: f.ring.Source.Salt, Align: f.ring.Source.Align,
		RecordLenMax: f.ring.Source.RecordLenMax,
	}
	items := f.read(store.ReaderOptions{IncludeControl: true})
	for i, want := range f.ring.Records {
		got := items[len(items)-len(f.ring.Records)+i]
		if _, err := record.Decode(got.Raw, id); err != nil || !bytes.Equal(got.Raw, want.Raw) {
			t.Errorf("record at lsn %d is stored as %x, expected %x (%v)", want.LSN, got.Raw, want.Raw, err)
		}
	}
}
