package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Offsets and sizes of a region with one ring (docs/reference/format.md section 3).
const (
	SuperblockAOffset   = 0x0000
	SuperblockBOffset   = 0x1000
	FenceOffset         = 0x2000
	HeadSlotAOffset     = 0x2040
	HeadSlotBOffset     = 0x2080
	CreditOffset        = 0x20C0
	TailHintOffset      = 0x2100
	DurableHintOffset   = 0x2108
	DataOffset          = 0x3000
	RegionVersion       = 2 // of a ring in memory; on blocks, one whose records begin on LBAs
	RegionVersionPacked = 3 // on blocks: records follow one another, and a commit ends with an LBA
	// RegionVersionEncrypted is added to either where applications' records are encrypted.
	RegionVersionEncrypted = 2
	SuperblockLen          = 512
	SuperblockMagic        = "FARLOGSB"
	HeadSlotLen            = 32
	StreamNameLen          = 64
	WriterIDLen            = 128
	capacityUnit           = 4096
	superblockCRC          = 508
	headSlotCRC            = 28
	capacityRecordsMin     = 4 // a ring holds at least this many records of the largest size
)

// Offsets of a ring on blocks, where each of these has an LBA of its own.
const (
	BlocksHeadSlotAOffset = 0x2000
	BlocksHeadSlotBOffset = 0x3000
	BlocksFenceAOffset    = 0x4000
	BlocksFenceBOffset    = 0x5000
	BlocksCreditOffset    = 0x6000
	BlocksHintsOffset     = 0x7000
	BlocksDataOffset      = 0x8000
	blockWordsCRC         = 28
)

// What can be wrong with the metadata of a ring.
var (
	ErrSuperblock = errors.New("no valid superblock")
	ErrHeadSlot   = errors.New("no valid head slot")
)

// UUID is the identity of a ring or a store.
type UUID [16]byte

// String writes the identity in the usual form of five groups.
func (u UUID) String() string {
	text := hex.EncodeToString(u[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// ParseUUID reads the form that String writes.
func ParseUUID(text string) (UUID, error) {
	var u UUID
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil || len(raw) != len(u) {
		return u, fmt.Errorf("uuid %q: expected 32 hexadecimal digits, with or without dashes", text)
	}
	copy(u[:], raw)
	return u, nil
}

// Superblock names a ring and its writer's epoch.
type Superblock struct {
	RingUUID      UUID
	Salt          uint64
	Capacity      uint64
	Align         uint32
	RecordLenMax  uint32
	Generation    uint64
	StreamID      uint32
	WriterEpoch   uint32 // 0 = never written to
	EpochStartLSN uint64
	EpochStartSeq uint64
	CreatedNS     uint64
	EpochOpenedNS uint64
	BlockLen      uint32 // of a ring on blocks: the LBA that it was made for; 0 = in memory
	Encryption    Encryption
	StreamName    string
	WriterID      string
	Floor         HeadSlot // of one of several members: where undrained records began when the epoch was opened; else 0
}

// Identity is what the records of this ring are checked against.
func (s Superblock) Identity() Identity {
	return Identity{Salt: s.Salt, Align: s.Align, RecordLenMax: s.RecordLenMax}
}

// DecodeSuperblock reads and checks the first 512 bytes of a superblock. Errors: ErrShort, ErrSuperblock with what was
// found.
func DecodeSuperblock(raw []byte) (Superblock, error) {
	if len(raw) < SuperblockLen {
		return Superblock{}, fmt.Errorf("%w: %d bytes, expected %d", ErrShort, len(raw), SuperblockLen)
	}
	raw = raw[:SuperblockLen]
	if err := checkSuperblockFrame(raw); err != nil {
		return Superblock{}, err
	}
	s := Superblock{
		RingUUID:      UUID(raw[16:32]),
		Salt:          binary.LittleEndian.Uint64(raw[32:]),
		Capacity:      binary.LittleEndian.Uint64(raw[40:]),
		Align:         binary.LittleEndian.Uint32(raw[48:]),
		RecordLenMax:  binary.LittleEndian.Uint32(raw[52:]),
		Generation:    binary.LittleEndian.Uint64(raw[56:]),
		StreamID:      binary.LittleEndian.Uint32(raw[64:]),
		WriterEpoch:   binary.LittleEndian.Uint32(raw[68:]),
		EpochStartLSN: binary.LittleEndian.Uint64(raw[72:]),
		EpochStartSeq: binary.LittleEndian.Uint64(raw[80:]),
		CreatedNS:     binary.LittleEndian.Uint64(raw[88:]),
		EpochOpenedNS: binary.LittleEndian.Uint64(raw[96:]),
		BlockLen:      binary.LittleEndian.Uint32(raw[104:]),
		Encryption:    Encryption(binary.LittleEndian.Uint32(raw[108:])),
		StreamName:    unpad(raw[128:192]),
		WriterID:      unpad(raw[192:320]),
		Floor: HeadSlot{
			HeadLSN: binary.LittleEndian.Uint64(raw[320:]), HeadSeq: binary.LittleEndian.Uint64(raw[328:]),
			LastEpoch: binary.LittleEndian.Uint32(raw[336:]),
		},
	}
	if err := s.checkRanges(); err != nil {
		return s, err
	}
	return s, s.checkVersion(binary.LittleEndian.Uint32(raw[8:]))
}

func checkSuperblockFrame(raw []byte) error {
	version, length := binary.LittleEndian.Uint32(raw[8:]), binary.LittleEndian.Uint32(raw[12:])
	switch {
	case string(raw[:8]) != SuperblockMagic:
		return fmt.Errorf("%w: magic %q, expected %q", ErrSuperblock, raw[:8], SuperblockMagic)
	case version < RegionVersion || version > RegionVersionPacked+RegionVersionEncrypted:
		return fmt.Errorf("%w: version %d, expected %d or, on blocks, %d, and %d more where records are encrypted",
			ErrSuperblock, version, RegionVersion, RegionVersionPacked, RegionVersionEncrypted)
	case length != SuperblockLen:
		return fmt.Errorf("%w: length %d, expected %d", ErrSuperblock, length, SuperblockLen)
	}
	said, crc := binary.LittleEndian.Uint32(raw[superblockCRC:]), CRC32C(0, raw[:superblockCRC])
	if said != crc {
		return fmt.Errorf("%w: CRC %#08x, bytes give %#08x", ErrSuperblock, said, crc)
	}
	return nil
}

func (s Superblock) checkRanges() error {
	if err := s.Identity().Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrSuperblock, err)
	}
	switch {
	case s.Capacity == 0 || s.Capacity%capacityUnit != 0:
		return fmt.Errorf("%w: capacity %d, expected a multiple of %d", ErrSuperblock, s.Capacity, capacityUnit)
	case s.RecordLenMax < AlignMin || uint64(s.RecordLenMax)*capacityRecordsMin > s.Capacity:
		return fmt.Errorf("%w: record_len_max %d, expected from %d to a quarter of capacity %d",
			ErrSuperblock, s.RecordLenMax, AlignMin, s.Capacity)
	}
	return nil
}

// version is what a ring of this kind is made with.
func (s Superblock) version() uint32 {
	version := uint32(RegionVersion)
	if s.BlockLen != 0 {
		version = RegionVersionPacked
	}
	if s.Encryption != EncryptionNone {
		version += RegionVersionEncrypted
	}
	return version
}

// checkVersion: who packs records must not meet one that takes each PAD for the ring's end, nor the other way round.
func (s Superblock) checkVersion(version uint32) error {
	switch {
	case s.Encryption > EncryptionAES256GCM:
		return fmt.Errorf("%w: encryption %d, expected at most %d", ErrSuperblock, s.Encryption, EncryptionAES256GCM)
	case s.BlockLen == 0 && version == s.version():
		return nil
	case s.BlockLen&(s.BlockLen-1) != 0 || s.BlockLen > AlignMax || s.RecordLenMax < s.BlockLen:
		return fmt.Errorf("%w: block_len %d, expected a power of two up to %d and record_len_max %d", ErrSuperblock,
			s.BlockLen, AlignMax, s.RecordLenMax)
	case version == s.version() || version == RegionVersion && s.Encryption == EncryptionNone && s.Align >= s.BlockLen:
		return nil
	}
	return fmt.Errorf("%w: version %d with align %d and block_len %d, expected version %d", ErrSuperblock, version,
		s.Align, s.BlockLen, s.version())
}

// Encode makes the 512 bytes of the superblock. StreamName and WriterID are cut at their field's length.
func (s Superblock) Encode() []byte {
	raw := make([]byte, SuperblockLen)
	copy(raw, SuperblockMagic)
	binary.LittleEndian.PutUint32(raw[8:], s.version())
	binary.LittleEndian.PutUint32(raw[12:], SuperblockLen)
	copy(raw[16:32], s.RingUUID[:])
	binary.LittleEndian.PutUint64(raw[32:], s.Salt)
	binary.LittleEndian.PutUint64(raw[40:], s.Capacity)
	binary.LittleEndian.PutUint32(raw[48:], s.Align)
	binary.LittleEndian.PutUint32(raw[52:], s.RecordLenMax)
	binary.LittleEndian.PutUint64(raw[56:], s.Generation)
	binary.LittleEndian.PutUint32(raw[64:], s.StreamID)
	binary.LittleEndian.PutUint32(raw[68:], s.WriterEpoch)
	binary.LittleEndian.PutUint64(raw[72:], s.EpochStartLSN)
	binary.LittleEndian.PutUint64(raw[80:], s.EpochStartSeq)
	binary.LittleEndian.PutUint64(raw[88:], s.CreatedNS)
	binary.LittleEndian.PutUint64(raw[96:], s.EpochOpenedNS)
	binary.LittleEndian.PutUint32(raw[104:], s.BlockLen)
	binary.LittleEndian.PutUint32(raw[108:], uint32(s.Encryption))
	copy(raw[128:192], s.StreamName)
	copy(raw[192:320], s.WriterID)
	binary.LittleEndian.PutUint32(raw[superblockCRC:], CRC32C(0, raw[:superblockCRC]))
	return raw
}

// decodeBlockWords reads the two words of a block of fence, credit or hints; zero where nothing was stored yet.
func decodeBlockWords(raw []byte) [2]uint64 {
	if binary.LittleEndian.Uint32(raw[blockWordsCRC:]) != CRC32C(0, raw[:blockWordsCRC]) {
		return [2]uint64{}
	}
	return [2]uint64{binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])}
}

func unpad(raw []byte) string {
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}

// HeadSlot is the drain's word on what is stored.
type HeadSlot struct {
	HeadLSN   uint64 // first LSN that is not yet in the store
	HeadSeq   uint64 // seq of the record that begins there
	LastEpoch uint32 // of the last record below HeadLSN; 0 = none
}

// DecodeHeadSlot reads and checks the first 32 bytes of a head slot. Errors: ErrShort, ErrHeadSlot.
func DecodeHeadSlot(raw []byte, salt uint64) (HeadSlot, error) {
	if len(raw) < HeadSlotLen {
		return HeadSlot{}, fmt.Errorf("%w: %d bytes, expected %d", ErrShort, len(raw), HeadSlotLen)
	}
	if isZero(raw[:HeadSlotLen]) {
		return HeadSlot{}, fmt.Errorf("%w: blank", ErrHeadSlot)
	}
	said, crc := binary.LittleEndian.Uint32(raw[headSlotCRC:]), CRC32C(uint32(salt), raw[:headSlotCRC])
	if said != crc {
		return HeadSlot{}, fmt.Errorf("%w: CRC %#08x, bytes give %#08x", ErrHeadSlot, said, crc)
	}
	return HeadSlot{
		HeadLSN:   binary.LittleEndian.Uint64(raw),
		HeadSeq:   binary.LittleEndian.Uint64(raw[8:]),
		LastEpoch: binary.LittleEndian.Uint32(raw[16:]),
	}, nil
}

// Encode makes the first 32 bytes of the slot.
func (h HeadSlot) Encode(salt uint64) []byte {
	raw := make([]byte, HeadSlotLen)
	binary.LittleEndian.PutUint64(raw, h.HeadLSN)
	binary.LittleEndian.PutUint64(raw[8:], h.HeadSeq)
	binary.LittleEndian.PutUint32(raw[16:], h.LastEpoch)
	binary.LittleEndian.PutUint32(raw[headSlotCRC:], CRC32C(uint32(salt), raw[:headSlotCRC]))
	return raw
}
