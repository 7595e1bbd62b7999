package record

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestDecodeGapPayload(t *testing.T) {
	raw := make([]byte, GapPayloadLen)
	binary.LittleEndian.PutUint32(raw, 1)
	for i, value := range []uint64{3446, 555, 4000, 1_000_000_001, 2_000_000_000, 3500} {
		binary.LittleEndian.PutUint64(raw[8+8*i:], value)
	}
	p, err := DecodeGapPayload(raw)
	want := "missing=3446 why=no-room numbers=555-4000 from=1970-01-01T00:00:01.000000001Z to=1970-01-01T00:00:02Z " +
		"dropped=3500"
	if err != nil || p.String() != want {
		t.Errorf("%s, %v; expected %s", p, err, want)
	}
	if _, err := DecodeGapPayload(raw[1:]); !errors.Is(err, ErrShort) {
		t.Errorf("short: %v", err)
	}
}
