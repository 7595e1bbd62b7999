package store

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/farlog/farlog/pkg/record"
)

// Places and sizes of a segment (docs/reference/format.md section 5).
const (
	segmentMagic      = "FARLOGSG"
	segmentVersion    = 2
	segmentHeaderLen  = 512
	segmentDataOffset = 4096
	segmentHashOffset = 200
	segmentSignOffset = segmentHashOffset + sha256.Size
	segmentCRCOffset  = 508
	markAOffset       = 512
	markBOffset       = 1024
	markLen           = 32
	markCRCOffset     = 28
)

// segmentHeader names what a segment holds. It is durable before the first record behind it.
type segmentHeader struct {
	Version      uint32
	StoreUUID    record.UUID
	RingUUID     record.UUID
	Salt         uint64
	Align        uint32
	RecordLenMax uint32
	Number       uint64
	Generation   uint64
	FirstLSN     uint64
	FirstSeq     uint64
	FirstTS      uint64
	PrevNextLSN  uint64
	PrevNextSeq  uint64
	PrevEpoch    uint32
	StreamID     uint32
	StreamName   string
	CreatedNS    uint64
	// Since version 2: what the segment before holds, as its manifest says it, and the store's word on all that. So
	// a segment whose manifest is gone is not sealed again from other bytes. Zero: there is none before.
	PrevSHA256 [sha256.Size]byte
	Signature  [ed25519.SignatureSize]byte
}

func (h segmentHeader) identity() record.Identity {
	return record.Identity{Salt: h.Salt, Align: h.Align, RecordLenMax: h.RecordLenMax}
}

// start is the chain before the first record.
func (h segmentHeader) start() chain {
	if h.PrevEpoch == 0 {
		return chain{}
	}
	return chain{isBegun: true, Cursor: record.Cursor{LSN: h.PrevNextLSN, Seq: h.PrevNextSeq, Epoch: h.PrevEpoch}}
}

func (h segmentHeader) isRing(s Source) bool { return h.RingUUID == s.RingUUID && h.Salt == s.Salt }

func (h segmentHeader) encode() []byte {
	raw := make([]byte, segmentHeaderLen)
	copy(raw, segmentMagic)
	binary.LittleEndian.PutUint32(raw[8:], h.Version)
	binary.LittleEndian.PutUint32(raw[12:], segmentDataOffset)
	copy(raw[16:32], h.StoreUUID[:])
	copy(raw[32:48], h.RingUUID[:])
	binary.LittleEndian.PutUint64(raw[48:], h.Salt)
	binary.LittleEndian.PutUint32(raw[56:], h.Align)
	binary.LittleEndian.PutUint32(raw[60:], h.RecordLenMax)
	binary.LittleEndian.PutUint64(raw[64:], h.Number)
	binary.LittleEndian.PutUint64(raw[72:], h.Generation)
	binary.LittleEndian.PutUint64(raw[80:], h.FirstLSN)
	binary.LittleEndian.PutUint64(raw[88:], h.FirstSeq)
	binary.LittleEndian.PutUint64(raw[96:], h.FirstTS)
	binary.LittleEndian.PutUint64(raw[104:], h.PrevNextLSN)
	binary.LittleEndian.PutUint64(raw[112:], h.PrevNextSeq)
	binary.LittleEndian.PutUint32(raw[120:], h.PrevEpoch)
	binary.LittleEndian.PutUint32(raw[124:], h.StreamID)
	copy(raw[128:192], h.StreamName)
	binary.LittleEndian.PutUint64(raw[192:], h.CreatedNS)
	copy(raw[segmentHashOffset:], h.PrevSHA256[:])
	copy(raw[segmentSignOffset:], h.Signature[:])
	binary.LittleEndian.PutUint32(raw[segmentCRCOffset:], record.CRC32C(0, raw[:segmentCRCOffset]))
	return raw
}

// What can be wrong with a header.
var (
	errNoHeader        = errors.New("no valid segment header")
	errHeaderSignature = errors.New("signature of the segment's header does not match")
)

// sign makes the header one of this store.
func (h segmentHeader) sign(sign func([]byte) ([]byte, error)) (segmentHeader, error) {
	signature, err := sign(h.encode()[:segmentSignOffset])
	if err != nil {
		return h, fmt.Errorf("sign the header of segment %d: %w", h.Number, err)
	}
	copy(h.Signature[:], signature)
	return h, nil
}

// checkSigned reports whether the store made the header. One of version 1 has no signature.
func (h segmentHeader) checkSigned(check checker) error {
	if !h.isSigned() {
		return nil
	}
	if err := check(h.encode()[:segmentSignOffset], h.Signature[:]); err != nil {
		return fmt.Errorf("%w: %w", errHeaderSignature, err)
	}
	return nil
}

func (h segmentHeader) isSigned() bool { return h.Version > 1 }

// checkBefore compares the SHA-256 of the segment before with what it was when this one was begun. One of version 1
// does not know it: then a manifest is expected of each segment but that before the newest, whose sealing a crash can
// have interrupted.
func (h segmentHeader) checkBefore(digest [sha256.Size]byte, isSealed, isNewest bool) error {
	switch {
	case h.isSigned() && h.PrevSHA256 != digest:
		return fmt.Errorf("SHA-256 of the segment is %x, it was %x when segment %d was begun", digest, h.PrevSHA256,
			h.Number)
	case !h.isSigned() && !isSealed && !isNewest:
		return fmt.Errorf("manifest is missing, and the header of segment %d is of version 1, which does not say "+
			"what this one held: expected the manifest: take it from a copy of the store", h.Number)
	}
	return nil
}

func decodeSegmentHeader(raw []byte) (segmentHeader, error) {
	if len(raw) < segmentHeaderLen || string(raw[:8]) != segmentMagic {
		return segmentHeader{}, fmt.Errorf("%w: magic %q, expected %q", errNoHeader, raw[:min(8, len(raw))],
			segmentMagic)
	}
	version, length := binary.LittleEndian.Uint32(raw[8:]), binary.LittleEndian.Uint32(raw[12:])
	if version < 1 || version > segmentVersion || length != segmentDataOffset {
		return segmentHeader{}, fmt.Errorf("%w: version %d and length %d, expected 1 to %d and %d",
			errNoHeader, version, length, segmentVersion, segmentDataOffset)
	}
	said, crc := binary.LittleEndian.Uint32(raw[segmentCRCOffset:]), record.CRC32C(0, raw[:segmentCRCOffset])
	if said != crc {
		return segmentHeader{}, fmt.Errorf("%w: CRC %#08x, bytes give %#08x", errNoHeader, said, crc)
	}
	h := segmentHeader{
		Version:      version,
		StoreUUID:    record.UUID(raw[16:32]),
		RingUUID:     record.UUID(raw[32:48]),
		Salt:         binary.LittleEndian.Uint64(raw[48:]),
		Align:        binary.LittleEndian.Uint32(raw[56:]),
		RecordLenMax: binary.LittleEndian.Uint32(raw[60:]),
		Number:       binary.LittleEndian.Uint64(raw[64:]),
		Generation:   binary.LittleEndian.Uint64(raw[72:]),
		FirstLSN:     binary.LittleEndian.Uint64(raw[80:]),
		FirstSeq:     binary.LittleEndian.Uint64(raw[88:]),
		FirstTS:      binary.LittleEndian.Uint64(raw[96:]),
		PrevNextLSN:  binary.LittleEndian.Uint64(raw[104:]),
		PrevNextSeq:  binary.LittleEndian.Uint64(raw[112:]),
		PrevEpoch:    binary.LittleEndian.Uint32(raw[120:]),
		StreamID:     binary.LittleEndian.Uint32(raw[124:]),
		StreamName:   string(bytes.TrimRight(raw[128:192], "\x00")),
		CreatedNS:    binary.LittleEndian.Uint64(raw[192:]),
		PrevSHA256:   [sha256.Size]byte(raw[segmentHashOffset:]),
		Signature:    [ed25519.SignatureSize]byte(raw[segmentSignOffset:]),
	}
	if err := h.identity().Validate(); err != nil {
		return segmentHeader{}, fmt.Errorf("%w: %w", errNoHeader, err)
	}
	return h, nil
}

// mark says how far a segment was synced.
type mark struct {
	syncedOffset int64
	count        uint64
}

func (m mark) encode(salt uint64) []byte {
	raw := make([]byte, markLen)
	binary.LittleEndian.PutUint64(raw, uint64(m.syncedOffset))
	binary.LittleEndian.PutUint64(raw[8:], m.count)
	binary.LittleEndian.PutUint32(raw[markCRCOffset:], record.CRC32C(uint32(salt), raw[:markCRCOffset]))
	return raw
}

// offset is where this mark is written: A and B in turn, so that one is always whole.
func (m mark) offset() int64 {
	if m.count%2 == 1 {
		return markAOffset
	}
	return markBOffset
}

func decodeMark(raw []byte, salt uint64) (mark, bool) {
	if binary.LittleEndian.Uint32(raw[markCRCOffset:]) != record.CRC32C(uint32(salt), raw[:markCRCOffset]) {
		return mark{}, false
	}
	m := mark{syncedOffset: int64(binary.LittleEndian.Uint64(raw)), count: binary.LittleEndian.Uint64(raw[8:])}
	return m, m.count > 0 && m.syncedOffset >= segmentDataOffset
}

// front is the part of a segment before its records, with the first bytes of the first record.
type front struct {
	header    segmentHeader
	headerErr error
	mark      mark // zero = none
	isBlank   bool // nothing but zeros where marks and the first record would be
}

const frontLen = segmentDataOffset + record.HeaderLen

func readFront(file io.ReaderAt) (front, error) {
	raw := make([]byte, frontLen)
	if _, err := file.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return front{}, err
	}
	var f front
	f.header, f.headerErr = decodeSegmentHeader(raw[:segmentHeaderLen])
	f.isBlank = isZero(raw[segmentHeaderLen:])
	if f.headerErr != nil {
		return f, nil
	}
	for _, off := range []int{markAOffset, markBOffset} {
		if m, ok := decodeMark(raw[off:off+markLen], f.header.Salt); ok && m.syncedOffset >= f.mark.syncedOffset {
			f.mark = m
		}
	}
	return f, nil
}

func isZero(raw []byte) bool { return len(bytes.TrimLeft(raw, "\x00")) == 0 }

// chain is where the log of one generation stands.
type chain struct {
	record.Cursor
	isBegun bool
}

// check reports whether a record continues the log, and whether it does so by going back (docs/reference/format.md
// section 5, Order).
func (c *chain) check(h *record.Header) (isRewind bool, err error) {
	if c.isBegun && h.LSN == c.LSN && h.Seq == c.Seq && h.Epoch == c.Epoch {
		return false, nil // nearly all; the rest is for what is rare
	}
	if !c.isBegun {
		if h.Epoch == 0 {
			return false, fmt.Errorf("%w: 0, expected 1 or more", record.ErrEpoch)
		}
		return false, nil
	}
	err = c.Check(*h)
	if err != nil && h.LSN < c.LSN && h.Epoch > c.Epoch && h.Seq <= c.Seq && c.CheckEpoch(*h) == nil {
		return true, nil
	}
	return false, err
}

func (c *chain) advance(h *record.Header, align uint32) {
	c.Advance(*h, align)
	c.isBegun = true
}
