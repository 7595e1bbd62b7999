package record

import (
	"encoding/binary"
	"fmt"
	"time"
)

// GapPayloadLen is the length of a GAP record's payload.
const GapPayloadLen = 56

// GapPayload is what a GAP record says of records that are missing before it: struct farlog_gap of farlog/route.h.
type GapPayload struct {
	IsTooLarge bool   // the ring takes no record as long as that one; else there was no room for them
	Count      uint64 // of records
	From, To   uint64 // the first and the last, counted from 1 since the route was opened; 0: not known
	FromTime   time.Time
	ToTime     time.Time
	Dropped    uint64 // in all, since the route was opened
}

// DecodeGapPayload reads the payload of a GAP record. Errors: ErrShort.
func DecodeGapPayload(payload []byte) (GapPayload, error) {
	if len(payload) < GapPayloadLen {
		return GapPayload{}, fmt.Errorf("%w: GAP payload of %d bytes, expected %d", ErrShort, len(payload),
			GapPayloadLen)
	}
	at := func(off int) uint64 { return binary.LittleEndian.Uint64(payload[off:]) }
	return GapPayload{
		IsTooLarge: binary.LittleEndian.Uint32(payload) == 2, Count: at(8), From: at(16), To: at(24),
		FromTime: time.Unix(0, int64(at(32))).UTC(), ToTime: time.Unix(0, int64(at(40))).UTC(), Dropped: at(48),
	}, nil
}

// String is one line.
func (p GapPayload) String() string {
	why := "no-room"
	if p.IsTooLarge {
		why = "too-large"
	}
	return fmt.Sprintf("missing=%d why=%s numbers=%d-%d from=%s to=%s dropped=%d", p.Count, why, p.From, p.To,
		p.FromTime.Format(time.RFC3339Nano), p.ToTime.Format(time.RFC3339Nano), p.Dropped)
}
