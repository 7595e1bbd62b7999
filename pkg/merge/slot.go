package merge

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const slotLen = 64

// Flags say why an entry's order time is not the time in its record.
type Flags uint16

// The flags of an entry.
const (
	// the record came after the merge had waited for it as long as was declared: its order time was decided
	FlagLate   Flags = 1
	FlagEarly  Flags = 2 // its time lay further in the future than was declared: its order time was decided
	FlagBack   Flags = 4 // the clock of its stream had gone back: it has the order time of the record before
	flagStream Flags = 8 // not a record: the next number of the stream table, and the name in the slot behind
)

func (f Flags) String() string {
	text := ""
	for _, named := range []struct {
		flag Flags
		name string
	}{{FlagLate, "late"}, {FlagEarly, "early"}, {FlagBack, "clock-back"}} {
		if f&named.flag != 0 {
			text += "," + named.name
		}
	}
	if text == "" {
		return ""
	}
	return text[1:]
}

// Entry is one record's place in the merged order, and the way back to where it lies.
type Entry struct {
	OrderNS     uint64 // what the order goes by: never goes back along it
	TimestampNS uint64 // as the record says
	store.Place
	Seq         uint64
	Flags       Flags
	RecordFlags record.Flags
	RecordCRC   uint32 // of the record: the entry means these bytes and no others
	Stream      string
	number      uint32 // of the stream in its file's table, from 1
}

var (
	errSlotNone = errors.New("nothing here: the bytes are zero")
	errSlotCRC  = errors.New("CRC does not match")
)

// encode appends the slot of an entry; its CRC continues that of its index in the file, so that a slot proves its
// place.
func (e *Entry) encode(dst []byte, index uint32) []byte {
	var raw [slotLen]byte
	binary.LittleEndian.PutUint64(raw[0:], e.OrderNS)
	binary.LittleEndian.PutUint64(raw[8:], e.TimestampNS)
	binary.LittleEndian.PutUint64(raw[16:], e.LSN)
	binary.LittleEndian.PutUint64(raw[24:], e.Seq)
	binary.LittleEndian.PutUint32(raw[32:], e.Epoch)
	binary.LittleEndian.PutUint32(raw[36:], uint32(e.Generation))
	binary.LittleEndian.PutUint32(raw[40:], e.number)
	binary.LittleEndian.PutUint16(raw[44:], uint16(e.Flags))
	binary.LittleEndian.PutUint16(raw[46:], uint16(e.RecordFlags))
	binary.LittleEndian.PutUint32(raw[48:], e.RecordCRC)
	binary.LittleEndian.PutUint32(raw[60:], record.CRC32C(index, raw[:60]))
	return append(dst, raw[:]...)
}

// encodeName appends the two slots that give a stream its number.
func encodeName(dst []byte, index, number uint32, name string) []byte {
	var raw [2 * slotLen]byte
	binary.LittleEndian.PutUint32(raw[40:], number)
	binary.LittleEndian.PutUint16(raw[44:], uint16(flagStream))
	binary.LittleEndian.PutUint16(raw[46:], uint16(len(name)))
	copy(raw[slotLen:], name)
	binary.LittleEndian.PutUint32(raw[60:], record.CRC32C(record.CRC32C(index, raw[:60]), raw[slotLen:]))
	return append(dst, raw[:]...)
}

// table is the streams of one file, by number less one.
type table []string

// decode reads what begins at the front of raw: an entry, or with isName a line of the table, which it takes in. used
// is how many slots that were.
func (t *table) decode(raw []byte, index uint32) (e Entry, isName bool, used int, err error) {
	if len(raw) < slotLen {
		return e, false, 0, errSlotNone
	}
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(raw[off:]) }
	half := func(off int) uint32 { return binary.LittleEndian.Uint32(raw[off:]) }
	e.Flags = Flags(binary.LittleEndian.Uint16(raw[44:]))
	crc, want := record.CRC32C(index, raw[:60]), half(60)
	if e.Flags&flagStream != 0 && len(raw) >= 2*slotLen && crc != want {
		return e, true, 2, t.decodeName(raw, crc)
	}
	if crc != want {
		if isZero(raw[:slotLen]) {
			return e, false, 0, errSlotNone
		}
		return e, false, 0, fmt.Errorf("%w: slot says %#08x, bytes give %#08x", errSlotCRC, want, crc)
	}
	e.OrderNS, e.TimestampNS, e.LSN, e.Seq = word(0), word(8), word(16), word(24)
	e.Epoch, e.Generation, e.number = half(32), uint64(half(36)), half(40)
	e.RecordFlags, e.RecordCRC = record.Flags(binary.LittleEndian.Uint16(raw[46:])), half(48)
	if e.number == 0 || int(e.number) > len(*t) {
		return e, false, 0, fmt.Errorf("stream number %d, the table has %d", e.number, len(*t))
	}
	e.Stream = (*t)[e.number-1]
	return e, false, 1, nil
}

func (t *table) decodeName(raw []byte, crc uint32) error {
	if record.CRC32C(crc, raw[slotLen:2*slotLen]) != binary.LittleEndian.Uint32(raw[60:]) {
		return fmt.Errorf("%w: of a stream's name", errSlotCRC)
	}
	number, length := binary.LittleEndian.Uint32(raw[40:]), int(binary.LittleEndian.Uint16(raw[46:]))
	if int(number) != len(*t)+1 || length == 0 || length > slotLen {
		return fmt.Errorf("stream number %d with a name of %d bytes, expected number %d", number, length, len(*t)+1)
	}
	*t = append(*t, string(raw[slotLen:slotLen+length]))
	return nil
}

func isZero(raw []byte) bool {
	for _, b := range raw {
		if b != 0 {
			return false
		}
	}
	return true
}
