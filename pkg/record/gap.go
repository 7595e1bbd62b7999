package record

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// GapPayloadLen is the length of a GAP record's payload.
const GapPayloadLen = 56

// Why records are missing.
const (
	gapTooLarge = 2 // enum farlog_gap_reason of farlog/route.h, where 1 is for want of room
	gapRefused  = 3 // a drain's alone: FARLOG_GAP_REFUSED
)

// GapPayload is what a GAP record says of records that are missing before it, or in its place: struct farlog_gap of
// farlog/route.h.
type GapPayload struct {
	IsTooLarge bool   // the ring takes no record as long as that one; else there was no room for them
	IsRefused  bool   // the drain took the record in whose place this is for forged
	Cause      string // why it was refused, as far as there was room for it
	Count      uint64 // of records
	From, To   uint64 // the first and the last, counted from 1 since the route was opened; 0: not known
	FromTime   time.Time
	ToTime     time.Time
	Dropped    uint64 // in all, since the route was opened
}

// RefusedGap makes the payload of a GAP record in the place of a record that was refused: as much of it as payloadLen
// bytes take. One with less than GapPayloadLen says no cause.
func RefusedGap(cause string, payloadLen int) []byte {
	payload := make([]byte, max(payloadLen, GapPayloadLen))
	binary.LittleEndian.PutUint32(payload, gapRefused)
	binary.LittleEndian.PutUint64(payload[8:], 1)
	copy(payload[GapPayloadLen:], cause)
	return payload[:payloadLen]
}

// DecodeGapPayload reads the payload of a GAP record. Errors: ErrShort. One that
// is too short is of a record that was refused and had no more room.
func DecodeGapPayload(payload []byte) (GapPayload, error) {
	if len(payload) == 0 || len(payload) < GapPayloadLen && payload[0] == gapRefused {
		return GapPayload{IsRefused: true, Count: 1}, nil
	}
	if len(payload) < GapPayloadLen {
		return GapPayload{}, fmt.Errorf("%w: GAP payload of %d bytes, expected %d", ErrShort, len(payload),
			GapPayloadLen)
	}
	at := func(off int) uint64 { return binary.LittleEndian.Uint64(payload[off:]) }
	if binary.LittleEndian.Uint32(payload) == gapRefused {
		cause, _, _ := strings.Cut(string(payload[GapPayloadLen:]), "\x00")
		return GapPayload{IsRefused: true, Count: at(8), Cause: cause}, nil
	}
	return GapPayload{
		IsTooLarge: binary.LittleEndian.Uint32(payload) == gapTooLarge, Count: at(8), From: at(16), To: at(24),
		FromTime: time.Unix(0, int64(at(32))).UTC(), ToTime: time.Unix(0, int64(at(40))).UTC(), Dropped: at(48),
	}, nil
}

// String is one line.
func (p GapPayload) String() string {
	if p.IsRefused {
		return fmt.Sprintf("missing=%d why=refused cause=%q", p.Count, p.Cause)
	}
	why := "no-room"
	if p.IsTooLarge {
		why = "too-large"
	}
	return fmt.Sprintf("missing=%d why=%s numbers=%d-%d from=%s to=%s dropped=%d", p.Count, why, p.From, p.To,
		p.FromTime.Format(time.RFC3339Nano), p.ToTime.Format(time.RFC3339Nano), p.Dropped)
}
