package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// TestBoundary_SyncedBytesThatAreGoneAreNoEnd: the bytes of a segment are cut off, or zeroed, where a record begins: a
// place that looks exactly like the end of the log. Below the mark, which a closed segment has for its very end, it is
// damage to everybody who reads.
func TestBoundary_SyncedBytesThatAreGoneAreNoEnd(t *testing.T) {
	f := newFixture(t)
	f.fill(60)
	places := f.read(store.ReaderOptions{IncludeControl: true})
	ends := map[uint64]bool{}
	last := places[len(places)-1].Segment
	for _, item := range places {
		name := streamPath + segmentName(item.Segment)
		sound, err := f.fs.Bytes(name)
		if err != nil {
			t.Fatal(err)
		}
		for how, damage := range map[string]func([]byte) []byte{
			"cut off": func(data []byte) []byte { return data[:item.Offset] },
			"zeroed":  func(data []byte) []byte { clear(data[item.Offset:]); return data },
		} {
			f.change(segmentName(item.Segment), damage)
			for who, err := range f.readers(name, item.Segment == last) {
				if !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("%s from offset %d on %s: %s says %v, expected %v", name, item.Offset, how, who, err,
						store.ErrCorrupt)
				}
			}
		}
		f.change(segmentName(item.Segment), func([]byte) []byte { return sound })
		ends[item.Segment] = true
	}
	if len(ends) < 3 {
		t.Fatalf("%d segments, expected full ones as well", len(ends))
	}
	for who, err := range f.readers(streamPath+segmentName(last), true) {
		if err != nil {
			t.Fatalf("sound again: %s says %v", who, err)
		}
	}
}

// readers gives what everybody who reads a segment says of it.
func (f *fixture) readers(name string, isLast bool) map[string]error {
	found := map[string]error{}
	whole := func(report store.StreamReport, err error) error {
		if err == nil && report.Failure != nil {
			return &store.CorruptError{Path: name, Err: errors.New(report.Failure.Reason)}
		}
		return err
	}
	found["VerifySegment"] = whole(store.VerifySegment(context.Background(), f.fs, name, nil))
	found["WalkSegment"] = store.WalkSegment(f.fs, name, func(string, record.Record) error { return nil })
	found["Verify"] = whole(f.verify(), nil)
	found["a reader"] = f.readToEnd(store.ReaderOptions{})
	found["a reader of synced records"] = f.readToEnd(store.ReaderOptions{
		SyncedOnly: true, IsOpenFast: true,
		IncludeSuperseded: true,
	})
	if isLast {
		app, err := f.store.OpenStream(f.ring.Source)
		if err == nil {
			err = app.Close()
		}
		found["OpenStream"] = err
	}
	return found
}

func (f *fixture) readToEnd(options store.ReaderOptions) error {
	r, err := f.store.OpenReader(testStream, options)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		if _, err := r.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func segmentName(number uint64) string { return fmt.Sprintf("%010d.seg", number) }
