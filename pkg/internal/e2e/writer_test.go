package e2e

import (
	"bufio"
	"encoding/binary"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/audit/fixlog"
	"github.com/farlog/farlog/pkg/internal/testenv"
)

const recordingPath = "testdata/fix/orders.fixlog.zst"

var hashSeed = maphash.MakeSeed()

// place is where an acknowledgement says that a record is.
type place struct {
	epoch uint32
	lsn   uint64
}

// ledger is what was fed and what was acknowledged, over the lives of all writers of a stream. No record is fed twice,
// so that nothing may be in the store twice, whether acknowledged or not.
type ledger struct {
	mu           sync.Mutex
	generator    *fixlog.Generator
	fed          map[uint64]bool // by content
	acknowledged map[place]uint64
	faults       []string
}

func newLedger(t *testing.T, run string) *ledger {
	t.Helper()
	entries, err := fixlog.Load(testenv.Root() + "/" + recordingPath)
	if err != nil {
		t.Fatal(err)
	}
	generator, err := fixlog.NewGenerator(entries, fixlog.Options{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	return &ledger{generator: generator, fed: map[uint64]bool{}, acknowledged: map[place]uint64{}}
}

func (l *ledger) next() (raw []byte, hash uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	raw, _ = l.generator.Append(nil, time.Now().UnixNano())
	hash = maphash.Bytes(hashSeed, raw)
	l.fed[hash] = true
	return raw, hash
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged)
}

func (l *ledger) fault(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, text)
}

// acknowledge notes one line of `farlog append --ack text`: epoch, seq, lsn, level, number of the record in the input.
func (l *ledger) acknowledge(line string, hash uint64) {
	fields := strings.Fields(line)
	if len(fields) != 5 {
		l.fault("acknowledgement " + strconv.Quote(line) + ": expected epoch, seq, lsn, level, #input")
		return
	}
	epoch, epochErr := strconv.ParseUint(fields[0], 10, 32)
	lsn, lsnErr := strconv.ParseUint(fields[2], 10, 64)
	l.mu.Lock()
	at := place{uint32(epoch), lsn}
	_, isTwice := l.acknowledged[at]
	l.acknowledged[at] = hash
	l.mu.Unlock()
	if epochErr != nil || lsnErr != nil || isTwice {
		l.fault("acknowledgement " + strconv.Quote(line) + ": not numbers, or given before")
	}
}

// writer is one `farlog append` that is fed in small bursts until it is killed or finished.
type writer struct {
	process *testenv.Process
	stdin   *os.File
	ledger  *ledger
	stop    chan struct{}
	done    sync.WaitGroup
	acks    atomic.Int64 // its own

	mu        sync.Mutex
	pending   []uint64 // hashes of what was fed and not yet acknowledged, in order
	isStopped bool     // the process: what is fed from now on is late
	late      []uint64
}

func startWriter(t *testing.T, l *ledger, seed uint64, args ...string) *writer {
	t.Helper()
	w := openWriter(t, l, args...)
	w.done.Go(func() { w.feed(rand.New(rand.NewPCG(seed, 3))) })
	return w
}

// openWriter starts a writer that is fed nothing yet.
func openWriter(t *testing.T, l *ledger, args ...string) *writer {
	t.Helper()
	return openWriterUnder(t, nil, l, args...)
}

// openWriterUnder is openWriter by way of a command that becomes the writer.
func openWriterUnder(t *testing.T, under []string, l *ledger, args ...string) *writer {
	t.Helper()
	stdinReader, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stdoutWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"append", "--format", "length-prefixed", "--fix", "--ack", "text"}, args...)
	w := &writer{ledger: l, stdin: stdin, stop: make(chan struct{})}
	w.process = testenv.StartUnder(t, under, stdinReader, stdoutWriter, "farlog", args...)
	stdinReader.Close()
	stdoutWriter.Close()
	w.done.Go(func() { w.read(stdout) })
	return w
}

// feed ends when the pipe breaks or the writer is told to finish. The pauses give the shape of the traffic; nothing is
// measured.
func (w *writer) feed(random *rand.Rand) {
	defer w.stdin.Close()
	for {
		if err := w.feedBurst(1 + random.IntN(60)); err != nil {
			return
		}
		select {
		case <-w.stop:
			return
		case <-time.After(time.Duration(random.IntN(10)) * time.Millisecond):
		}
	}
}

// feedBurst feeds some records at once.
func (w *writer) feedBurst(count int) error {
	var burst []byte
	for range count {
		raw, hash := w.ledger.next()
		w.mu.Lock()
		w.pending = append(w.pending, hash)
		if w.isStopped {
			w.late = append(w.late, hash)
		}
		w.mu.Unlock()
		burst = append(binary.LittleEndian.AppendUint32(burst, uint32(len(raw))), raw...)
	}
	_, err := w.stdin.Write(burst)
	return err
}

func (w *writer) read(stdout io.ReadCloser) {
	defer stdout.Close()
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // half a line is no acknowledgement
		}
		w.mu.Lock()
		if len(w.pending) == 0 {
			w.mu.Unlock()
			w.ledger.fault("acknowledgement for nothing that was fed: " + line)
			return
		}
		hash := w.pending[0]
		w.pending = w.pending[1:]
		w.mu.Unlock()
		w.ledger.acknowledge(line, hash)
		w.acks.Add(1)
	}
}

func (w *writer) kill() {
	w.process.Kill()
	w.done.Wait()
}

// finish closes the input and expects that everything fed was acknowledged.
func (w *writer) finish(t *testing.T) {
	t.Helper()
	close(w.stop)
	if err := w.process.Wait(); err != nil {
		t.Errorf("farlog append: %v", err)
	}
	w.done.Wait()
	if len(w.pending) > 0 {
		t.Errorf("%d records fed to a writer that ended in order were not acknowledged", len(w.pending))
	}
}
