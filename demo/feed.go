package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/audit/fix"
	"github.com/farlog/farlog/pkg/audit/fixlog"
)

// phase says how records are fed.
type phase int

const (
	phaseBurst phase = iota // by the schedule of the published capture, for a time
	phaseFull               // as fast as they are taken, until the count is reached
)

var windows = map[phase]int{phaseBurst: 64, phaseFull: 512}

// orderMessagesMax is how long the life may be that is shown at the end.
const orderMessagesMax = 14

// life is what one order of the first lap went through.
type life struct {
	messages int
	kinds    map[string]bool // message type and order status
}

// acknowledgement is what the writer said about one record, and what the record was.
type acknowledgement struct {
	epoch uint32
	lsn   uint64
	hash  uint64
}

// feed makes records, gives them to writers, and notes what they acknowledge. A record that a killed writer did not
// acknowledge is given to the next one again: it may come to be stored twice, but it is acknowledged once.
type feed struct {
	options   options
	generator *fixlog.Generator
	seed      maphash.Seed

	mu           sync.Mutex
	pending      [][]byte // given to a writer, or due to be, and not yet acknowledged; in order
	acknowledged []acknowledgement
	generated    uint64
	lives        map[string]*life // of the orders of the first lap, by ClOrdID
	message      fix.Message
}

func newFeed(o options) (*feed, error) {
	entries, err := fixlog.Load(o.recording)
	if err != nil {
		return nil, err
	}
	generator, err := fixlog.NewGenerator(entries, fixlog.Options{Run: "D"})
	if err != nil {
		return nil, err
	}
	return &feed{
		options: o, generator: generator, seed: maphash.MakeSeed(),
		acknowledged: make([]acknowledgement, 0, o.records),
		lives:        map[string]*life{},
	}, nil
}

func (f *feed) acknowledgedCount() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.acknowledged))
}

// run feeds one phase. A writer that was killed is followed by another; one that fails by itself ends the demo.
func (f *feed) run(ctx context.Context, s *site, in phase) error {
	source := &source{feed: f, phase: in, pacer: fixlog.NewPacer(f.options.paceSeed), began: time.Now()}
	for {
		isKilled, err := f.serve(ctx, s, source)
		if err != nil {
			return err
		}
		if !isKilled {
			return ctx.Err()
		}
		f.mu.Lock()
		again := len(f.pending)
		f.mu.Unlock()
		say("writer was killed: a new one takes over; %d records in flight without an acknowledgement are fed again",
			again)
	}
}

// serve is one writer process, from its start to its end.
func (f *feed) serve(ctx context.Context, s *site, source *source) (isKilled bool, err error) {
	process, stdin, stdout, err := s.writer(windows[source.phase])
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	again := slices.Clone(f.pending)
	f.mu.Unlock()
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(source.send(ctx, stdin, again), stdin.Close()) }()
	ackErr := f.readAcknowledgements(stdout)
	stdout.Close()
	<-process.exited
	sendErr := <-sent
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case ackErr != nil:
		return false, ackErr
	case process.err == nil && sendErr == nil:
		return false, nil
	case process.cmd.ProcessState.ExitCode() == -1: // by a signal
		return true, nil
	}
	return false, fmt.Errorf("farlog append ended with %v (%v); what it said is in %s", process.err, sendErr,
		s.dir("writer.log"))
}

// readAcknowledgements matches each line with the oldest record that has none: a writer acknowledges in the order of
// its input.
func (f *feed) readAcknowledgements(stdout io.Reader) error {
	lines := bufio.NewReaderSize(stdout, 256<<10)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil // the writer ended; half a line is no acknowledgement
		}
		fields := strings.Fields(line)
		if len(fields) != 5 {
			return fmt.Errorf("acknowledgement %q: expected epoch, seq, lsn, level and #input", line)
		}
		epoch, epochErr := strconv.ParseUint(fields[0], 10, 32)
		lsn, lsnErr := strconv.ParseUint(fields[2], 10, 64)
		if err := errors.Join(epochErr, lsnErr); err != nil {
			return fmt.Errorf("acknowledgement %q: %w", line, err)
		}
		f.mu.Lock()
		if len(f.pending) == 0 {
			f.mu.Unlock()
			return fmt.Errorf("acknowledgement %q is for no record that was fed", line)
		}
		f.acknowledged = append(f.acknowledged, acknowledgement{
			uint32(epoch), lsn,
			maphash.Bytes(f.seed, f.pending[0]),
		})
		f.pending = f.pending[1:]
		f.mu.Unlock()
	}
}

// orderKey is the order with the most varied life that fits on a screen.
func (f *feed) orderKey() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	best, variety := "", 0
	for key, one := range f.lives {
		isBetter := len(one.kinds) > variety || len(one.kinds) == variety && key < best
		if one.messages <= orderMessagesMax && isBetter {
			best, variety = key, len(one.kinds)
		}
	}
	return best
}

func (f *feed) noteLife(message fixlog.Message) {
	if message.Key == nil || message.Class == fix.ClassSession || fix.Parse(message.Bytes, &f.message) != nil {
		return
	}
	one := f.lives[string(message.Key)]
	if one == nil {
		one = &life{kinds: map[string]bool{}}
		f.lives[string(message.Key)] = one
	}
	one.messages++
	one.kinds[f.message.Type()+string(f.message.Get(fix.OrdStatus))] = true
}

// source gives a phase's records over the lives of its writers.
type source struct {
	feed  *feed
	phase phase
	pacer *fixlog.Pacer
	began time.Time
}

// send writes what the last writer left unacknowledged, then new records until the phase is over.
func (s *source) send(ctx context.Context, stdin io.Writer, again [][]byte) error {
	out := bufio.NewWriterSize(stdin, 64<<10)
	for _, raw := range again {
		if err := writeRecord(out, raw); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		if s.phase == phaseBurst {
			due := s.pacer.Next()
			if due >= s.feed.options.burst {
				break
			}
			if err := s.pause(ctx, due, out); err != nil {
				return err
			}
		}
		raw, ok := s.feed.next()
		if !ok {
			break
		}
		if err := writeRecord(out, raw); err != nil {
			return err
		}
	}
	return out.Flush()
}

// pause waits until a record is due; what was due before is sent off first.
func (s *source) pause(ctx context.Context, due time.Duration, out *bufio.Writer) error {
	wait := time.Until(s.began.Add(due))
	if wait <= 0 {
		return nil
	}
	if err := out.Flush(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return nil
}

// next makes the next record and notes it as pending; false when the count is reached.
func (f *feed) next() ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.generated >= f.options.records {
		return nil, false
	}
	raw, message := f.generator.Append(nil, time.Now().UnixNano())
	if f.generated < uint64(f.generator.LapLen()) {
		f.noteLife(message)
	}
	f.generated++
	f.pending = append(f.pending, raw)
	return raw, true
}

func writeRecord(out *bufio.Writer, raw []byte) error {
	var length [4]byte
	binary.LittleEndian.PutUint32(length[:], uint32(len(raw)))
	if _, err := out.Write(length[:]); err != nil {
		return err
	}
	_, err := out.Write(raw)
	return err
}
