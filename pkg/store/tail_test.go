package store_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestTail_*: records were synced and acknowledged, the ring may have released them, and a power cut took the mark that
// says so: it becomes durable with the next sync alone. Then one bit of the first of them rots. What lies behind is
// sound, and nobody has it but this store. So opening changes none of it, the checkpoint says what is missing, and what
// makes room for the next record keeps every byte.

const tailFirst, tailCount = 10, 21 // records below the durable mark, and behind it

// newRotted gives a store in that state, and the bytes behind the rotted place.
func newRotted(t *testing.T, seed uint64) (f *fixture, from int64, behind []byte) {
	t.Helper()
	f = &fixture{t: t, fs: storetest.NewCrashFS(seed), ring: storetest.NewRing(testStream, 3)}
	f.open()
	f.ring.Append(tailFirst+tailCount, 300)
	first := storetest.Batch(f.ring.Records[:tailFirst])
	second := storetest.Batch(f.ring.Records[tailFirst : tailFirst+tailCount])
	for _, batch := range [][]byte{first, second} {
		if _, _, err := f.app.Append(batch); err != nil {
			t.Fatal(err)
		}
		if err := f.app.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	f.fs.Kill()
	from = int64(4096 + len(first))
	f.change("0000000001.seg", func(data []byte) []byte {
		clear(data[1024:1056]) // mark B, of the second sync
		data[from+70] ^= 1
		behind = bytes.Clone(data[from : int(from)+len(second)])
		return data
	})
	return f, from, behind
}

func TestTail_OpeningChangesNoByteOfIt(t *testing.T) {
	f, from, behind := newRotted(t, 1)
	for range 3 {
		f.open()
		if last := f.app.Last(); last.NextLSN != f.ring.Records[tailFirst].LSN {
			t.Fatalf("stands at %+v, expected next lsn %d: what is behind was released and is lost", last,
				f.ring.Records[tailFirst].LSN)
		}
		f.close() // as a drain does that finds less than the ring's head says
		f.checkTail(from, behind, false)
	}
	if report := f.verify(); report.Tail == nil || report.Tail.Offset != from ||
		report.Tail.Bytes != int64(len(behind)) {
		t.Errorf("verify says tail %+v, expected %d bytes at offset %d", report.Tail, len(behind), from)
	}
}

// checkTail looks for the bytes in the segment and in the files beside it.
func (f *fixture) checkTail(from int64, behind []byte, isMovedToo bool) {
	f.t.Helper()
	segment, err := f.fs.Bytes(streamPath + "0000000001.seg")
	if err != nil {
		f.t.Fatal(err)
	}
	if len(segment) >= int(from)+len(behind) && bytes.Equal(segment[from:int(from)+len(behind)], behind) {
		return
	}
	names, err := f.fs.ReadDir(streamPath)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		if raw, err := f.fs.Bytes(streamPath + name); err == nil && strings.HasSuffix(name, ".tail") &&
			bytes.Equal(raw, behind) {
			if !isMovedToo {
				f.t.Fatalf("the tail was moved to %s by opening alone", name)
			}
			return
		}
	}
	f.t.Fatalf("%d bytes behind offset %d are neither in the segment nor beside it, among %q", len(behind), from, names)
}

// TestTail_SurvivesACrashAtEachOperation: one who does not compare goes on at once. Whatever survives of the
// operations, the bytes do.
func TestTail_SurvivesACrashAtEachOperation(t *testing.T) {
	for seed := range uint64(8) {
		isDone := false
		for step := 0; !isDone; step++ {
			f, from, behind := newRotted(t, seed)
			f.fs.CrashAfter(step)
			app, err := f.store.OpenStream(f.ring.Source)
			if err == nil {
				_, _, err = app.Append(storetest.Batch(f.ring.Records[tailFirst:]))
			}
			if err == nil {
				err = app.Sync()
			}
			isDone = err == nil && !f.fs.IsCrashed()
			if err != nil && !f.fs.IsCrashed() {
				t.Fatal(err)
			}
			f.fs.Crash()
			f.checkTail(from, behind, true)
			f.open()
			f.feed()
			f.close()
			f.checkTail(from, behind, true)
			if report := f.verify(); report.Failure != nil || report.Tail != nil || len(report.MovedTails) == 0 {
				t.Fatalf("seed %d, step %d: %s, tail %+v, moved %q", seed, step, report.Statement(), report.Tail,
					report.MovedTails)
			}
		}
	}
}

// TestTail_OfASegmentWithoutASoundRecord: the first batch of a segment rots, so that the segment looks as if it held
// nothing.
func TestTail_OfASegmentWithoutASoundRecord(t *testing.T) {
	for name, goOn := range map[string]func(f *fixture){
		"the same ring goes on": func(f *fixture) { f.open(); f.feed() },
		"another ring comes": func(f *fixture) {
			f.ring = storetest.NewRing(testStream, 9)
			f.open()
			f.feed()
		},
		"another size of segments": func(f *fixture) {
			options := f.options()
			options.SegmentBytes *= 2
			f.openWith(options)
			f.feed()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.ring.Append(20, 300)
			raw := storetest.Batch(f.ring.Records)
			if _, _, err := f.app.Append(raw); err != nil {
				t.Fatal(err)
			}
			if err := f.app.Sync(); err != nil {
				t.Fatal(err)
			}
			f.fs.Kill()
			raw[60] ^= 1
			f.change("0000000001.seg", func(data []byte) []byte {
				clear(data[512:1056])
				data[4096+60] ^= 1
				return data
			})
			goOn(f)
			f.close()
			f.checkTail(4096, raw, true)
			if report := f.verify(); report.Failure != nil {
				t.Fatal(report.Statement())
			}
		})
	}
}

// TestTail_OtherBytesOfALaterCrashStayToo: a second crash at the same place does not write over what the first one
// left.
func TestTail_OtherBytesOfALaterCrashStayToo(t *testing.T) {
	f, from, behind := newRotted(t, 1)
	f.open()
	if _, _, err := f.app.Append(f.ring.Records[tailFirst].Raw); err != nil {
		t.Fatal(err)
	}
	f.fs.Kill()
	second := bytes.Clone(f.ring.Records[tailFirst].Raw)
	second[60] ^= 4
	f.change("0000000001.seg", func(data []byte) []byte {
		data[from+60] ^= 4
		return data
	})
	f.open()
	f.feed()
	f.close()
	f.checkTail(from, behind, true)
	f.checkTail(from, second, true)
}
