package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendTo appends the stored form of a record to dst: header, key, payload, zero fill, trailer; of a PAD its 64 bytes,
// with h.PayloadLen as given and neither key nor payload. KeyLen, PayloadLen (other than a PAD's) and CRC are computed.
// Errors: ErrIdentity, ErrLength; dst is returned unchanged then.
func AppendTo(dst []byte, h Header, key, payload []byte, id Identity) ([]byte, error) {
	if err := id.Validate(); err != nil {
		return dst, err
	}
	if len(key) > math.MaxUint16 || uint64(len(payload)) > math.MaxUint32 {
		return dst, fmt.Errorf("%w: key of %d and payload of %d bytes", ErrLength, len(key), len(payload))
	}
	if h.Flags.IsPad() && len(key)+len(payload) != 0 {
		return dst, fmt.Errorf("%w: PAD with %d bytes of key and payload, expected 0", ErrLength, len(key)+len(payload))
	}
	h.KeyLen = uint16(len(key))
	if !h.Flags.IsPad() {
		h.PayloadLen = uint32(len(payload))
	}
	if err := h.checkLength(id); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = append(dst, make([]byte, h.StoredLen(id.Align))...)
	raw := dst[start:]
	h.encode(raw)
	body := raw[HeaderLen : HeaderLen+len(key)+len(payload)]
	copy(body, key)
	copy(body[len(key):], payload)
	binary.LittleEndian.PutUint64(raw[len(raw)-TrailerLen:], h.LSN^id.Salt)
	binary.LittleEndian.PutUint32(raw[crcOffset:], bodyCRC(raw, body, id))
	return dst, nil
}

func (h Header) encode(raw []byte) {
	binary.LittleEndian.PutUint32(raw, Magic)
	raw[4] = h.Flags.version()
	raw[5] = HeaderLen / 8
	binary.LittleEndian.PutUint16(raw[6:], uint16(h.Flags))
	binary.LittleEndian.PutUint64(raw[8:], h.LSN)
	binary.LittleEndian.PutUint32(raw[16:], h.Epoch)
	binary.LittleEndian.PutUint32(raw[20:], h.PayloadLen)
	binary.LittleEndian.PutUint64(raw[24:], h.Seq)
	binary.LittleEndian.PutUint64(raw[32:], h.TimestampNS)
	binary.LittleEndian.PutUint32(raw[40:], h.ClockErrNS)
	binary.LittleEndian.PutUint16(raw[44:], h.Class)
	binary.LittleEndian.PutUint16(raw[46:], h.KeyLen)
	binary.LittleEndian.PutUint32(raw[48:], h.StreamID)
}

// EpochPayloadLen is the length of an EPOCH record's payload.
const EpochPayloadLen = 32

// EpochPayload is what the first record of an epoch says.
type EpochPayload struct {
	PrevEpoch uint32 // 0 for the first
	StartLSN  uint64 // the record's own lsn, or that of the PAD before it
	RingUUID  UUID
}

// DecodeEpochPayload reads the payload of an EPOCH record. Errors: ErrShort.
func DecodeEpochPayload(payload []byte) (EpochPayload, error) {
	if len(payload) < EpochPayloadLen {
		return EpochPayload{}, fmt.Errorf("%w: EPOCH payload of %d bytes, expected %d", ErrShort, len(payload),
			EpochPayloadLen)
	}
	return EpochPayload{
		PrevEpoch: binary.LittleEndian.Uint32(payload),
		StartLSN:  binary.LittleEndian.Uint64(payload[8:]),
		RingUUID:  UUID(payload[16:32]),
	}, nil
}

// Encode makes the 32 bytes of the payload.
func (p EpochPayload) Encode() []byte {
	raw := make([]byte, EpochPayloadLen)
	binary.LittleEndian.PutUint32(raw, p.PrevEpoch)
	binary.LittleEndian.PutUint64(raw[8:], p.StartLSN)
	copy(raw[16:], p.RingUUID[:])
	return raw
}
