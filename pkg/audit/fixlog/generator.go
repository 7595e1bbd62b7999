package fixlog

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/farlog/farlog/pkg/audit/fix"
)

// Message is one generated message.
type Message struct {
	Bytes     []byte // a whole, valid FIX message
	Key       []byte // ClOrdID, or ListID of a list; a slice of Bytes, nil where there is none
	Class     uint16 // fix.Class…
	Direction Direction
}

// Options of a generator.
type Options struct {
	// Run goes in front of every id: up to 8 letters or digits. Two generators with different runs share no id.
	Run string
	// First is the number of the first message, from 0: a feed that was cut off goes on where it stopped.
	First uint64
}

// Generator makes an endless stream of distinct, valid FIX messages from a recording. Lap after lap it replays the
// recorded messages with
//   - ids (ClOrdID, OrigClOrdID, OrderID, ExecID, ListID and their like) that carry run and lap in front, so that the
//     orders of a lap are linked among themselves and with those of no other lap,
//   - MsgSeqNum going on where the lap before ended, in each direction of each session,
//   - SendingTime as given and TransactTime as far before it as recorded,
//   - BodyLength and CheckSum computed again.
//
// Everything but the times is a function of the recording, the run and the message's number. A generator is used by one
// goroutine at a time.
type Generator struct {
	templates []template
	sides     []side
	run       string
	index     int   // of the next message in the recording
	lap       int64 // from 0
	prefix    []byte
	prefixSum byte
	clocks    [2]fix.Clock // of SendingTime, and of earlier times
	buffer    []byte
}

const (
	lapDigits = 4 // base 36, zero-filled: 1.6 million laps before ids get longer
	runLenMax = 8
)

// NewGenerator takes a recording apart. It refuses a recording whose messages are invalid or whose sequence numbers do
// not run from 1 without a hole, because its laps could not be joined.
func NewGenerator(recording []Entry, options Options) (*Generator, error) {
	if len(recording) == 0 {
		return nil, errors.New("make generator: the recording is empty")
	}
	if err := checkRun(options.Run); err != nil {
		return nil, err
	}
	generator := &Generator{templates: make([]template, 0, len(recording)), run: options.Run}
	var made compiler
	for i, entry := range recording {
		compiled, err := made.compile(entry)
		if err != nil {
			return nil, fmt.Errorf("make generator: message %d of the recording: %w", i+1, err)
		}
		generator.templates = append(generator.templates, compiled)
	}
	generator.sides = made.sides
	generator.index = int(options.First % uint64(len(recording)))
	generator.lap = int64(options.First / uint64(len(recording)))
	generator.startLap()
	return generator, nil
}

// LapLen is the number of messages of one lap.
func (g *Generator) LapLen() int {
	return len(g.templates)
}

// Number is the number of the message that Next will make, from 0.
func (g *Generator) Number() uint64 {
	return uint64(g.lap)*uint64(len(g.templates)) + uint64(g.index)
}

// Next makes the next message as sent at unixNS. The message is valid until the next call. It does not allocate once
// its buffer has grown.
func (g *Generator) Next(unixNS int64) Message {
	var message Message
	g.buffer, message = g.Append(g.buffer[:0], unixNS)
	return message
}

// Append makes the next message behind dst, for callers that keep several in one buffer.
func (g *Generator) Append(dst []byte, unixNS int64) ([]byte, Message) {
	t := &g.templates[g.index]
	start := len(dst)
	dst = append(dst, t.head...)
	numberStart := len(dst)
	dst = strconv.AppendInt(dst, int64(g.bodyLen(t)), 10)
	sum := t.literalSum + fix.Sum(dst[numberStart:]) + fix.SOH
	dst = append(dst, fix.SOH)

	literalStart, keyStart, keyEnd := 0, 0, 0
	for i := range t.patches {
		p := &t.patches[i]
		dst = append(dst, t.body[literalStart:p.literalEnd]...)
		literalStart = int(p.literalEnd)
		written := len(dst)
		switch p.kind {
		case patchKeyID:
			keyStart, keyEnd = written, written+len(g.prefix)+int(p.number)
			fallthrough
		case patchID:
			dst = append(dst, g.prefix...)
			sum += g.prefixSum
			continue
		case patchSequence:
			dst = strconv.AppendInt(dst, g.sequence(p), 10)
		case patchTime:
			dst = g.clocks[clockOf(p.number)].Append(dst, unixNS-p.number, int(p.length))
		}
		sum += fix.Sum(dst[written:])
	}
	dst = append(dst, t.body[literalStart:]...)
	dst = append(dst, '1', '0', '=', '0'+sum/100, '0'+sum/10%10, '0'+sum%10, fix.SOH)

	message := Message{Bytes: dst[start:len(dst):len(dst)], Class: t.class, Direction: t.direction}
	if keyEnd > 0 {
		message.Key = dst[keyStart:keyEnd:keyEnd]
	}
	g.advance()
	return dst, message
}

func (g *Generator) bodyLen(t *template) int {
	length := len(t.body) + t.prefixCount*len(g.prefix) + t.timeLen
	for i := range t.patches {
		if t.patches[i].kind == patchSequence {
			length += digits(g.sequence(&t.patches[i]))
		}
	}
	return length
}

func (g *Generator) sequence(p *patch) int64 {
	return p.number + g.lap*g.sides[p.side].messageCount
}

func (g *Generator) advance() {
	g.index++
	if g.index == len(g.templates) {
		g.index = 0
		g.lap++
		g.startLap()
	}
}

// FreshID returns the id that a recorded one has in a lap, counted from 0: to look for an order that was generated.
func FreshID(run string, lap uint64, recorded string) string {
	return string(appendPrefix(nil, run, int64(lap))) + recorded
}

func (g *Generator) startLap() {
	g.prefix = appendPrefix(g.prefix[:0], g.run, g.lap)
	g.prefixSum = fix.Sum(g.prefix)
}

// appendPrefix writes what goes in front of the ids of a lap: run, lap in base 36, a point.
func appendPrefix(dst []byte, run string, lap int64) []byte {
	dst = append(dst, run...)
	text := strconv.FormatInt(lap, 36)
	for range lapDigits - len(text) {
		dst = append(dst, '0')
	}
	return append(append(dst, text...), '.')
}

func digits(n int64) int {
	count := 1
	for ; n >= 10; n /= 10 {
		count++
	}
	return count
}

func checkRun(run string) error {
	isGood := len(run) <= runLenMax
	for _, c := range run {
		isGood = isGood && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z')
	}
	if !isGood {
		return fmt.Errorf("generator run %q: expected at most %d letters or digits", run, runLenMax)
	}
	return nil
}

// clockOf picks the clock: earlier times often lie in the second before, and would make one clock forget its text.
func clockOf(beforeNS int64) int {
	if beforeNS == 0 {
		return 0
	}
	return 1
}
