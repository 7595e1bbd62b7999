package merge

import (
	"encoding/binary"
	"fmt"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// Flags say why an entry's order time is not the time in its record.
type Flags uint16

// The flags of an entry.
const (
	// the record came after the merge had waited for it as long as was declared: its order time was decided
	FlagLate      Flags = 1
	FlagEarly     Flags = 2 // its time lay further in the future than was declared: its order time was decided
	FlagBack      Flags = 4 // the clock of its stream had gone back: it has the order time of the record before
	flagPositions Flags = 8 // not an entry: where the order and each stream stand, at the begin of a segment
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
}

const (
	orderAlign  = 64
	entryLen    = 40
	orderEpoch  = 1
	orderStream = "order"
)

// entryExtentMax is what an entry of the stream with the longest name takes.
var entryExtentMax = int64(record.Extent(orderAlign, record.StreamNameLen, entryLen))

// sourceOf is the order as a stream of its own: its records are the store's, by its UUID.
func sourceOf(s *store.Store, segmentBytes int64) store.Source {
	uuid := s.UUID()
	return store.Source{
		StreamName: orderStream, RingUUID: uuid, Salt: binary.LittleEndian.Uint64(uuid[:]), Align: orderAlign,
		RecordLenMax: uint32(segmentBytes - segmentHeaderBytes),
	}
}

// payload is what the record of an entry holds beside its key, which is the stream, its time, which is that of the
// order, and its class, which is the flags. Its last two bytes are zero.
func (e *Entry) payload(into *[entryLen]byte) []byte {
	raw := into[:]
	binary.LittleEndian.PutUint64(raw[0:], e.TimestampNS)
	binary.LittleEndian.PutUint64(raw[8:], e.LSN)
	binary.LittleEndian.PutUint64(raw[16:], e.Seq)
	binary.LittleEndian.PutUint32(raw[24:], e.Epoch)
	binary.LittleEndian.PutUint32(raw[28:], uint32(e.Generation))
	binary.LittleEndian.PutUint32(raw[32:], e.RecordCRC)
	binary.LittleEndian.PutUint16(raw[36:], uint16(e.RecordFlags))
	return raw
}

// decodeEntry reads the record of an entry.
func decodeEntry(r *record.Record) (Entry, error) {
	raw := r.Payload
	if len(raw) != entryLen || len(r.Key) == 0 || raw[38] != 0 || raw[39] != 0 {
		return Entry{}, fmt.Errorf("record with a key of %d and a payload of %d bytes, expected a stream's name and "+
			"an entry of %d bytes that ends with two zeros", len(r.Key), len(raw), entryLen)
	}
	return Entry{
		OrderNS: r.TimestampNS, TimestampNS: binary.LittleEndian.Uint64(raw), Flags: Flags(r.Class),
		Place: store.Place{
			LSN: binary.LittleEndian.Uint64(raw[8:]), Epoch: binary.LittleEndian.Uint32(raw[24:]),
			Generation: uint64(binary.LittleEndian.Uint32(raw[28:])),
		},
		Seq: binary.LittleEndian.Uint64(raw[16:]), RecordCRC: binary.LittleEndian.Uint32(raw[32:]),
		RecordFlags: record.Flags(binary.LittleEndian.Uint16(raw[36:])), Stream: string(r.Key),
	}, nil
}
