package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/audit/fixlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/testbed/vm"
)

const recording = "testdata/fix/orders.fixlog.zst"

// records are real order messages, each different from all others, in the order in which they are appended.
type records struct {
	payloads [][]byte
	number   map[string]int
}

// newRecords makes count messages from the recording. run tells them from those of another call.
func newRecords(run string, count int) (*records, error) {
	entries, err := fixlog.Load(recording)
	if err != nil {
		return nil, err
	}
	generator, err := fixlog.NewGenerator(entries, fixlog.Options{Run: run})
	if err != nil {
		return nil, err
	}
	r := &records{number: make(map[string]int, count)}
	sent := time.Date(2026, 1, 5, 9, 30, 0, 0, time.UTC).UnixNano()
	for i := range count {
		payload, _ := generator.Append(nil, sent+int64(i)*int64(time.Microsecond))
		r.payloads = append(r.payloads, payload)
		r.number[string(payload)] = i
	}
	return r, nil
}

// framed is the records as farlog append --format length-prefixed reads them.
func (r *records) framed(from, to int) []byte {
	var out []byte
	for _, payload := range r.payloads[from:to] {
		out = binary.LittleEndian.AppendUint32(out, uint32(len(payload)))
		out = append(out, payload...)
	}
	return out
}

// place is where a record was acknowledged to lie.
type place struct {
	epoch uint32
	lsn   uint64
}

// ledger is what writers said: of each place, which record they were told is there, or that none is. It is filled by
// one writer after another; what they said may be proved meanwhile.
type ledger struct {
	records *records

	mu      sync.Mutex
	wanted  map[place]int
	absent  map[place]bool // said not to be there
	next    int            // number of the first record that no writer acknowledged
	lastLSN uint64         // of the last acknowledged record
	unknown int            // outcomes that had to be resolved
	// of all calls of append, without what a processor of the writer's machine stood still meanwhile
	slowest time.Duration
	took    []time.Duration // by each append that was acknowledged, where that was printed
	copies  []string        // members that had it then, of the same appends
	asides  []string        // what was said beside plain acknowledgements

	isCalm atomic.Bool // who feeds leaves the processors to others for most of the time
}

func newLedger(r *records) *ledger {
	return &ledger{records: r, wanted: map[place]int{}, absent: map[place]bool{}}
}

const acknowledgedTookAt = 4 // in the line of an acknowledgement

// errFenced: the writer said that it is fenced, and will append no more.
var errFenced = errors.New("the writer is fenced")

// hear takes one line of farlog append --ack text, or of far write: the outcome of the oldest record that has none.
// False: more is to come about that record.
func (l *ledger) hear(line string) (isDone bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return false, errors.New("an empty line, want an outcome")
	}
	if _, err := strconv.ParseUint(fields[0], 10, 32); err != nil {
		l.asides = append(l.asides, line)
	}
	switch fields[0] {
	case "unknown":
		l.unknown++
		return false, l.time(fields, 3)
	case "absent":
		at, err := parsePlace(line, fields, 1, 2)
		l.absent[at] = true
		return true, err
	case "fenced":
		return true, errors.Join(errFenced, l.time(fields, 2))
	case "resolved":
		return true, l.acknowledge(line, fields[1:])
	default:
		return true, errors.Join(l.acknowledge(line, fields), l.time(fields, acknowledgedTookAt))
	}
}

// time takes the microseconds that an append took, and for how many of them a processor stood still, where they were
// printed.
func (l *ledger) time(fields []string, at int) error {
	if at >= len(fields) || strings.HasPrefix(fields[at], "#") { // the record's number in the input of farlog append
		return nil
	}
	var us [2]time.Duration // took, stood still
	for i := range min(len(us), len(fields)-at) {
		value, err := strconv.ParseInt(fields[at+i], 10, 64)
		if err != nil {
			return err
		}
		us[i] = time.Duration(value) * time.Microsecond
	}
	l.slowest = max(l.slowest, us[0]-us[1])
	if at == acknowledgedTookAt {
		l.took = append(l.took, us[0])
		l.copies = append(l.copies, strings.Join(fields[min(at+2, len(fields)):], " "))
	}
	return nil
}

func parsePlace(line string, fields []string, epochAt, lsnAt int) (place, error) {
	if lsnAt >= len(fields) {
		return place{}, fmt.Errorf("outcome %q: expected epoch and lsn", line)
	}
	epoch, epochErr := strconv.ParseUint(fields[epochAt], 10, 32)
	lsn, lsnErr := strconv.ParseUint(fields[lsnAt], 10, 64)
	if err := errors.Join(epochErr, lsnErr); err != nil {
		return place{}, fmt.Errorf("outcome %q: %w", line, err)
	}
	return place{uint32(epoch), lsn}, nil
}

func (l *ledger) acknowledge(line string, fields []string) error {
	at, err := parsePlace(line, fields, 0, 2)
	if err != nil {
		return err
	}
	// "stored" is more than was asked for: whose outcome was not known at first may have learned from the drain's
	// credit that the record is in the store.
	if len(fields) < 4 || fields[3] != "persistent" && fields[3] != "stored" {
		return fmt.Errorf("acknowledgement %q: expected epoch, seq, lsn and \"persistent\" or \"stored\"", line)
	}
	if _, isTwice := l.wanted[at]; isTwice {
		return fmt.Errorf("acknowledgement %q: this place was acknowledged before", line)
	}
	l.wanted[at] = l.next
	l.next++
	l.lastLSN = at.lsn
	return nil
}

// acknowledged is how many were, so far.
func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// appends tells of each acknowledged append, from one on, how long it took, and how many members had it then.
func (l *ledger) appends(from int) (took []time.Duration, copies []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.took[from:]), slices.Clone(l.copies[from:])
}

// last is where the last acknowledged record lies.
func (l *ledger) last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastLSN
}

// feed gives a writer records in batches of 1 to 64, each once the outcomes of the one before are known, until isEnough
// says so after a batch, the writer is fenced or it ends. So what was acknowledged last is known, whenever the writer
// is killed.
func (l *ledger) feed(ctx context.Context, b *bed, writer *vm.Process, isEnough func(acknowledged int) bool) error {
	for l.next < len(l.records.payloads) {
		count := min(1+b.draw(64), len(l.records.payloads)-l.next)
		if err := l.give(ctx, writer, count); err != nil {
			return err
		}
		if isEnough(l.next) {
			return nil
		}
		if l.isCalm.Load() {
			time.Sleep(calmPause)
		}
	}
	return fmt.Errorf("all %d records were acknowledged before it was enough", l.next)
}

// calmPause is what lies between two batches while something else is waited for.
const calmPause = 150 * time.Millisecond

// calmly does something that no record is waited for, such as a boot: who feeds goes on, with pauses, since on a
// machine that emulates processors an append takes what the boot would.
func (l *ledger) calmly(do func() error) error {
	l.isCalm.Store(true)
	defer l.isCalm.Store(false)
	return do()
}

// give feeds the next records, and waits for their outcomes.
func (l *ledger) give(ctx context.Context, writer *vm.Process, count int) error {
	if _, err := writer.Write(l.records.framed(l.next, l.next+count)); err != nil {
		return err
	}
	return l.listen(ctx, writer, count)
}

// listen waits for the outcomes of so many records that were fed.
func (l *ledger) listen(ctx context.Context, writer *vm.Process, count int) error {
	for count > 0 {
		line, err := writer.ReadLine(ctx)
		if err != nil {
			return err
		}
		isDone, err := l.hear(line)
		if err != nil {
			return err
		}
		if isDone {
			count--
		}
	}
	return nil
}

// proof is what was found where acknowledged records should be.
type proof struct {
	acknowledged, found, others int // others: records that no one was told of, whole and from the feed
}

func (p proof) String() string {
	return fmt.Sprintf("%d acknowledged, all found, %d more that were not acknowledged", p.acknowledged, p.others)
}

// prove looks up every acknowledged record among those that next gives, until io.EOF. Each must be there once, with its
// bytes; none may be there that was never fed, or that a writer said is not there.
func (l *ledger) prove(next func() (record.Record, error)) (proof, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	result := proof{acknowledged: len(l.wanted)}
	seen := make(map[place]bool, len(l.wanted))
	for {
		found, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return result, err
		}
		if found.Flags.IsControl() {
			continue
		}
		at := place{found.Epoch, found.LSN}
		number, isFed := l.records.number[string(found.Payload)]
		wanted, isWanted := l.wanted[at]
		switch {
		case seen[at]:
			return result, fmt.Errorf("the record at lsn %d of epoch %d is there twice", at.lsn, at.epoch)
		case l.absent[at]:
			return result, fmt.Errorf("the record at lsn %d of epoch %d was said not to be there", at.lsn, at.epoch)
		case !isFed:
			return result, fmt.Errorf("the record at lsn %d of epoch %d was never fed", at.lsn, at.epoch)
		case isWanted && wanted != number:
			return result, fmt.Errorf("at lsn %d of epoch %d is record %d, and record %d was acknowledged", at.lsn,
				at.epoch, number, wanted)
		case isWanted:
			result.found++
		default:
			result.others++
		}
		seen[at] = true
	}
	for at, number := range l.wanted {
		if !seen[at] {
			return result, fmt.Errorf("LOST: record %d was acknowledged at lsn %d of epoch %d and is not there (%d "+
				"of %d are)", number, at.lsn,
				at.epoch, result.found, result.acknowledged)
		}
	}
	return result, nil
}

// devdaxOffset is where a namespace's data begin in the memory of the NVDIMM: behind its information block, at the
// alignment.
const devdaxOffset = 2 << 20

// proveMemory looks for the records in an NVDIMM's backing file: what the media has.
func (l *ledger) proveMemory(path string) (proof, error) {
	return l.proveImage(path, devdaxOffset, nvdimmLen-devdaxOffset-128<<10)
}

// proveImage looks for the records in a ring of a file, with our decoder in Go and without any guest.
func (l *ledger) proveImage(path string, offset, size int64) (proof, error) {
	file, err := os.Open(path)
	if err != nil {
		return proof{}, err
	}
	defer file.Close()
	image, err := record.OpenImage(io.NewSectionReader(file, offset, size), size)
	if err != nil {
		return proof{}, fmt.Errorf("%s: %w", path, err)
	}
	return l.prove(image.Walk().Next)
}

// proveStore looks for the records of a stream in a store.
func (l *ledger) proveStore(dir, stream string) (proof, error) {
	opened, err := store.Open(dir, store.Options{})
	if err != nil {
		return proof{}, err
	}
	reader, err := opened.OpenReader(stream, store.ReaderOptions{})
	if err != nil {
		return proof{}, err
	}
	defer reader.Close()
	return l.prove(func() (record.Record, error) {
		item, err := reader.Next()
		return item.Record, err
	})
}
