//go:build cgo

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/farlog"
)

const (
	fullDeadline    = 100 * time.Millisecond // of one attempt while the ring is full
	resolveDeadline = time.Second
	resolveTimeout  = 30 * time.Second
	fencedResolves  = 2 // of a writer that is fenced: its target says in the first where its log ended, or never
)

// feed appends what the input gives, in windows of one group commit each.
type feed struct {
	writer       *farlog.Writer
	route        *farlog.Route // in place of writer
	input        *recordInput
	output       *acknowledgements
	talk         *appendTalk
	window       int
	deadline     time.Duration
	fullMax      time.Duration // longest wait of one record for space; 0 = for as long as it takes
	beat         time.Duration // of heartbeats while the input brings nothing; 0 = none
	policy       farlog.Policy
	classify     func(record []byte) (key []byte, class uint16)
	changes      *reconfiguration   // of the stream, while the writer runs; nil: not watched
	reportClosed func(epoch uint32) // that the writer has ended by itself; nil: nobody is told

	stall   *stall
	watched atomic.Pointer[watchedWriter]

	entries   []farlog.Entry
	positions []farlog.Position
	count     feedCount
	lastLSN   uint64 // that was acknowledged
}

type feedCount struct {
	acknowledged, refused, full, unknown uint64
	bytes                                uint64
	level                                farlog.Level // the weakest that was reached
}

// run ends with the input, with ctx, or with an error that concerns all that would follow.
func (f *feed) run(ctx context.Context) error {
	f.positions = make([]farlog.Position, f.window)
	defer f.stall.watch(ctx, f.talk, f.whyStalled)()
	for ctx.Err() == nil {
		if isMore, err := f.fill(ctx); err != nil || !isMore {
			return err
		}
		if f.changes != nil {
			if err := f.changes.apply(f); err != nil {
				return err
			}
		}
		if err := f.commit(ctx); err != nil {
			return err
		}
		f.entries = f.entries[:0]
	}
	return nil
}

// fill waits for a window with at least one record, unless there is one. False: the input has ended, or ctx is done.
func (f *feed) fill(ctx context.Context) (bool, error) {
	for len(f.entries) == 0 && ctx.Err() == nil {
		if err := f.gather(); err != nil {
			return false, err
		}
		if len(f.entries) > 0 || f.input.more() {
			continue
		}
		if err := f.output.flush(); err != nil {
			return false, err
		}
		if isMore, err := f.wait(ctx); err != nil || !isMore {
			return false, err
		}
	}
	return len(f.entries) > 0, nil
}

// wait waits for input, appends heartbeats meanwhile, and asks whether the writer is fenced. A heartbeat that finds no
// space, or whose outcome is not known, is not missed: another one comes.
func (f *feed) wait(ctx context.Context) (bool, error) {
	for ctx.Err() == nil && (f.beat > 0 || f.writer != nil) {
		until, cancel := context.WithTimeout(ctx, cmp.Or(f.beat, fencedPause))
		isMore, err := f.input.wait(until)
		isDue := !isMore && err == nil && !f.input.isEnded && until.Err() != nil
		cancel()
		if !isDue {
			return isMore, err
		}
		if f.beat == 0 {
			if !f.isFenced() {
				continue
			}
		}
		if err := f.heartbeat(); err != nil { // of a writer that is fenced: who fenced it
			return false, err
		}
	}
	return f.input.wait(ctx)
}

// isFenced asks for the last record that was acknowledged: by that the writer of a ring on another host finds out that
// its connection was ended, and why.
func (f *feed) isFenced() bool {
	_, _ = f.writer.Resolve(f.lastLSN, time.Millisecond)
	_, err := f.writer.Poll()
	return errors.Is(err, farlog.ErrFenced)
}

// heartbeat is an error when nothing more will be taken.
func (f *feed) heartbeat() error {
	if f.route != nil {
		if err := f.route.Heartbeat(f.deadline); errors.Is(err, farlog.ErrFenced) || errors.Is(err, farlog.ErrClosed) {
			return fmt.Errorf("no heartbeat was appended to a leg: %w", err)
		}
		return nil
	}
	if position, err := f.writer.Heartbeat(f.deadline); errors.Is(err, farlog.ErrFenced) ||
		errors.Is(err, farlog.ErrClosed) {
		return f.explain(err, nil, []farlog.Position{position})
	}
	return nil
}

// gather fills a window with what is there already. A window that would have to wait for input is committed as it is.
func (f *feed) gather() error {
	f.entries = f.entries[:0]
	for len(f.entries) < f.window {
		record, ok, err := f.input.next()
		if err != nil && len(f.entries) > 0 {
			return nil // what came before the bad record is committed; the input says it again
		}
		if err != nil || !ok {
			return err
		}
		key, class := f.classify(record)
		f.entries = append(f.entries, farlog.Entry{Data: record, Key: key, Class: class})
	}
	return nil
}

// commit appends the window and returns when every record of it is acknowledged, or refused by the policy.
func (f *feed) commit(ctx context.Context) error {
	entries, deadline := f.entries, f.deadline
	f.stall.begin()
	defer f.stall.end()
	for len(entries) > 0 {
		positions := f.positions[:len(entries)]
		done, submitted, err := f.append(entries, positions, deadline)
		if err := f.acknowledge(entries[:done], positions[:done]); err != nil {
			return err
		}
		if errors.Is(err, farlog.ErrUnknown) || submitted > done {
			if err := f.resolve(entries[done:submitted], positions[done:submitted]); err != nil {
				return err
			}
		}
		entries = entries[submitted:]
		switch {
		case err == nil, errors.Is(err, farlog.ErrUnknown):
		case len(entries) == 0: // all of them are in the ring: the next record meets what ends the writer
		case errors.Is(err, farlog.ErrFull) && f.writer.Policy() == farlog.PolicyReject:
			// of a farlog:// stream only the writer knows it
			if err := f.rejectRecord(); err != nil {
				return err
			}
			entries = entries[1:]
		case errors.Is(err, farlog.ErrFull):
			f.count.full++
			if f.fullMax > 0 && submitted == 0 {
				return f.noSpace()
			}
			deadline = max(f.deadline, fullDeadline)
			if err := f.waitForSpace(ctx); err != nil {
				return err
			}
		default:
			return f.explain(err, entries, positions[submitted:])
		}
	}
	return nil
}

// append is one attempt: a window of one record goes through Append, whose deadline and latency are those of that
// record.
func (f *feed) append(entries []farlog.Entry, positions []farlog.Position, deadline time.Duration) (done, submitted int,
	err error,
) {
	if f.window > 1 {
		return f.writer.AppendBatch(entries, deadline, positions)
	}
	position, err := f.writer.Append(entries[0], deadline)
	positions[0] = position
	switch {
	case err == nil:
		return 1, 1, nil
	case errors.Is(err, farlog.ErrUnknown):
		return 0, 1, err
	}
	return 0, 0, err
}

func (f *feed) waitForSpace(ctx context.Context) error {
	if err := f.output.flush(); err != nil {
		return err
	}
	f.stall.isFull.Store(true)
	cursors := f.writer.Cursors()
	f.talk.full(cursors.AppendedLSN-cursors.HeadLSN, cursors.CapacityBytes, f.fullMax)
	if ctx.Err() != nil {
		return fmt.Errorf("stopped while the ring was full: input record %d and later ones were not appended",
			f.number())
	}
	return nil
}

// number is that of the first record of the input of which nothing is known yet.
func (f *feed) number() uint64 { return f.count.acknowledged + f.count.refused + 1 }

// rejectRecord reports that a record found no space and is not appended.
func (f *feed) rejectRecord() error {
	err := f.output.reject(f.number(), notAppendedFull)
	f.count.refused++
	f.stall.progress()
	f.talk.countRejected(f.count.refused)
	return err
}

// noSpace ends the feed at a record for which there was no space within the deadline of the command line.
func (f *feed) noSpace() error {
	cursors := f.writer.Cursors()
	return fmt.Errorf("input record %d was not appended: FULL: %d of the ring's %d bytes are undrained, and no "+
		"space became free within --deadline %s; "+
		"everything acknowledged stays valid; is its drain running?", f.number(), cursors.AppendedLSN-cursors.HeadLSN,
		cursors.CapacityBytes, f.fullMax)
}

// resolve finds out about records whose deadline passed. They are in order, so that the first that cannot be resolved
// ends it.
func (f *feed) resolve(entries []farlog.Entry, positions []farlog.Position) error {
	f.count.unknown += uint64(len(entries))
	until := time.Now().Add(resolveTimeout)
	for i := range entries {
		position, err := f.resolveOne(positions[i].LSN, until)
		if err != nil {
			return f.unresolved(err, positions[i].LSN, uint64(len(entries)-i))
		}
		positions[i].Level = position.Level
		if err := f.acknowledge(entries[i:i+1], positions[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// errUndecided: the writer is fenced, and nobody tells it any more where its log ended.
var errUndecided = errors.New("undecided")

// resolveOne asks until the outcome is known. A writer that is fenced does not wait for what its target would have said
// by then.
func (f *feed) resolveOne(lsn uint64, until time.Time) (farlog.Position, error) {
	for fenced := 0; ; {
		position, err := f.writer.Resolve(lsn, resolveDeadline)
		if !errors.Is(err, farlog.ErrUnknown) || time.Now().After(until) {
			return position, err
		}
		if _, err := f.writer.Poll(); errors.Is(err, farlog.ErrFenced) {
			fenced++
		}
		if fenced >= fencedResolves {
			return position, errUndecided
		}
		time.Sleep(time.Millisecond)
	}
}

// unresolved says what is known of the record at this lsn, and of as many as count from it on.
func (f *feed) unresolved(err error, lsn, count uint64) error {
	epoch, which := f.writer.Cursors().Epoch, fmt.Sprintf("input record %d, lsn %d,", f.number(), lsn)
	if count > 1 {
		which = fmt.Sprintf("input records %d to %d, from lsn %d on,", f.number(), f.number()+count-1, lsn)
	}
	switch {
	case errors.Is(err, farlog.ErrFenced):
		return fmt.Errorf("%s did not reach the log and never will: this writer, epoch %d, is fenced; everything "+
			"acknowledged stays valid", which, epoch)
	case errors.Is(err, errUndecided):
		return fmt.Errorf("%s may or may not be in the log: this writer, epoch %d, is fenced, and its target does "+
			"not say any more where its log ended; everything acknowledged stays valid", which, epoch)
	case errors.Is(err, farlog.ErrUnknown):
		return fmt.Errorf("%s may or may not be in the log: the outcome in epoch %d was not known within %s: %w", which,
			epoch, resolveTimeout, err)
	}
	return fmt.Errorf("%s resolve in epoch %d: %w", which, epoch, err)
}

func (f *feed) acknowledge(entries []farlog.Entry, positions []farlog.Position) error {
	for i := range positions {
		if f.count.acknowledged == 0 || positions[i].Level < f.count.level {
			f.count.level = positions[i].Level
		}
		number := f.number()
		f.count.acknowledged++
		f.count.bytes += uint64(len(entries[i].Data))
		f.lastLSN = positions[i].LSN
		if err := f.output.add(number, positions[i]); err != nil {
			return err
		}
	}
	if len(positions) > 0 {
		f.stall.progress()
		f.talk.progress(&f.count)
	}
	return nil
}

// explain makes the one line for an error that ends the feed. entries[0] is the record that met it.
func (f *feed) explain(err error, entries []farlog.Entry, positions []farlog.Position) error {
	number := f.number()
	switch {
	case errors.Is(err, farlog.ErrFenced):
		own := f.writer.Cursors().Epoch
		return fmt.Errorf("input record %d was not appended: this writer, epoch %d, is fenced: at least epoch %d is "+
			"demanded; everything acknowledged stays valid", number, own, positions[0].Epoch)
	case errors.Is(err, farlog.ErrTooLarge):
		return fmt.Errorf("input record %d of %d bytes with a key of %d bytes: %w", number, len(entries[0].Data),
			len(entries[0].Key), err)
	case errors.Is(err, farlog.ErrClosed):
		return fmt.Errorf("input record %d: the region failed and takes no more: %w", number, err)
	}
	return fmt.Errorf("append input record %d: %w", number, err)
}

// classifier says how keys and classes are found in the records.
func classifier(isFIX bool, class uint16, keyField int) func([]byte) ([]byte, uint16) {
	if isFIX {
		return fixClassifier(keyField)
	}
	return func(record []byte) ([]byte, uint16) { return fieldOf(record, keyField), class }
}

func fixClassifier(keyField int) func([]byte) ([]byte, uint16) {
	var message fix.Message
	return func(record []byte) ([]byte, uint16) {
		if fix.Parse(record, &message) != nil {
			return nil, fix.ClassOther
		}
		msgType := message.Get(fix.MsgType)
		tag := keyField
		if tag == 0 {
			tag = fix.KeyTag(msgType)
		}
		return message.Get(tag), fix.ClassOf(msgType)
	}
}

// fieldOf gives the field with this number, from 1, of those that blanks separate; nil when there are fewer, or for 0.
func fieldOf(record []byte, number int) []byte {
	for ; number > 0; number-- {
		record = bytes.TrimLeft(record, " \t")
		end := bytes.IndexAny(record, " \t")
		if end < 0 {
			end = len(record)
		}
		if number == 1 && end > 0 {
			return record[:end:end]
		}
		record = record[end:]
	}
	return nil
}
