package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

// One producer and five readers of one ring, in the shape of STAC-M2: from the moment at which a message is due to that
// at which a reader has it, checked and copied. The producer keeps to a rate and not to its readers (open loop): what
// it is late by counts. One of the readers gives the space back as a drain does, so that the ring is used over and
// over; one that is passed by loses messages, and the rate is not held.
const (
	fanoutReaders   = 5
	fanoutPayload   = 192
	fanoutRingBytes = 256 << 20
	fanoutTogether  = 64                    // messages that are due by then go in one call, at most
	fanoutPause     = 20 * time.Microsecond // of a reader that found nothing: there are fewer processors than readers
	fanoutGrace     = 5 * time.Second       // behind the last message, before a reader is given up
)

// errNotKept is not a fault: the machine does not do that rate.
var errNotKept = errors.New("not kept up with")

// fanoutRun is one rate for some seconds.
type fanoutRun struct {
	uri    string
	rate   int
	count  int
	began  time.Time
	isOver atomic.Bool // somebody has given up
	delays spread      // of all readers
	took   time.Duration
	last   time.Duration // the longest that a reader got its last message after that was due
	why    error         // nil, or what errNotKept is about
}

// fanoutOnce runs a rate. Its readers read as fast as they can.
func fanoutOnce(rate int, length time.Duration, ringBytes uint64) (*fanoutRun, error) {
	dir, err := os.MkdirTemp("/dev/shm", "farlog-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	run := &fanoutRun{
		uri: "mem:" + filepath.Join(dir, "fanout.ring"), rate: rate,
		count: max(int(float64(rate)*length.Seconds()), 1),
	}
	if err := farlog.Format(run.uri, farlog.FormatOptions{
		SizeBytes: ringBytes, RecordLenMax: 4096,
		StreamName: "bench",
	}); err != nil {
		return nil, err
	}
	writer, err := farlog.OpenWriter(run.uri, farlog.WriterOptions{CountersDir: "none", Level: farlog.LevelVisible})
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	var took [fanoutReaders]receiver
	for i := range took { // all before the first message: what is given back is not there for one that comes later
		if took[i].reader, err = farlog.OpenReader(run.uri, farlog.ReaderOptions{Drain: i == 0}); err != nil {
			return nil, err
		}
		defer took[i].reader.Close()
	}
	run.began = time.Now().Add(50 * time.Millisecond)
	var readers sync.WaitGroup
	errs := make([]error, fanoutReaders+1)
	for i := range took {
		readers.Go(func() { errs[i] = run.guard(took[i].receive(run, i == 0)) })
	}
	errs[fanoutReaders] = run.guard(run.supply(writer))
	readers.Wait()
	for i := range took {
		run.delays.merge(&took[i].delays)
		run.last = max(run.last, took[i].last)
	}
	return run, run.sort(errs)
}

// guard lets the others end when one has.
func (f *fanoutRun) guard(err error) error {
	if err != nil {
		f.isOver.Store(true)
	}
	return err
}

// sort tells faults from what a machine cannot do.
func (f *fanoutRun) sort(errs []error) error {
	for _, err := range errs {
		switch {
		case err == nil:
		case errors.Is(err, errNotKept):
			f.why = err
		default:
			return err
		}
	}
	return nil
}

func (f *fanoutRun) dueOf(i int) time.Duration {
	return time.Duration(i) * time.Second / time.Duration(f.rate)
}

// supply appends each message when it is due, or with the others that are when that has passed.
func (f *fanoutRun) supply(writer *farlog.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	payloads, entries, positions := make([]byte, fanoutTogether*fanoutPayload), make([]farlog.Entry, fanoutTogether),
		make([]farlog.Position, fanoutTogether)
	for i := range entries {
		entries[i] = farlog.Entry{Data: payloads[i*fanoutPayload : (i+1)*fanoutPayload], Class: 1}
	}
	for i := 0; i < f.count && !f.isOver.Load(); {
		n := f.await(i)
		for k := range n {
			binary.LittleEndian.PutUint64(entries[k].Data, uint64(i+k))
		}
		if _, _, err := writer.AppendBatch(entries[:n], time.Second, positions[:n]); err != nil {
			if errors.Is(err, farlog.ErrFull) {
				return fmt.Errorf("%w: the ring was full for a second at message %d", errNotKept, i)
			}
			return err
		}
		i += n
	}
	f.took = time.Since(f.began)
	return nil
}

// await returns when message i is due; how many are by then.
func (f *fanoutRun) await(i int) int {
	due := f.dueOf(i)
	elapsed := time.Since(f.began)
	for ; elapsed < due; elapsed = time.Since(f.began) {
		if wait := due - elapsed; wait > 100*time.Microsecond {
			time.Sleep(wait - 80*time.Microsecond)
		}
	}
	all := int(elapsed.Nanoseconds() * int64(f.rate) / int64(time.Second))
	return max(min(all-i, fanoutTogether, f.count-i), 1)
}

// receiver is one reader.
type receiver struct {
	reader *farlog.Reader
	delays spread
	last   time.Duration
	next   int // the message that it waits for
}

// receive takes all messages in, in order and none left out.
func (r *receiver) receive(run *fanoutRun, isDrain bool) error {
	buf, until := make([]byte, 1<<20), run.dueOf(run.count)+fanoutGrace
	for r.next < run.count {
		batch, err := r.reader.Read(buf)
		if time.Since(run.began) > until || run.isOver.Load() {
			return fmt.Errorf("%w: a reader had %d of %d messages", errNotKept, r.next, run.count)
		}
		if errors.Is(err, farlog.ErrNotYet) {
			time.Sleep(fanoutPause)
			continue
		}
		if err != nil {
			return err
		}
		if err := r.receiveBatch(run, batch.Bytes); err != nil {
			return err
		}
		if isDrain {
			if err := r.reader.Release(batch.NextLSN, batch.NextSeq, batch.LastEpoch); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *receiver) receiveBatch(run *fanoutRun, rest []byte) error {
	now := time.Since(run.began)
	for len(rest) > 0 {
		h, err := record.ParseHeader(rest)
		if err != nil {
			return err
		}
		if h.Class == 1 && !h.Flags.IsControl() {
			number := int(binary.LittleEndian.Uint64(rest[record.HeaderLen:]))
			if number > r.next {
				return fmt.Errorf("%w: a reader was passed by at message %d, the next it found is %d", errNotKept,
					r.next, number)
			}
			if number < r.next {
				return fmt.Errorf("message %d came where %d was expected", number, r.next)
			}
			r.next++
			r.last = now - run.dueOf(number)
			r.delays.add(r.last)
		}
		rest = rest[h.StoredLen(record.AlignMin):]
	}
	return nil
}
