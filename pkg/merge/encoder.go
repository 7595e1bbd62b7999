package merge

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// Layout of an order file (docs/reference/format.md section 8).
const (
	orderMagic     = "FARLOGMO"
	orderVersion   = 1
	orderHeaderLen = 512
	orderDataOff   = 4096
	orderCRCOff    = 508
	markAOff       = 512
	markBOff       = 1024
	markLen        = 32
	markCRCOff     = 28

	// FileSlotsDefault is how many slots of 64 bytes a file of the order has.
	FileSlotsDefault = 1 << 20
	fileSlotsMin     = 4
)

// orderHeader begins a file of the order. There is nothing in it that the records and the decisions do not determine.
type orderHeader struct {
	number      uint64 // from 1
	slotsMax    uint32
	firstIndex  uint64 // of its first entry among all entries
	prevOrderNS uint64 // of the last entry before
	previous    [sha256.Size]byte
}

func (h orderHeader) encode() []byte {
	raw := make([]byte, orderHeaderLen)
	copy(raw, orderMagic)
	binary.LittleEndian.PutUint32(raw[8:], orderVersion)
	binary.LittleEndian.PutUint32(raw[12:], orderDataOff)
	binary.LittleEndian.PutUint64(raw[16:], h.number)
	binary.LittleEndian.PutUint32(raw[24:], h.slotsMax)
	binary.LittleEndian.PutUint64(raw[32:], h.firstIndex)
	binary.LittleEndian.PutUint64(raw[40:], h.prevOrderNS)
	copy(raw[48:80], h.previous[:])
	binary.LittleEndian.PutUint32(raw[orderCRCOff:], record.CRC32C(0, raw[:orderCRCOff]))
	return raw
}

var errNoHeader = errors.New("no valid header of an order file")

func decodeOrderHeader(raw []byte) (orderHeader, error) {
	if len(raw) < orderHeaderLen || string(raw[:8]) != orderMagic ||
		binary.LittleEndian.Uint32(raw[8:]) != orderVersion {
		return orderHeader{}, fmt.Errorf("%w: magic %q, expected %q of version %d", errNoHeader, raw[:min(8, len(raw))],
			orderMagic, orderVersion)
	}
	h := orderHeader{
		number: binary.LittleEndian.Uint64(raw[16:]), slotsMax: binary.LittleEndian.Uint32(raw[24:]),
		firstIndex: binary.LittleEndian.Uint64(raw[32:]), prevOrderNS: binary.LittleEndian.Uint64(raw[40:]),
		previous: [32]byte(raw[48:80]),
	}
	if !bytes.Equal(h.encode(), raw[:orderHeaderLen]) {
		return orderHeader{}, fmt.Errorf("%w: CRC does not match, or a reserved byte is not zero", errNoHeader)
	}
	return h, nil
}

// mark says how many slots of a file are synced: readers go no further. A and B are written in turn.
type mark struct {
	slots, turn uint64
	decisions   uint32 // that were synced by then
}

func (m mark) encode() []byte {
	raw := make([]byte, markLen)
	binary.LittleEndian.PutUint64(raw, m.slots)
	binary.LittleEndian.PutUint64(raw[8:], m.turn)
	binary.LittleEndian.PutUint32(raw[16:], m.decisions)
	binary.LittleEndian.PutUint32(raw[markCRCOff:], record.CRC32C(0, raw[:markCRCOff]))
	return raw
}

func (m mark) offset() int64 {
	if m.turn%2 == 1 {
		return markAOff
	}
	return markBOff
}

// decodeMarks gives the newer of the two; the zero mark when there is none.
func decodeMarks(raw []byte) mark {
	var newest mark
	for _, off := range []int{markAOff, markBOff} {
		one := raw[off : off+markLen]
		m := mark{
			binary.LittleEndian.Uint64(one), binary.LittleEndian.Uint64(one[8:]),
			binary.LittleEndian.Uint32(one[16:]),
		}
		if record.CRC32C(0, one[:markCRCOff]) == binary.LittleEndian.Uint32(one[markCRCOff:]) && m.turn > newest.turn {
			newest = m
		}
	}
	return newest
}

// last is the last entry of a stream: all that is needed to go on behind it.
type last struct {
	store.Place
	seq     uint64
	orderNS uint64
	isLate  bool
}

// info is what an encoder knows of a stream.
type info struct {
	name   string
	number uint32 // in the table of the file
	file   uint64 // which number means
	last   last   // zero = none
}

// encoder makes the bytes of the order, file by file, and nothing else: what writes them and what checks them use it
// alike.
type encoder struct {
	header    orderHeader
	slots     uint32 // of the file
	names     uint32 // in the file's table
	nextIndex uint64 // of the next entry among all
	orderNS   uint64 // of the last entry
	stream    string // of the last entry
	streams   map[string]*info
	sum       hash.Hash // of the file: header and slots
}

func newEncoder(slotsMax uint32) *encoder {
	e := &encoder{streams: map[string]*info{}}
	e.begin(orderHeader{number: 1, slotsMax: slotsMax})
	return e
}

func (e *encoder) begin(h orderHeader) {
	e.header, e.slots, e.names, e.sum = h, 0, 0, sha256.New()
	_, _ = e.sum.Write(h.encode())
}

func (e *encoder) info(stream string) *info {
	known := e.streams[stream]
	if known == nil {
		known = &info{name: stream}
		e.streams[stream] = known
	}
	return known
}

// isFull tells whether an entry of the stream begins the next file: it and the name of its stream lie in one.
func (e *encoder) isFull(of *info) bool {
	need := uint32(1)
	if of.file != e.header.number {
		need += 2
	}
	return e.slots+need > e.header.slotsMax
}

// next begins the next file. What was added must have been hashed.
func (e *encoder) next() {
	e.begin(orderHeader{
		number: e.header.number + 1, slotsMax: e.header.slotsMax, firstIndex: e.nextIndex,
		prevOrderNS: e.orderNS, previous: e.digest(),
	})
}

// hash takes in slots that were added: many at once.
func (e *encoder) hash(slots []byte) { _, _ = e.sum.Write(slots) }

func (e *encoder) digest() [sha256.Size]byte { return [sha256.Size]byte(e.sum.Sum(nil)) }

// add appends an entry's slots to dst.
func (e *encoder) add(dst []byte, entry *Entry, of *info) []byte {
	if of.file != e.header.number {
		e.learn(of)
		dst = encodeName(dst, e.slots, of.number, of.name)
		e.slots += 2
	}
	entry.number = of.number
	dst = entry.encode(dst, e.slots)
	e.slots++
	e.take(entry, of)
	return dst
}

func (e *encoder) learn(of *info) {
	e.names++
	of.file, of.number = e.header.number, e.names
}

// take counts an entry whose slots are there.
func (e *encoder) take(entry *Entry, of *info) {
	e.nextIndex++
	e.orderNS, e.stream = entry.OrderNS, of.name
	of.last = last{entry.Place, entry.Seq, entry.OrderNS, entry.Flags&FlagLate != 0}
}
