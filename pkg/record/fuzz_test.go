package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzDecode gives Decode any bytes. What it accepts, the encoder must make again, byte for byte but for the fill.
func FuzzDecode(f *testing.F) {
	for _, r := range goldenRecords() {
		raw, err := os.ReadFile(filepath.Join(goldenDir, r.file))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, r.id.Salt, r.id.Align, r.id.RecordLenMax)
	}
	f.Add(make([]byte, 128), uint64(1), uint32(64), uint32(0))
	f.Fuzz(func(t *testing.T, raw []byte, salt uint64, align, lenMax uint32) {
		id := Identity{Salt: salt, Align: align, RecordLenMax: lenMax}
		rec, err := Decode(raw, id)
		if err != nil {
			return
		}
		made, err := AppendTo(nil, rec.Header, rec.Key, rec.Payload, id)
		if err != nil {
			t.Fatalf("encoder refuses %+v: %v", rec.Header, err)
		}
		covered := HeaderLen + len(rec.Key) + len(rec.Payload)
		if !bytes.Equal(made[:covered], rec.Raw[:covered]) || len(made) != len(rec.Raw) {
			t.Fatalf("encoder makes other bytes for %+v", rec.Header)
		}
		if rec.Flags&FlagEpoch != 0 {
			_, _ = DecodeEpochPayload(rec.Payload)
		}
	})
}

// FuzzImage opens and walks any region: any superblock, any head slot, any bytes at the head. The walk must end, stay
// inside the ring, and never go on beyond its capacity. The CRCs of superblock and head slot are mended so that the
// fuzzer reaches what is behind them. The parts are apart so that inputs stay small.
func FuzzImage(f *testing.F) {
	region, err := os.ReadFile(filepath.Join(goldenDir, "ring_small.bin"))
	if err != nil {
		f.Fatal(err)
	}
	superblock := region[SuperblockBOffset : SuperblockBOffset+SuperblockLen]
	head := region[HeadSlotBOffset : HeadSlotBOffset+HeadSlotLen]
	ring := region[DataOffset:]
	const start = 15488 % 8192
	f.Add(superblock, head, append(bytes.Clone(ring[start:]), ring[:512]...), uint64(0))
	f.Add(superblock, head, []byte(nil), uint64(15488))
	blocks, err := os.ReadFile(filepath.Join(goldenDir, "ring_blocks.bin"))
	if err != nil {
		f.Fatal(err)
	}
	ring = blocks[BlocksDataOffset:]
	f.Add(blocks[SuperblockBOffset:SuperblockBOffset+SuperblockLen],
		blocks[BlocksHeadSlotBOffset:BlocksHeadSlotBOffset+HeadSlotLen],
		append(bytes.Clone(ring[13376%8192:]), ring[:1024]...), uint64(16896))
	f.Fuzz(func(t *testing.T, superblock, head, data []byte, durableHint uint64) {
		region := fuzzRegion(superblock, head, data)
		if isBlocks := binary.LittleEndian.Uint32(region[104:]) != 0; !isBlocks {
			binary.LittleEndian.PutUint64(region[DurableHintOffset:], durableHint)
		} else {
			binary.LittleEndian.PutUint64(region[BlocksHintsOffset+8:], durableHint)
			binary.LittleEndian.PutUint32(region[BlocksHintsOffset+blockWordsCRC:],
				CRC32C(0, region[BlocksHintsOffset:BlocksHintsOffset+blockWordsCRC]))
		}
		im, err := OpenImage(bytes.NewReader(region), int64(len(region)))
		if err != nil {
			return
		}
		w := im.Walk()
		for count := uint64(0); ; count++ {
			before := w.Tail().LSN
			rec, err := w.Next()
			if err == io.EOF || errors.Is(err, ErrLost) {
				return
			}
			if err != nil {
				t.Fatalf("walk: %v", err)
			}
			if rec.LSN != before ||
				w.Tail().LSN-im.Head.HeadLSN > im.Superblock.Capacity+uint64(im.Superblock.RecordLenMax) {
				t.Fatalf("walk at lsn %d gave lsn %d", before, rec.LSN)
			}
			if count > im.Superblock.Capacity/AlignMin {
				t.Fatal("the walk does not end")
			}
		}
	})
}

// fuzzRegion puts the parts into a region of at most 64 KiB of ring, data beginning at the head.
func fuzzRegion(superblock, head, data []byte) []byte {
	sb := make([]byte, SuperblockLen)
	copy(sb, superblock)
	binary.LittleEndian.PutUint32(sb[superblockCRC:], CRC32C(0, sb[:superblockCRC]))
	slot := make([]byte, HeadSlotLen)
	copy(slot, head)
	salt := binary.LittleEndian.Uint64(sb[32:])
	binary.LittleEndian.PutUint32(slot[headSlotCRC:], CRC32C(uint32(salt), slot[:headSlotCRC]))
	capacity := min(max(binary.LittleEndian.Uint64(sb[40:]), capacityUnit), 64<<10)
	headOffset, dataOffset := uint64(HeadSlotAOffset), uint64(DataOffset)
	if binary.LittleEndian.Uint32(sb[104:]) != 0 {
		headOffset, dataOffset = BlocksHeadSlotAOffset, BlocksDataOffset
	}
	region := make([]byte, dataOffset+capacity)
	copy(region, sb)
	copy(region[headOffset:], slot)
	ring, at := region[dataOffset:], binary.LittleEndian.Uint64(slot)%capacity
	n := copy(ring[at:], data)
	copy(ring, data[n:])
	return region
}
