// Package record decodes and encodes the bytes of docs/reference/format.md: records, EPOCH payloads, superblocks, head
// slots, and the walk over a ring image. It is pure Go, does no I/O of its own and never panics on foreign bytes.
//
// The C core holds the same format in rdma/src/ring/record.h and layout.h; the golden files in rdma/test/golden bind
// both.
package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Sizes and constants of a record (docs/reference/format.md section 2).
const (
	Magic   = 0x31474C46 // "FLG1" as a little-endian word
	Version = 1
	// VersionEncrypted is that of a record with FlagEncrypted, and of no other.
	VersionEncrypted = 2
	HeaderLen        = 56
	TrailerLen       = 8
	OverheadLen      = HeaderLen + TrailerLen
	PadStoredLen     = 64
	ClockErrUnknown  = 0xFFFFFFFF
	AlignMin         = 64
	AlignMax         = 4096

	crcOffset = 52
)

// Flags mark the records that are farlog's own, and those that are encrypted.
type Flags uint16

// The flags in use; other bits are reserved and ignored.
const (
	FlagPad       Flags = 1
	FlagEpoch     Flags = 2
	FlagHeartbeat Flags = 4
	FlagSeal      Flags = 8
	FlagGap       Flags = 16
	FlagEncrypted Flags = 32 // of an application's record: see Decrypter

	flagsControl = FlagPad | FlagEpoch | FlagHeartbeat | FlagSeal | FlagGap
	flagsKnown   = flagsControl | FlagEncrypted
)

// IsControl reports whether the record is farlog's own and not the application's.
func (f Flags) IsControl() bool { return f&flagsControl != 0 }

// version is that of a record with these flags: a program that does not know encrypted ones takes none for a plain one.
func (f Flags) version() byte {
	if f&FlagEncrypted != 0 {
		return VersionEncrypted
	}
	return Version
}

// IsPad reports whether the record is a PAD, which has no seq of its own and is stored as 64 bytes.
func (f Flags) IsPad() bool { return f&FlagPad != 0 }

// String names the flags in the words of the format page, "-" for none.
func (f Flags) String() string {
	text := ""
	for _, named := range flagNames {
		if f&named.flag != 0 {
			text += "|" + named.name
		}
	}
	if rest := f &^ flagsKnown; rest != 0 {
		text += fmt.Sprintf("|%#x", uint16(rest))
	}
	if text == "" {
		return "-"
	}
	return text[1:]
}

var flagNames = []struct {
	flag Flags
	name string
}{
	{FlagPad, "PAD"},
	{FlagEpoch, "EPOCH"},
	{FlagHeartbeat, "HEARTBEAT"},
	{FlagSeal, "SEAL"},
	{FlagGap, "GAP"},
	{FlagEncrypted, "ENCRYPTED"},
}

// What can be wrong with a record. Decode wraps them with the values found; use errors.Is.
var (
	ErrNothing   = errors.New("nothing here: the bytes are zero")
	ErrShort     = errors.New("bytes end before the record does")
	ErrMagic     = errors.New("not a record: wrong magic")
	ErrVersion   = errors.New("unknown record version")
	ErrHeaderLen = errors.New("unknown header length")
	ErrLength    = errors.New("length out of range")
	ErrTrailer   = errors.New("trailer does not match")
	ErrCRC       = errors.New("CRC does not match")
	ErrIdentity  = errors.New("ring identity out of range")
)

// Identity is what the records of one ring are checked against.
type Identity struct {
	Salt         uint64
	Align        uint32 // a power of two from 64 to 4096
	RecordLenMax uint32 // largest extent in bytes; 0 = not limited
}

// Validate reports whether Align can be that of a ring.
func (id Identity) Validate() error {
	if id.Align < AlignMin || id.Align > AlignMax || id.Align&(id.Align-1) != 0 {
		return fmt.Errorf("%w: align %d, expected a power of two from %d to %d", ErrIdentity, id.Align, AlignMin,
			AlignMax)
	}
	return nil
}

// Header holds the fields of a record's header. KeyLen and PayloadLen are set by AppendTo from the slices it is given.
type Header struct {
	Flags       Flags
	LSN         uint64
	Epoch       uint32
	PayloadLen  uint32 // of a PAD: its extent - 64
	Seq         uint64
	TimestampNS uint64 // UTC since 1970
	ClockErrNS  uint32 // ClockErrUnknown = unknown
	Class       uint16
	KeyLen      uint16
	StreamID    uint32
	CRC         uint32
}

// Record is a header and its bytes. Key, Payload and Raw are slices into the bytes that were decoded; nothing is
// copied.
type Record struct {
	Header
	Key     []byte
	Payload []byte // empty for a PAD
	Raw     []byte // the stored form: the whole extent, or the 64 bytes of a PAD
}

// Fill is the part of Raw between payload and trailer, at most align-1 bytes: written zero and not covered by the CRC,
// so that Decode does not look at it. Empty for a PAD.
func (r Record) Fill() []byte {
	from, to := r.FillBounds(len(r.Raw))
	return r.Raw[from:to]
}

// FillBounds are the offsets of the fill in a record whose stored form has storedLen bytes.
func (h Header) FillBounds(storedLen int) (from, to int) {
	return HeaderLen + h.bodyLen(), storedLen - TrailerLen
}

// Extent is the number of ring bytes that the record takes.
func (h Header) Extent(align uint32) uint64 {
	if h.Flags.IsPad() {
		return uint64(h.PayloadLen) + PadStoredLen
	}
	return Extent(align, int(h.KeyLen), int(h.PayloadLen))
}

// StoredLen is the number of bytes that the record takes in a batch or a segment: its extent, or 64 for a PAD.
func (h Header) StoredLen(align uint32) uint64 {
	if h.Flags.IsPad() {
		return PadStoredLen
	}
	return h.Extent(align)
}

// Time is the record's timestamp in UTC.
func (h Header) Time() time.Time { return time.Unix(0, int64(h.TimestampNS)).UTC() }

// TimestampOf is a time as records have it: from 1970 until 2262. A time outside of that is the first or the last one.
func TimestampOf(t time.Time) uint64 {
	switch {
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	case t.Before(time.Unix(0, 0)):
		return 0
	}
	return uint64(t.UnixNano())
}

// Extent is the number of ring bytes of a record with a key and a payload of these lengths.
func Extent(align uint32, keyLen, payloadLen int) uint64 {
	return roundUp(OverheadLen+uint64(keyLen)+uint64(payloadLen), uint64(align))
}

func roundUp(n, align uint64) uint64 { return (n + align - 1) &^ (align - 1) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C continues a CRC-32C from seed over bytes.
func CRC32C(seed uint32, bytes []byte) uint32 { return crc32.Update(seed, castagnoli, bytes) }

// ParseHeader reads the header at the start of raw and checks magic, version and header length, and nothing else: the
// cheap step for walking bytes that somebody has checked. Errors: ErrShort, ErrNothing, ErrMagic, ErrVersion,
// ErrHeaderLen.
func ParseHeader(raw []byte) (Header, error) {
	if len(raw) < HeaderLen {
		return Header{}, fmt.Errorf("%w: %d bytes left, expected at least %d", ErrShort, len(raw), HeaderLen)
	}
	word, flags := binary.LittleEndian.Uint32(raw), Flags(binary.LittleEndian.Uint16(raw[6:]))
	if word != Magic || raw[4] != flags.version() || raw[5] != HeaderLen/8 {
		return Header{}, headerError(raw[:HeaderLen])
	}
	return Header{
		Flags:       flags,
		LSN:         binary.LittleEndian.Uint64(raw[8:]),
		Epoch:       binary.LittleEndian.Uint32(raw[16:]),
		PayloadLen:  binary.LittleEndian.Uint32(raw[20:]),
		Seq:         binary.LittleEndian.Uint64(raw[24:]),
		TimestampNS: binary.LittleEndian.Uint64(raw[32:]),
		ClockErrNS:  binary.LittleEndian.Uint32(raw[40:]),
		Class:       binary.LittleEndian.Uint16(raw[44:]),
		KeyLen:      binary.LittleEndian.Uint16(raw[46:]),
		StreamID:    binary.LittleEndian.Uint32(raw[48:]),
		CRC:         binary.LittleEndian.Uint32(raw[52:]),
	}, nil
}

func headerError(raw []byte) error {
	switch {
	case isZero(raw):
		return ErrNothing
	case binary.LittleEndian.Uint32(raw) != Magic:
		return fmt.Errorf("%w: %#08x, expected %#08x", ErrMagic, binary.LittleEndian.Uint32(raw), Magic)
	case raw[4] != Flags(binary.LittleEndian.Uint16(raw[6:])).version():
		return fmt.Errorf("%w: %d, expected %d, or %d of an encrypted record", ErrVersion, raw[4], Version,
			VersionEncrypted)
	default:
		return fmt.Errorf("%w: %d bytes, expected %d", ErrHeaderLen, int(raw[5])*8, HeaderLen)
	}
}

func isZero(raw []byte) bool { return len(bytes.TrimLeft(raw, "\x00")) == 0 }

// Decode reads and fully checks the record at the start of raw, which may be longer than the record. Whether the record
// belongs where it was found (lsn, seq, epoch) is the question of a Cursor. Errors: those of ParseHeader, ErrLength,
// ErrTrailer, ErrCRC, ErrIdentity. Allocates only for errors.
func Decode(raw []byte, id Identity) (Record, error) {
	if err := id.Validate(); err != nil {
		return Record{}, err
	}
	header, err := ParseHeader(raw)
	if err != nil {
		return Record{}, err
	}
	if err := header.checkLength(id); err != nil {
		return Record{}, err
	}
	stored := header.StoredLen(id.Align)
	if stored > uint64(len(raw)) {
		return Record{}, fmt.Errorf("%w: %d bytes left, the record has %d", ErrShort, len(raw), stored)
	}
	raw = raw[:stored:stored]
	if trailer := binary.LittleEndian.Uint64(raw[stored-TrailerLen:]); trailer != header.LSN^id.Salt {
		return Record{}, fmt.Errorf("%w: %#x, expected %#x", ErrTrailer, trailer, header.LSN^id.Salt)
	}
	body := raw[HeaderLen : HeaderLen+header.bodyLen()]
	if crc := bodyCRC(raw, body, id); crc != header.CRC {
		return Record{}, fmt.Errorf("%w: header says %#08x, bytes give %#08x", ErrCRC, header.CRC, crc)
	}
	keyLen := int(header.KeyLen)
	return Record{Header: header, Key: body[:keyLen:keyLen], Payload: body[keyLen:], Raw: raw}, nil
}

func bodyCRC(raw, body []byte, id Identity) uint32 {
	return CRC32C(CRC32C(uint32(id.Salt), raw[:crcOffset]), body)
}

func (h Header) bodyLen() int {
	if h.Flags.IsPad() {
		return 0
	}
	return int(h.KeyLen) + int(h.PayloadLen)
}

func (h Header) checkLength(id Identity) error {
	extent := h.Extent(id.Align)
	switch {
	case id.RecordLenMax != 0 && extent > uint64(id.RecordLenMax):
		return fmt.Errorf("%w: extent %d, expected at most %d", ErrLength, extent, id.RecordLenMax)
	case h.Flags.IsPad() && h.KeyLen != 0:
		return fmt.Errorf("%w: PAD with a key of %d bytes, expected 0", ErrLength, h.KeyLen)
	case extent%uint64(id.Align) != 0:
		return fmt.Errorf("%w: PAD with extent %d, expected a multiple of %d", ErrLength, extent, id.Align)
	}
	return nil
}
