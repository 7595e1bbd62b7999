//go:build cgo

package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
)

const (
	ackNone = "none"
	ackText = "text"
	ackJSON = "json"

	ackBufferLen = 32 << 10
)

// Why a record is not appended, though later ones are.
const (
	notAppendedFull   = "FULL"    // its ring was full (policy reject)
	notAppendedNoRule = "NO_RULE" // no rule of the route selects it
)

// acknowledgements prints one line for each record of the input, in order: where it is, or why it was not appended.
type acknowledgements struct {
	kind   string
	writer *bufio.Writer
	line   []byte
}

func newAcknowledgements(kind string, stdout io.Writer) *acknowledgements {
	return &acknowledgements{kind: kind, writer: bufio.NewWriterSize(stdout, ackBufferLen)}
}

// add acknowledges the record with this number in the input, from 1 on.
func (a *acknowledgements) add(number uint64, p farlog.Position) error {
	switch a.kind {
	case ackNone:
		return nil
	case ackJSON:
		a.line = fmt.Appendf(a.line[:0], `{"epoch":%d,"seq":%d,"lsn":%d,"level":%q,"copies":%d,"input":%d}`,
			p.Epoch, p.Seq, p.LSN, p.Level, p.Copies, number)
	default:
		a.line = strconv.AppendUint(a.line[:0], uint64(p.Epoch), 10)
		a.line = strconv.AppendUint(append(a.line, ' '), p.Seq, 10)
		a.line = strconv.AppendUint(append(a.line, ' '), p.LSN, 10)
		a.line = append(append(a.line, ' '), p.Level.String()...)
		a.line = strconv.AppendUint(append(a.line, ' ', '#'), number, 10)
	}
	return a.write(number)
}

// reject says that the record with this number in the input was not appended, and why.
func (a *acknowledgements) reject(number uint64, why string) error {
	switch a.kind {
	case ackNone:
		return nil
	case ackJSON:
		a.line = fmt.Appendf(a.line[:0], `{"refused":%q,"input":%d}`, why, number)
	default:
		a.line = fmt.Appendf(a.line[:0], "refused %s #%d", why, number)
	}
	return a.write(number)
}

func (a *acknowledgements) write(number uint64) error {
	a.line = append(a.line, '\n')
	if _, err := a.writer.Write(a.line); err != nil {
		return fmt.Errorf("write what became of input record %d: %w", number, err)
	}
	return nil
}

func (a *acknowledgements) flush() error {
	if err := a.writer.Flush(); err != nil {
		return fmt.Errorf("write acknowledgements: %w", err)
	}
	return nil
}

// appendTalk is what append says on stderr: what opening found, why it waits, and at the end what was done.
type appendTalk struct {
	stderr     io.Writer
	isTerminal bool
	started    time.Time
	saidAt     time.Time
	mu         sync.Mutex
	isLineOpen bool // a progress line that the next text has to end
}

func newAppendTalk(stderr io.Writer) *appendTalk {
	now := time.Now()
	return &appendTalk{stderr: stderr, isTerminal: isTerminal(stderr), started: now, saidAt: now}
}

// printf ends a progress line that is open.
func (t *appendTalk) printf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isLineOpen {
		fmt.Fprintln(t.stderr)
		t.isLineOpen = false
	}
	fmt.Fprintf(t.stderr, format+"\n", args...)
}

// isDue reports whether a second has passed since something was said.
func (t *appendTalk) isDue() bool {
	now := time.Now()
	if now.Sub(t.saidAt) < time.Second {
		return false
	}
	t.saidAt = now
	return true
}

func (t *appendTalk) opened(uri string, contract farlog.Contract, level farlog.Level, r farlog.Recovery) {
	acknowledged := level.String()
	if level == 0 {
		acknowledged = "at the stream's level"
	}
	t.printf("ring %s: %s, flush %s, acknowledges %s", uri, contract.Kind, contract.FlushMethod, acknowledged)
	t.printf("recovered: epoch %d (before: %d), head lsn %d, tail lsn %d, %d undrained records kept, "+
		"%d behind an unreadable one dropped (whether acknowledged is unknown), %d bytes scanned in %s",
		r.Epoch, r.PrevEpoch, r.HeadLSN, r.TailLSN, r.RecordCount, r.OrphanCount, r.ScannedBytes,
		r.Duration.Round(time.Microsecond))
}

func (t *appendTalk) full(usedBytes, capacityBytes uint64, most time.Duration) {
	if t.isDue() {
		t.printf("ring is full (%d of %d bytes undrained): waiting for the drain%s", usedBytes, capacityBytes,
			boundText(most))
	}
}

// boundText says by what a wait for space is bounded.
func boundText(most time.Duration) string {
	if most == 0 {
		return ", for as long as it takes (--deadline bounds it)"
	}
	return fmt.Sprintf(", at most %s (--deadline)", most)
}

func (t *appendTalk) countRejected(count uint64) {
	if t.isDue() {
		t.printf("ring is full: %d records refused so far (policy reject)", count)
	}
}

func (t *appendTalk) progress(count *feedCount) {
	if t.isTerminal && t.isDue() {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(t.stderr, "\r%d records acknowledged, %.0f/s ", count.acknowledged, t.rate(count))
		t.isLineOpen = true
	}
}

func (t *appendTalk) rate(count *feedCount) float64 {
	return float64(count.acknowledged) / max(time.Since(t.started).Seconds(), 1e-9)
}

// summary is the last line or two. counters may be nil when the writer exported none; longest is the longest time
// without an acknowledgement while one was due.
func (t *appendTalk) summary(count *feedCount, contract farlog.Contract, counters *farlog.Counters,
	longest time.Duration,
) {
	level := ""
	if count.acknowledged > 0 {
		level = ", level " + count.level.String()
	}
	t.printf("acknowledged %d records (%d bytes) in %s: %.0f/s%s on %s by %s; refused %d, waited for space %d times, "+
		"resolved %d unknown",
		count.acknowledged, count.bytes, time.Since(t.started).Round(time.Millisecond), t.rate(count), level,
		contract.Kind, contract.FlushMethod, count.refused, count.full, count.unknown)
	if counters == nil {
		t.longest(longest)
		return
	}
	most := counters.Quantile(1)
	// what waited for space, or ended without an acknowledgement, is in no commit's latency
	if longest > most+stallPause {
		most = longest
	}
	if counters.LatencyCount() == 0 {
		t.longest(most)
		return
	}
	t.printf("append latency over %d commits: p50 %s p99 %s p99.9 %s max %s", counters.LatencyCount(),
		counters.Quantile(0.5), counters.Quantile(0.99), counters.Quantile(0.999), most)
}

func (t *appendTalk) longest(wait time.Duration) {
	if wait > 0 {
		t.printf("longest wait for an acknowledgement: %s", wait.Round(time.Microsecond))
	}
}
