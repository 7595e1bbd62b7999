package record

import (
	"bytes"
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

// FuzzImage opens and walks any region. The walk must end, stay inside the ring, and never go on beyond its own capacity.
// The superblock's CRC is mended so that the fuzzer reaches what is behind it.
func FuzzImage(f *testing.F) {
	region, err := os.ReadFile(filepath.Join(goldenDir, "ring_small.bin"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(region, false)
	f.Add(region[:DataOffset], true)
	f.Fuzz(func(t *testing.T, region []byte, mend bool) {
		if mend && len(region) >= DataOffset {
			crc := CRC32C(0, region[:superblockCRC])
			region[508], region[509], region[510], region[511] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
		}
		im, err := OpenImage(bytes.NewReader(region), int64(len(region)))
		if err != nil {
			return
		}
		w := im.Walk()
		for count := 0; ; count++ {
			before := w.Tail().LSN
			rec, err := w.Next()
			if err == io.EOF || errors.Is(err, ErrLost) {
				return
			}
			if err != nil {
				t.Fatalf("walk: %v", err)
			}
			if rec.LSN != before || w.Tail().LSN-im.Head.HeadLSN > im.Superblock.Capacity+uint64(im.Superblock.RecordLenMax) {
				t.Fatalf("walk at lsn %d gave lsn %d", before, rec.LSN)
			}
			if uint64(count) > im.Superblock.Capacity/AlignMin {
				t.Fatal("the walk does not end")
			}
		}
	})
}
