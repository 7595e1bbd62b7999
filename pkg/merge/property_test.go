package merge_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// TestOrder_IsTheSameOnEveryRerun lets streams come in at random: clocks that go back and ahead, heartbeats, streams
// that are late or new, epochs that replace what was stored, drains and merges that are killed or lose the power at any
// operation. What a reader was given may never change. In the end the order is taken away and made again from the
// finished store: it must be the same, byte for byte, and hold every record once.
func TestOrder_IsTheSameOnEveryRerun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, err := newWorld(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 6).Draw(t, "streams"))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.openMerge(); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(5, 60).Draw(t, "acts") {
			if err := w.act(t); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.finish(); err != nil {
			t.Fatal(err)
		}
		if err := w.checkRerun(); err != nil {
			t.Fatal(err)
		}
	})
}

// act does one thing; a crash in its course brings everything up again.
func (w *world) act(t *rapid.T) error {
	f := rapid.SampledFrom(w.feeds).Draw(t, "stream")
	var err error
	switch rapid.IntRange(0, 9).Draw(t, "act") {
	case 0, 1, 2:
		f.play(t, w.now)
	case 3, 4:
		err = f.drain(w.store, rapid.Bool().Draw(t, "sync"))
	case 5, 6:
		err = w.settle()
	case 7:
		w.pass(time.Duration(rapid.IntRange(0, 1500).Draw(t, "ms")) * time.Millisecond)
	case 8:
		w.fs.CrashAfter(rapid.IntRange(0, 12).Draw(t, "operations"))
	case 9:
		err = w.merger.Close()
		w.merger = nil
	}
	if err != nil && !errors.Is(err, storetest.ErrCrashed) {
		return err
	}
	if w.fs.IsCrashed() {
		if rapid.Bool().Draw(t, "power") {
			w.fs.Crash()
		} else {
			w.fs.Kill()
		}
		return w.comeUp()
	}
	if w.merger == nil {
		err = w.openMerge()
	}
	if err == nil {
		err = w.look()
	}
	if errors.Is(err, storetest.ErrCrashed) {
		w.fs.Crash()
		return w.comeUp()
	}
	return err
}

func (w *world) comeUp() error {
	w.merger = nil
	for _, f := range w.feeds {
		f.app = nil
	}
	if err := w.openStore(); err != nil {
		return err
	}
	if err := w.openMerge(); err != nil {
		return err
	}
	return w.look()
}

// play lets a writer append a few records.
func (f *feed) play(t *rapid.T, now time.Time) {
	if f.cursor.Epoch == 0 {
		f.put(uint64(now.UnixNano()), record.FlagEpoch, "")
	}
	for range rapid.IntRange(1, 8).Draw(t, "records") {
		ts := uint64(now.UnixNano() + int64(rapid.IntRange(-3000, 200).Draw(t, "skew"))*int64(time.Millisecond))
		switch rapid.IntRange(0, 19).Draw(t, "kind") {
		case 0, 1:
			f.put(ts, record.FlagHeartbeat, "")
		case 2:
			f.rewind(rapid.IntRange(0, 5).Draw(t, "undone"), ts)
		case 3:
			f.put(ts+3600*second, record.Flags(rapid.SampledFrom([]int{0, int(record.FlagHeartbeat)}).Draw(t, "flags")),
				"from the future")
		default:
			f.put(ts, 0, rapid.StringN(0, 40, 40).Draw(t, "payload"))
		}
	}
}

// finish brings everything in and ends the order.
func (w *world) finish() error {
	w.fs.CrashAfter(-1)
	for _, f := range w.feeds {
		if len(f.ring) == 0 {
			continue
		}
		if err := f.drain(w.store, true); err != nil {
			return err
		}
	}
	w.pass(2 * time.Second)
	if err := w.merger.Finish(context.Background()); err != nil {
		return err
	}
	return w.look()
}

func (w *world) checkRerun() error {
	before, err := w.orderBytes()
	if err != nil {
		return err
	}
	report, err := merge.Verify(context.Background(), w.store, nil)
	if err != nil {
		return err
	}
	if report.Failure != nil || report.Entries != uint64(len(w.seen)) {
		return errors.New(report.Statement())
	}
	if err := w.checkWhole(); err != nil {
		return err
	}
	if err := w.merger.Close(); err != nil {
		return err
	}
	if err := merge.Remove(w.store); err != nil {
		return err
	}
	if err := w.openMerge(); err != nil {
		return err
	}
	if err := w.merger.Finish(context.Background()); err != nil {
		return err
	}
	after, err := w.orderBytes()
	if err != nil {
		return err
	}
	if !bytes.Equal(before, after) {
		return errors.New("the order that was made again has other bytes")
	}
	return w.look()
}
