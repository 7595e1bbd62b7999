//go:build farlog_fault

package drain

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/merge"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const mergedDir = "/store/merged"

// look reads on in the order, after a crash from its start, and checks what it is given.
func (w *mergedWorld) look() error {
	at := len(w.seen)
	if w.reader == nil {
		reader, err := merge.OpenReader(w.store)
		if errors.Is(err, store.ErrNotFound) && at == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		w.reader, at = reader, 0
	}
	for ; ; at++ {
		item, err := w.reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if at < len(w.seen) {
			if bare(item.Entry) != bare(w.seen[at]) {
				return fmt.Errorf("entry %d is %+v, %+v had been given", at, item.Entry, w.seen[at])
			}
			continue
		}
		if err := w.take(item); err != nil {
			return fmt.Errorf("entry %d, %+v: %w", at, item.Entry, err)
		}
	}
	if at < len(w.seen) {
		return fmt.Errorf("order has %d entries, %d had been given", at, len(w.seen))
	}
	return nil
}

// bare is an entry as far as the order goes by it.
func bare(e merge.Entry) merge.Entry {
	return merge.Entry{
		OrderNS: e.OrderNS, TimestampNS: e.TimestampNS, Place: e.Place, Seq: e.Seq, Flags: e.Flags,
		RecordFlags: e.RecordFlags, RecordCRC: e.RecordCRC, Stream: e.Stream,
	}
}

// take is given an entry that is new: behind the one before, in time if its stream was, and of a record that is what
// was appended.
func (w *mergedWorld) take(item merge.Item) error {
	l := w.laneOf(item.Stream)
	if l == nil {
		return errors.New("no such stream")
	}
	if n := len(w.seen); n > 0 {
		last := w.seen[n-1]
		if item.OrderNS < last.OrderNS || item.OrderNS == last.OrderNS && item.Stream < last.Stream {
			return fmt.Errorf("it goes before entry %d, %+v", n-1, last)
		}
		if item.OrderNS == last.OrderNS && item.Stream != last.Stream {
			w.tally.Ties++
		}
	}
	if item.Flags&merge.FlagLate != 0 && !l.mayBeLate {
		return errors.New("it is late, and its stream was never silent for as long as is waited")
	}
	w.seen = append(w.seen, item.Entry)
	if item.Record.Flags&record.FlagEpoch != 0 {
		return nil
	}
	return w.recognize(l, item.Record)
}

func (w *mergedWorld) laneOf(name string) *lane {
	for _, l := range w.lanes {
		if l.name == name {
			return l
		}
	}
	return nil
}

func (w *mergedWorld) recognize(l *lane, item store.Item) error {
	id := binary.LittleEndian.Uint64(item.Payload)
	r := l.records[id]
	switch {
	case r == nil:
		return fmt.Errorf("record %#x was never appended", id)
	case !bytes.Equal(item.Payload, payloadOf(id)):
		return fmt.Errorf("record %#x is not what was appended", id)
	case r.isMerged:
		return fmt.Errorf("record %#x is in the order twice", id)
	case r.isAcked && (r.position.LSN != item.LSN || r.position.Epoch != item.Epoch || r.position.Seq != item.Seq):
		return fmt.Errorf("record %#x was acknowledged as %+v", id, r.position)
	}
	r.isMerged = true
	return nil
}

// check compares the finished order with the streams, and with itself made again.
func (w *mergedWorld) check() error {
	for _, l := range w.lanes {
		for id, r := range l.records {
			if r.isAcked && !r.isMerged {
				return fmt.Errorf("acknowledged record %#x of %s, %+v, is not in the order", id, l, r.position)
			}
		}
	}
	if err := w.checkMarks(); err != nil {
		return err
	}
	report, err := merge.Verify(context.Background(), w.store, nil)
	if err != nil {
		return err
	}
	if report.Failure != nil || report.Entries != uint64(len(w.seen)) {
		return fmt.Errorf("verify: %s; %d entries were given", report.Statement(), len(w.seen))
	}
	before, err := w.orderBytes()
	if err != nil {
		return err
	}
	w.tally.Digest, w.tally.Entries = w.digest(), len(w.seen)
	for _, isCrashing := range []bool{false, true} {
		if err := w.mergeAgain(isCrashing); err != nil {
			return fmt.Errorf("merge again from the start: %w", err)
		}
		after, err := w.orderBytes()
		if err != nil {
			return err
		}
		if !bytes.Equal(before, after) {
			return fmt.Errorf("order that was made again from the start, with crashes: %v, has other bytes", isCrashing)
		}
	}
	return nil
}

// digest is of what a seed decides: keys, and uuids with the CRCs over them, are drawn elsewhere.
func (w *mergedWorld) digest() uint64 {
	sum := fnv.New64a()
	for _, e := range w.seen {
		fmt.Fprintln(sum, e.Stream, e.Place, e.Seq, e.OrderNS, e.TimestampNS, e.Flags)
	}
	return sum.Sum64()
}

// checkMarks: an entry says that it is late, or that its clock went back, when that is so and only then.
func (w *mergedWorld) checkMarks() error {
	behind, total, err := w.clocksBack()
	if err != nil {
		return err
	}
	if total != len(w.seen) {
		return fmt.Errorf("order has %d entries, the streams have %d records for it", len(w.seen), total)
	}
	var last merge.Entry
	for i, e := range w.seen {
		isBehind := e.TimestampNS < last.OrderNS || e.TimestampNS == last.OrderNS && e.Stream < last.Stream
		isBack := behind[e.Stream][e.Place]
		isMarked := e.Flags&(merge.FlagLate|merge.FlagBack) != 0 && e.OrderNS > e.TimestampNS
		switch {
		case isBack && !isMarked, !isBack && isBehind && (!isMarked || e.Flags != merge.FlagLate):
			return fmt.Errorf("entry %d, %+v, behind %+v: its time is passed, and its mark does not say why", i, e,
				last)
		case !isBack && !isBehind && (e.Flags != 0 || e.OrderNS != e.TimestampNS):
			return fmt.Errorf("entry %d, %+v, behind %+v: expected it in its own time, without a mark", i, e, last)
		}
		if e.Flags&merge.FlagLate != 0 {
			w.tally.Late++
		}
		if e.Flags&merge.FlagBack != 0 {
			w.tally.Back++
		}
		last = e
	}
	return nil
}

// clocksBack finds, in the store, the records whose stream was later already, and counts those that belong into the
// order.
func (w *mergedWorld) clocksBack() (behind map[string]map[store.Place]bool, total int, err error) {
	behind = map[string]map[store.Place]bool{}
	for _, l := range w.lanes {
		places, floorNS := map[store.Place]bool{}, uint64(0)
		behind[l.name] = places
		reader, err := w.store.OpenReader(l.name, store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
		if err != nil {
			return nil, 0, err
		}
		defer reader.Close()
		for {
			item, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, 0, err
			}
			if item.Flags&record.FlagPad != 0 {
				continue
			}
			places[item.Place()] = item.TimestampNS < floorNS
			floorNS = max(floorNS, item.TimestampNS)
			if item.Flags&record.FlagHeartbeat == 0 {
				total++
			}
			if item.IsSuperseded {
				w.tally.Undone++
			}
		}
	}
	return behind, total, nil
}

// mergeAgain takes the order away and makes it again, in one go or by merges that die on the way.
func (w *mergedWorld) mergeAgain(isCrashing bool) error {
	w.reader.Close()
	err := w.merger.Close()
	w.reader, w.merger = nil, nil
	if err != nil {
		return err
	}
	if err := merge.Remove(w.store); err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		if isCrashing && attempt < 20 {
			w.disk.CrashAfter(w.random.IntN(12))
		}
		err := w.comeUp()
		if err == nil {
			err = w.merger.Finish(context.Background())
		}
		if err == nil {
			break
		}
		if !w.disk.IsCrashed() {
			return err
		}
	}
	w.disk.CrashAfter(-1)
	if err := w.comeUp(); err != nil {
		return err
	}
	return w.look()
}

// orderBytes gives the bytes of the order: all segments without their marks, but those that have not begun, and their
// manifests.
func (w *mergedWorld) orderBytes() ([]byte, error) {
	names, err := w.disk.ReadDir(mergedDir + "/order")
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, name := range names {
		if suffix := path.Ext(name); suffix != ".seg" && suffix != ".json" {
			continue
		}
		raw, err := w.disk.Bytes(path.Join(mergedDir, "order", name))
		if err != nil {
			return nil, err
		}
		raw = bytes.Clone(raw)
		if path.Ext(name) == ".seg" {
			clear(raw[512:4096])
		}
		if len(bytes.Trim(raw, "\x00")) == 0 {
			continue
		}
		all = append(append(all, name...), raw...)
	}
	return all, nil
}

// settle lets everything run without deaths until all is in the order, and checks that.
func (w *mergedWorld) settle() error {
	w.isSettling = true
	w.disk.CrashAfter(-1)
	for _, l := range w.lanes {
		farlog.FaultArm(l.memory, ^uint64(0))
		l.isStalled = false
	}
	if err := w.comeUp(); err != nil {
		return err
	}
	for _, l := range w.lanes {
		if err := w.drainAll(l); err != nil {
			return fmt.Errorf("drain the rest of %s: %w", l, err)
		}
		l.mayBeLate = true // Finish waits for nobody
	}
	if err := w.merger.Finish(context.Background()); err != nil {
		return err
	}
	if err := w.look(); err != nil {
		return err
	}
	return w.check()
}

// calm has every host say that it is there, and checks that what was appended well before that is in the order: an idle
// ring holds nothing up.
func (w *mergedWorld) calm() error {
	for _, pause := range []time.Duration{mergedRelist, mergedRelook, mergedRelook} {
		w.pass(pause)
		for _, l := range w.lanes {
			l.isStalled = false
			if err := w.openLane(l); err != nil {
				return err
			}
			if err := w.drainAll(l); err != nil {
				return err
			}
			if err := w.heartbeat(l); err != nil {
				return err
			}
			if err := w.drainAll(l); err != nil {
				return err
			}
		}
		if err := w.merge(100); err != nil || w.isDown() {
			return err
		}
	}
	w.tally.Calms++
	if p := w.merger.Progress(); p.Absent != 0 || p.Streams != len(w.lanes) {
		return fmt.Errorf("all %d streams brought a heartbeat, and of %d that are merged %d are not waited for",
			len(w.lanes), p.Streams, p.Absent)
	}
	for _, l := range w.lanes {
		l.mayBeLate = false
		for id, r := range l.records {
			if r.isAcked && !r.isMerged && w.now.Sub(r.at) > 3*mergedSkewMax*mergedTick {
				return fmt.Errorf("record %#x of %s was appended %s ago, every stream has brought a heartbeat since, "+
					"and it is not in the order", id, l, w.now.Sub(r.at))
			}
		}
	}
	return nil
}
