package merge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// start makes a world of streams in which each has begun, its position one millisecond behind the clock.
func start(t *testing.T, streams int) *world {
	t.Helper()
	w, err := newWorld(7, streams)
	must(t, err)
	for _, f := range w.feeds {
		f.put(begin, record.FlagEpoch, "")
		must(t, f.drain(w.store, true))
	}
	must(t, w.openMerge())
	return w
}

func (w *world) in(t *testing.T) {
	t.Helper()
	for _, f := range w.feeds {
		must(t, f.drain(w.store, true))
	}
	must(t, w.settle())
	must(t, w.look())
}

// texts gives the payload-free summary of the order: stream number and time after the begin, with flags.
func (w *world) texts() string {
	var parts []string
	for _, e := range w.seen {
		if e.RecordFlags&record.FlagEpoch != 0 {
			continue
		}
		text := fmt.Sprintf("%c+%d", e.Stream[4], (int64(e.TimestampNS)-int64(begin))/int64(time.Millisecond))
		if e.Flags != 0 {
			text += "(" + e.Flags.String() + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func at(ms int) uint64 { return begin + uint64(ms)*uint64(time.Millisecond) }

func expect(t *testing.T, w *world, want string) {
	t.Helper()
	if got := w.texts(); got != want {
		t.Fatalf("order is %q, expected %q", got, want)
	}
}

func TestMerge_WaitsForASilentStreamUntilItsHeartbeat(t *testing.T) {
	w := start(t, 2)
	w.feeds[0].put(at(10), 0, "a")
	w.feeds[0].put(at(30), 0, "b")
	w.in(t)
	expect(t, w, "")
	if p := w.merger.Progress(); p.WaitsFor != w.feeds[1].name {
		t.Fatalf("waits for %q", p.WaitsFor)
	}
	w.feeds[1].put(at(20), record.FlagHeartbeat, "")
	w.in(t)
	expect(t, w, "0+10")
	w.feeds[1].put(at(30), 0, "c")
	w.in(t)
	// of equal times the stream whose name is first goes first; its next one may still come before 1+30
	expect(t, w, "0+10 0+30")
	w.feeds[0].put(at(31), record.FlagHeartbeat, "")
	w.in(t)
	expect(t, w, "0+10 0+30 1+30")
}

func TestMerge_GoesOnWithoutALateStreamAndMarksItsRecords(t *testing.T) {
	w := start(t, 2)
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	w.pass(900 * time.Millisecond)
	w.in(t)
	expect(t, w, "")
	w.pass(200 * time.Millisecond)
	w.in(t)
	expect(t, w, "0+10")
	w.feeds[1].put(at(5), 0, "late")
	w.feeds[1].put(at(8), 0, "late as well")
	w.feeds[1].put(at(40), 0, "not late")
	w.pass(300 * time.Millisecond)
	w.feeds[0].put(at(50), 0, "b")
	w.in(t)
	expect(t, w, "0+10 1+5(late) 1+8(late) 1+40")
	if p := w.merger.Progress(); p.Late != 2 || p.Absent != 0 || p.NextIndex != 6 {
		t.Fatalf("progress is %+v", p)
	}
	must(t, w.checkRerun2(t))
}

// checkRerun2 is checkRerun with everything ended.
func (w *world) checkRerun2(t *testing.T) error {
	t.Helper()
	must(t, w.merger.Finish(context.Background()))
	must(t, w.look())
	return w.checkRerun()
}

func TestMerge_ClockThatGoesBackKeepsTheOrderOfItsStream(t *testing.T) {
	w := start(t, 2)
	for _, ms := range []int{100, 20, 30, 101} {
		w.feeds[0].put(at(ms), 0, "x")
	}
	w.feeds[1].put(at(50), 0, "y")
	w.feeds[1].put(at(200), 0, "z")
	w.in(t)
	expect(t, w, "1+50 0+100 0+20(clock-back) 0+30(clock-back) 0+101")
	must(t, w.checkRerun2(t))
}

func TestMerge_TimeFromTheFutureHoldsNothingUp(t *testing.T) {
	w := start(t, 2)
	w.feeds[0].put(at(3600_000), 0, "an hour ahead")
	w.feeds[0].put(at(20), 0, "b")
	w.feeds[1].put(at(10), 0, "c")
	w.feeds[1].put(at(3600_000), record.FlagHeartbeat, "")
	w.feeds[1].put(at(30), 0, "d")
	w.in(t)
	w.pass(2 * time.Second)
	w.in(t)
	expect(t, w, "0+3600000(early) 1+10 0+20 1+30")
	must(t, w.checkRerun2(t))
}

func TestMerge_StreamThatIsNewComesIn(t *testing.T) {
	w := start(t, 1)
	more, err := newWorld(7, 2)
	must(t, err)
	late := more.feeds[1]
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	expect(t, w, "0+10")
	w.feeds = append(w.feeds, late)
	late.put(at(1), record.FlagEpoch, "")
	late.put(at(5), 0, "b")
	late.put(at(15), 0, "c")
	w.in(t)
	w.pass(listed)
	w.feeds[0].put(at(20), 0, "d")
	w.in(t)
	expect(t, w, "0+10 1+5(late) 1+15")
	must(t, w.checkRerun2(t))
}

const listed = 1500 * time.Millisecond // streams are looked for every second

func TestOpen_SecondMergeIsRefused(t *testing.T) {
	w := start(t, 1)
	if _, err := merge.Open(w.store, merge.Options{}); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("error is %v, expected %v", err, store.ErrLocked)
	}
	if _, err := merge.Open(w.store, merge.Options{LateLimit: -1}); !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("error is %v, expected %v", err, store.ErrInvalid)
	}
}

func TestReader_SeekTimeFindsTheFirstAtOrAfter(t *testing.T) {
	w := start(t, 3)
	for ms := 1; ms < 200; ms++ {
		w.feeds[ms%3].put(at(ms), 0, "x")
	}
	w.in(t)
	must(t, w.merger.Finish(context.Background()))
	for _, ms := range []int{0, 1, 50, 63, 64, 65, 130, 199} {
		r, err := merge.OpenReader(w.store)
		must(t, err)
		must(t, r.SeekTime(time.Unix(0, int64(at(ms)))))
		item, err := r.Next()
		must(t, err)
		if item.OrderNS != at(ms) || ms > 0 && item.Index != uint64(ms+2) {
			t.Fatalf("sought %d ms: order time %d, index %d", ms, item.OrderNS-begin, item.Index)
		}
		must(t, r.Close())
	}
}

// Each alteration of a byte of the order, of a decision or of a checkpoint is found, and so is a file that is missing.
func TestVerify_FindsEveryAlteration(t *testing.T) {
	w := start(t, 2)
	for ms := 1; ms < 120; ms++ {
		w.feeds[0].put(at(ms), 0, "x")
	}
	w.in(t)
	w.pass(2 * time.Second)
	w.in(t)
	w.feeds[1].put(at(5), 0, "late")
	w.pass(time.Second)
	w.in(t)
	must(t, w.merger.Finish(context.Background()))
	must(t, w.merger.Close())
	for _, name := range []string{
		"order/0000000001.seg", "order/0000000001.json", "order/0000000002.seg", "decisions",
	} {
		name = path.Join("/store/merged", name)
		raw, err := w.fs.Bytes(name)
		must(t, err)
		used := len(bytes.TrimRight(raw, "\x00")) // what lies behind the last record means nothing
		for off := 0; off < used; off += 7 {
			if strings.HasSuffix(name, ".seg") && off >= 512 && off < 4096 ||
				strings.HasSuffix(name, "s") && off < 1024 {
				continue // marks and reserved bytes: they say how far, not what
			}
			flip := func(data []byte) []byte { data[off] ^= 0x10; return data }
			must(t, w.fs.Change(name, flip))
			report, err := merge.Verify(context.Background(), w.store, nil)
			if err == nil && report.Failure == nil {
				t.Fatalf("%s: a bit of byte %d is another, and verify finds nothing", name, off)
			}
			must(t, w.fs.Change(name, flip))
		}
	}
	report, err := merge.Verify(context.Background(), w.store, nil)
	must(t, err)
	if report.Failure != nil || report.Late != 1 || report.Entries != 122 {
		t.Fatalf("%+v: %s", report, report.Statement())
	}
	must(t, w.fs.Remove(firstSegment))
	report, err = merge.Verify(context.Background(), w.store, nil)
	if err != nil || report.Failure == nil {
		t.Fatalf("segment is missing: %v, %v", report, err)
	}
}

// What a merge knows of a stream beyond its records is known to the next one: that it was late, and how far its clock
// had been.
func TestOpen_GoesOnAsIfItHadNotEnded(t *testing.T) {
	for _, ms := range []int{5, 8} { // which of the records is the last before the end
		w := start(t, 2)
		w.feeds[0].put(at(10), 0, "a")
		w.in(t)
		w.pass(1100 * time.Millisecond)
		w.in(t)
		for _, one := range []int{5, 8, 9} {
			w.feeds[1].put(at(one), 0, "late")
			if one == ms {
				w.pass(time.Second)
				w.in(t)
				must(t, w.merger.Close())
				must(t, w.openMerge())
			}
		}
		w.pass(time.Second)
		w.in(t)
		expect(t, w, "0+10 1+5(late) 1+8(late) 1+9(late)")
		must(t, w.checkRerun2(t))
	}
	w := start(t, 2)
	for _, ms := range []int{100, 20, 30} {
		w.feeds[0].put(at(ms), 0, "x")
		w.feeds[1].put(at(200), record.FlagHeartbeat, "")
		w.in(t)
		must(t, w.merger.Close())
		must(t, w.openMerge())
	}
	w.in(t)
	expect(t, w, "0+100 0+20(clock-back) 0+30(clock-back)")
}

// Whole entries that a crash left behind a torn one are of an order that never was.
func TestOpen_CutsWholeEntriesBehindATornOne(t *testing.T) {
	w := start(t, 1)
	for ms := 1; ms < 20; ms++ {
		w.feeds[0].put(at(ms), 0, "x")
	}
	w.in(t)
	must(t, w.merger.Close())
	raw, err := w.fs.Bytes(firstSegment)
	must(t, err)
	used := len(bytes.TrimRight(raw, "\x00"))
	torn := used - 5*entryBytes // within one of the last
	must(t, w.fs.Change(firstSegment, func(data []byte) []byte {
		clear(data[512:4096])               // no mark of them
		clear(data[torn : torn+entryBytes]) // one that the crash took
		return data
	}))
	must(t, w.openMerge())
	if next := w.merger.Progress().NextIndex; next == 0 || next > 20-5 {
		t.Fatalf("%d entries, expected those before the torn one", next)
	}
	w.in(t)
	must(t, w.checkRerun2(t))
}

// A decision that lies before what is in the order is said, at once and by whatever is called, and nothing more is put
// in.
func TestStep_DecisionBeforeTheOrderIsAnError(t *testing.T) {
	w := start(t, 1)
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	w.merger.Decide(w.feeds[0].name, store.Place{Generation: 1, Epoch: 1, LSN: w.feeds[0].cursor.LSN}, at(5))
	w.feeds[0].put(at(20), 0, "b")
	must(t, w.feeds[0].drain(w.store, true))
	for range 2 {
		if err := w.merger.Finish(context.Background()); err == nil ||
			!strings.Contains(err.Error(), "merged order goes back with stream desk0/orders") {
			t.Fatalf("error is %v", err)
		}
	}
}

// A decision that was synced and is no longer whole is damage, also when it is the last: nothing of the file is cut.
func TestOpen_DamagedLastDecisionIsNotCut(t *testing.T) {
	w := start(t, 2)
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	w.pass(1100 * time.Millisecond)
	w.in(t)
	w.feeds[1].put(at(5), 0, "late")
	w.pass(time.Second)
	w.in(t)
	must(t, w.merger.Close())
	must(t, w.fs.Change("/store/merged/decisions", func(data []byte) []byte { data[1024+3] ^= 1; return data }))
	before, err := w.fs.Bytes("/store/merged/decisions")
	must(t, err)
	if err := w.openMerge(); !errors.Is(err, store.ErrCorrupt) ||
		!strings.Contains(err.Error(), "0 decisions are whole, 1 were synced") {
		t.Fatalf("error is %v", err)
	}
	after, err := w.fs.Bytes("/store/merged/decisions")
	must(t, err)
	if len(after) != len(before) || len(before) == 0 {
		t.Fatalf("%d bytes of %d are left", len(after), len(before))
	}
}

// A file in the place of the decisions that holds something else, or of which both marks are damaged, is refused. It
// was taken for one without decisions, and cut.
func TestOpen_ForeignDecisionsAreNotCut(t *testing.T) {
	for name, change := range map[string]func(data []byte) []byte{
		"text":           func([]byte) []byte { return bytes.Repeat([]byte("not ours\n"), 200) },
		"short":          func([]byte) []byte { return []byte("not ours\n") },
		"without marks":  func(data []byte) []byte { return append(data[1024:], data...) },
		"marks damaged":  func(data []byte) []byte { data[3], data[512+3] = 1, 1; return data },
		"between marks":  func(data []byte) []byte { data[100] = 1; return data },
		"behind mark B":  func(data []byte) []byte { data[1000] = 1; return data },
		"text as mark B": func([]byte) []byte { return append(make([]byte, 512), "not ours\n"...) },
	} {
		w := start(t, 2)
		w.feeds[0].put(at(10), 0, "a")
		w.in(t)
		w.pass(1100 * time.Millisecond)
		w.in(t)
		w.feeds[1].put(at(5), 0, "late")
		w.pass(time.Second)
		w.in(t)
		must(t, w.merger.Close())
		must(t, w.fs.Change("/store/merged/decisions", change))
		before, err := w.fs.Bytes("/store/merged/decisions")
		must(t, err)
		if err := w.openMerge(); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "decisions") {
			t.Errorf("%s: error is %v", name, err)
		}
		after, err := w.fs.Bytes("/store/merged/decisions")
		must(t, err)
		if !bytes.Equal(after, before) {
			t.Errorf("%s: %d bytes of %d are left", name, len(after), len(before))
		}
	}
}

// A stream that brings something all the time, but of ten minutes ago, does not keep the others back: neither with
// records nor with heartbeats.
func TestMerge_BacklogOfOneStreamIsWaitedForOnce(t *testing.T) {
	for _, flags := range []record.Flags{0, record.FlagHeartbeat} {
		w := start(t, 2)
		old := begin - 600*second
		for step := range 50 {
			old += 100 * uint64(time.Millisecond)
			w.feeds[1].put(old, flags, "old")
			w.feeds[0].put(uint64(w.now.UnixNano()), 0, "new")
			w.in(t)
			if step > 25 {
				newest := uint64(0)
				for _, e := range w.seen {
					if e.Stream == w.feeds[0].name {
						newest = e.TimestampNS
					}
				}
				if behind := time.Duration(uint64(w.now.UnixNano()) - newest); behind > time.Second {
					t.Fatalf("step %d: the stream that is on time is %s behind", step, behind)
				}
			}
			w.pass(200 * time.Millisecond)
		}
		must(t, w.checkRerun2(t))
	}
}

// A stream that had something at every look for longer than is waited, and then has nothing for a moment, is waited for
// from that moment on.
func TestMerge_StreamThatWasNeverSilentIsWaitedFor(t *testing.T) {
	w := start(t, 2)
	ms := 0
	for ; ms < 3000; ms += 100 {
		w.feeds[0].put(at(ms+50), 0, "ahead")
		w.feeds[1].put(at(ms), 0, "behind")
		w.in(t)
		w.pass(100 * time.Millisecond)
	}
	w.feeds[1].put(at(ms), record.FlagHeartbeat, "")
	w.in(t)
	w.pass(50 * time.Millisecond)
	w.feeds[1].put(at(ms+50), 0, "must wait")
	w.in(t)
	w.feeds[0].put(at(ms+20), 0, "in time")
	w.in(t)
	w.feeds[0].put(at(ms+60), record.FlagHeartbeat, "")
	w.in(t)
	if got, want := w.texts(), "0+3020 1+3050"; !strings.HasSuffix(got, want) {
		t.Fatalf("order ends with %q, expected %q", got[max(0, len(got)-60):], want)
	}
}

// A reader that has come to the end gets what is merged later, though it has read the stream's end ahead when that was
// shorter.
func TestReader_FollowsAMergeThatGoesOn(t *testing.T) {
	w := start(t, 1)
	w.feeds[0].put(at(1), 0, "x")
	w.in(t)
	r, err := merge.OpenReader(w.store)
	must(t, err)
	defer r.Close()
	for ms := 2; ms < 5; ms++ {
		for {
			item, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if item.RecordFlags&record.FlagEpoch == 0 && item.OrderNS != at(ms-1) {
				t.Fatalf("entry of %d ms, expected that of %d ms", (item.OrderNS-begin)/uint64(time.Millisecond), ms-1)
			}
		}
		w.feeds[0].put(at(ms), 0, "x")
		w.in(t)
	}
}

// What is written and not synced is given to no reader.
func TestReader_GivesOnlyWhatIsSynced(t *testing.T) {
	w := start(t, 1)
	w.in(t)
	before := len(w.seen)
	w.feeds[0].put(at(1), 0, "x")
	must(t, w.feeds[0].drain(w.store, true))
	isMoved, err := w.merger.Step()
	must(t, err)
	must(t, w.merger.Write())
	if all, err := w.entries(); err != nil || !isMoved || len(all) != before {
		t.Fatalf("moved %v, %d entries, expected the %d that are synced: %v", isMoved, len(all), before, err)
	}
	w.in(t)
	if len(w.seen) != before+1 {
		t.Fatalf("%d entries, expected %d", len(w.seen), before+1)
	}
}

// Everything that is stored when Finish is called goes in: of a stream that has begun since the last look at them, and
// of one that was not waited for.
func TestFinish_TakesInNewAndAbsentStreams(t *testing.T) {
	w := start(t, 2)
	more, err := newWorld(7, 3)
	must(t, err)
	w.feeds[0].put(at(10), 0, "a")
	w.in(t)
	w.pass(1100 * time.Millisecond)
	w.in(t)
	w.feeds[1].put(at(20), 0, "b")
	w.feeds = append(w.feeds, more.feeds[2])
	w.feeds[2].put(at(1), record.FlagEpoch, "")
	w.feeds[2].put(at(30), 0, "c")
	for _, f := range w.feeds {
		must(t, f.drain(w.store, true))
	}
	must(t, w.checkRerun2(t))
	expect(t, w, "0+10 1+20 2+30")
}
