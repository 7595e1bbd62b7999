package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The golden files bind this package and the C core to docs/reference/format.md. They are made here:
//
//	go test ./pkg/record -run TestGolden -update
//
// golden.txt has one line "file field value" for each expected field, integers in decimal, bytes in hexadecimal ("-" =
// none), text as it is. C parses the same lines. Changing a golden file is changing the format.
var update = flag.Bool("update", false, "write the golden files instead of reading them")

const goldenDir = "../../rdma/test/golden"

const goldenSalt = 0x0123456789ABCDEF

var goldenUUID = UUID{0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0xf0}

type goldenRecord struct {
	file   string
	id     Identity
	header Header
	key    []byte
	body   []byte
}

func goldenRecords() []goldenRecord {
	id := Identity{Salt: goldenSalt, Align: 64, RecordLenMax: 1024}
	id4096 := Identity{Salt: goldenSalt, Align: 4096, RecordLenMax: 8192}
	order := []byte("8=FIX.4.4\x019=65\x0135=D\x0111=ORD-000042\x0155=FLG\x0154=1\x0138=100\x0144=12.50\x01")
	epoch := EpochPayload{PrevEpoch: 6, StartLSN: 4096, RingUUID: goldenUUID}.Encode()
	full := bytes.Repeat([]byte{0xA5, 0x5A}, 96)
	return []goldenRecord{
		{"record_plain.bin", id, Header{
			LSN: 1 << 40, Epoch: 7, Seq: 99, TimestampNS: 1763700000123456789,
			ClockErrNS: 250, Class: 3, StreamID: 17,
		}, nil, order},
		{"record_key.bin", id, Header{
			LSN: 192, Epoch: 1, Seq: 1, TimestampNS: 1, ClockErrNS: ClockErrUnknown,
			Class: 65535, StreamID: 4294967295,
		}, []byte("ORD-000042"), order},
		{"record_empty.bin", id, Header{LSN: 0, Epoch: 1, Seq: 0, TimestampNS: 1763700000000000000}, nil, nil},
		{
			"record_full_line.bin", id,
			Header{LSN: 256, Epoch: 2, Seq: 5, TimestampNS: 1763700000000000001, Class: 1},
			nil, full,
		},
		{
			"record_align4096.bin", id4096,
			Header{LSN: 8192, Epoch: 2, Seq: 5, TimestampNS: 1763700000000000002},
			[]byte("k"), full,
		},
		{"record_epoch.bin", id, Header{
			Flags: FlagEpoch, LSN: 4096, Epoch: 7, Seq: 12,
			TimestampNS: 1763700000000000003,
			StreamID:    17,
		}, nil, epoch},
		{"record_heartbeat.bin", id, Header{
			Flags: FlagHeartbeat, LSN: 4224, Epoch: 7, Seq: 13,
			TimestampNS: 1763700000000000004, StreamID: 17,
		}, nil, nil},
		{"record_pad.bin", id, Header{
			Flags: FlagPad, LSN: 7744, Epoch: 7, Seq: 14, PayloadLen: 448 - 64,
			TimestampNS: 1763700000000000005, StreamID: 17,
		}, nil, nil},
	}
}

func goldenSuperblock() Superblock {
	return Superblock{
		RingUUID: goldenUUID, Salt: goldenSalt, Capacity: 8192, Align: 64, RecordLenMax: 1024, Generation: 5,
		StreamID:    17,
		WriterEpoch: 3, EpochStartLSN: 15936, EpochStartSeq: 64, CreatedNS: 1763600000000000000,
		EpochOpenedNS: 1763700000000000000, StreamName: "desk7/orders", WriterID: "host=golden pid=42 name=maker",
	}
}

// goldenRing makes a region whose undrained records begin at lsn 15488, go around the end of the ring with a PAD, and
// end before a torn record that a valid, never acknowledged one follows. Superblock A and head slot A are older than B.
func goldenRing() ([]byte, []Record) {
	sb := goldenSuperblock()
	region := make([]byte, DataOffset+sb.Capacity)
	older := sb
	older.Generation, older.WriterEpoch = 4, 2
	copy(region[SuperblockAOffset:], older.Encode())
	copy(region[SuperblockBOffset:], sb.Encode())
	copy(region[HeadSlotAOffset:], HeadSlot{HeadLSN: 15296, HeadSeq: 60, LastEpoch: 2}.Encode(sb.Salt))
	copy(region[HeadSlotBOffset:], HeadSlot{HeadLSN: 15488, HeadSeq: 61, LastEpoch: 2}.Encode(sb.Salt))
	binary.LittleEndian.PutUint64(region[CreditOffset:], 15488)
	binary.LittleEndian.PutUint64(region[TailHintOffset:], 16512)
	binary.LittleEndian.PutUint64(region[DurableHintOffset:], 16320)
	cursor := Cursor{LSN: 15488, Seq: 61, Epoch: 2}
	var records []Record
	add := func(h Header, payload []byte) {
		h.LSN, h.Seq, h.StreamID = cursor.LSN, cursor.Seq, sb.StreamID
		h.TimestampNS = 1763700000000000000 + cursor.LSN
		raw, err := AppendTo(nil, h, nil, payload, sb.Identity())
		if err != nil {
			panic(err)
		}
		copy(region[DataOffset+cursor.LSN%sb.Capacity:], raw)
		rec, err := Decode(raw, sb.Identity())
		if err != nil {
			panic(err)
		}
		records = append(records, rec)
		cursor.Advance(rec.Header, sb.Align)
	}
	add(Header{Epoch: 2, Class: 1}, []byte("last of the second epoch, first"))
	add(Header{Epoch: 2, Class: 1}, bytes.Repeat([]byte("b"), 100))
	add(Header{Epoch: 2, Class: 2}, bytes.Repeat([]byte("c"), 64))
	add(Header{Epoch: 3, Flags: FlagEpoch}, EpochPayload{
		PrevEpoch: 2, StartLSN: cursor.LSN,
		RingUUID: sb.RingUUID,
	}.Encode())
	add(Header{Epoch: 3, Class: 1}, bytes.Repeat([]byte("d"), 30))
	if left := sb.Capacity - cursor.LSN%sb.Capacity; left != sb.Capacity {
		add(Header{Epoch: 3, Flags: FlagPad, PayloadLen: uint32(left - PadStoredLen)}, nil)
	}
	add(Header{Epoch: 3, Class: 1}, bytes.Repeat([]byte("e"), 200))
	add(Header{Epoch: 3, Flags: FlagHeartbeat}, nil)
	whole := len(records)
	add(Header{Epoch: 3, Class: 1}, bytes.Repeat([]byte("torn"), 20))
	torn := records[whole]
	region[DataOffset+torn.LSN%sb.Capacity+HeaderLen+8] ^= 0xFF
	add(Header{Epoch: 3, Class: 1}, []byte("beyond the torn one"))
	return region, records[:whole]
}

// goldenBlocks makes a ring on LBAs of 512 bytes: a commit of one LBA that a PAD fills, one of two with a record across
// them and no PAD, the EPOCH record behind a PAD of its epoch in an LBA whose commit was cut off, a commit whose PAD
// fills LBA and ring, and at the end one that is torn.
func goldenBlocks() ([]byte, Superblock, []Record) {
	sb := goldenSuperblock()
	sb.BlockLen, sb.EpochStartLSN, sb.EpochStartSeq = 512, 15168, 64
	region := make([]byte, BlocksDataOffset+sb.Capacity)
	copy(region[SuperblockBOffset:], sb.Encode())
	copy(region[BlocksHeadSlotAOffset:], HeadSlot{HeadLSN: 13312, HeadSeq: 59, LastEpoch: 2}.Encode(sb.Salt))
	copy(region[BlocksHeadSlotBOffset:], HeadSlot{HeadLSN: 13376, HeadSeq: 60, LastEpoch: 2}.Encode(sb.Salt))
	putWords := func(off int, first, second uint64) {
		binary.LittleEndian.PutUint64(region[off:], first)
		binary.LittleEndian.PutUint64(region[off+8:], second)
		binary.LittleEndian.PutUint32(region[off+blockWordsCRC:], CRC32C(0, region[off:off+blockWordsCRC]))
	}
	putWords(BlocksFenceBOffset, 3, 0)
	putWords(BlocksCreditOffset, 13376, 0)
	putWords(BlocksHintsOffset, 16896, 16896)
	cursor := Cursor{LSN: 13376, Seq: 60, Epoch: 2}
	var records []Record
	add := func(h Header, payloadLen int) {
		h.LSN, h.Seq, h.StreamID, h.Epoch = cursor.LSN, cursor.Seq, sb.StreamID, cursor.Epoch
		h.TimestampNS = 1763700000000000000 + cursor.LSN
		payload := bytes.Repeat([]byte{byte('a' + len(records))}, payloadLen)
		if h.Flags&FlagEpoch != 0 {
			payload = EpochPayload{PrevEpoch: 2, StartLSN: sb.EpochStartLSN, RingUUID: sb.RingUUID}.Encode()
		}
		raw, err := AppendTo(nil, h, nil, payload, sb.Identity())
		if err != nil {
			panic(err)
		}
		copy(region[BlocksDataOffset+cursor.LSN%sb.Capacity:], raw)
		rec, err := Decode(raw, sb.Identity())
		if err != nil {
			panic(err)
		}
		records = append(records, rec)
		cursor.Advance(rec.Header, sb.Align)
	}
	pad := func() {
		add(Header{Flags: FlagPad, PayloadLen: uint32(512 - cursor.LSN%512 - PadStoredLen)}, 0)
	}
	add(Header{Class: 1}, 100) // its LBA is drained in part
	pad()
	add(Header{Class: 1}, 300)
	add(Header{Class: 2}, 564) // across two LBAs, to the end of the second
	add(Header{Class: 1}, 200) // of a commit whose second LBA never came
	cursor.Epoch = 3
	pad()
	add(Header{Flags: FlagEpoch}, 0)
	pad()
	add(Header{Class: 1}, 200)
	pad()
	add(Header{Class: 1}, 30)
	pad()
	add(Header{Flags: FlagHeartbeat}, 0)
	whole := len(records)
	add(Header{Class: 1}, 40)
	region[BlocksDataOffset+records[whole].LSN%sb.Capacity+HeaderLen+8] ^= 0xFF
	return region, sb, records[:whole]
}

// golden collects files and expected lines.
type golden struct {
	files map[string][]byte
	lines []string
}

func (g *golden) write(file, field string, value any) {
	g.lines = append(g.lines, fmt.Sprintf("%s %s %v", file, field, value))
}

func hexOf(raw []byte) string {
	if len(raw) == 0 {
		return "-"
	}
	return hex.EncodeToString(raw)
}

func (g *golden) addRecord(t *testing.T, r goldenRecord) {
	raw, err := AppendTo(nil, r.header, r.key, r.body, r.id)
	if err != nil {
		t.Fatalf("%s: %v", r.file, err)
	}
	g.files[r.file] = raw
	rec, err := Decode(raw, r.id)
	if err != nil {
		t.Fatalf("%s: %v", r.file, err)
	}
	g.write(r.file, "salt", r.id.Salt)
	g.write(r.file, "align", r.id.Align)
	g.write(r.file, "record_len_max", r.id.RecordLenMax)
	g.sayHeader(r.file, "", rec.Header, r.id.Align)
	g.write(r.file, "key", hexOf(rec.Key))
	g.write(r.file, "payload", hexOf(rec.Payload))
}

func (g *golden) sayHeader(file, prefix string, h Header, align uint32) {
	for _, field := range []struct {
		name  string
		value any
	}{
		{"flags", uint16(h.Flags)},
		{"lsn", h.LSN},
		{"epoch", h.Epoch},
		{"payload_len", h.PayloadLen},
		{"seq", h.Seq},
		{"ts_ns", h.TimestampNS},
		{"clock_err_ns", h.ClockErrNS},
		{"class", h.Class},
		{"key_len", h.KeyLen},
		{"stream_id", h.StreamID},
		{"crc32c", h.CRC},
		{"extent", h.Extent(align)},
		{"stored_len", h.StoredLen(align)},
	} {
		g.write(file, prefix+field.name, field.value)
	}
}

func (g *golden) addSuperblock() {
	const file = "superblock.bin"
	s := goldenSuperblock()
	g.files[file] = s.Encode()
	g.saySuperblock(file, s)
}

func (g *golden) saySuperblock(file string, s Superblock) {
	for _, field := range []struct {
		name  string
		value any
	}{
		{"ring_uuid", hexOf(s.RingUUID[:])},
		{"salt", s.Salt},
		{"capacity", s.Capacity},
		{"align", s.Align},
		{"record_len_max", s.RecordLenMax},
		{"generation", s.Generation},
		{"stream_id", s.StreamID},
		{"writer_epoch", s.WriterEpoch},
		{"epoch_start_lsn", s.EpochStartLSN},
		{"epoch_start_seq", s.EpochStartSeq},
		{"created_ns", s.CreatedNS},
		{"epoch_opened_ns", s.EpochOpenedNS},
		{"stream_name", s.StreamName},
		{"writer_id", s.WriterID},
	} {
		g.write(file, field.name, field.value)
	}
	if s.BlockLen != 0 {
		g.write(file, "block_len", s.BlockLen)
	}
}

func (g *golden) addHeadSlot() {
	const file = "head_slot.bin"
	h := HeadSlot{HeadLSN: 1<<33 + 64, HeadSeq: 123456789, LastEpoch: 9}
	g.files[file] = h.Encode(goldenSalt)
	g.write(file, "salt", uint64(goldenSalt))
	g.write(file, "head_lsn", h.HeadLSN)
	g.write(file, "head_seq", h.HeadSeq)
	g.write(file, "last_epoch", h.LastEpoch)
}

func (g *golden) addRing() {
	region, records := goldenRing()
	g.files["ring_small.bin"] = region
	g.sayRing("ring_small.bin", goldenSuperblock(), HeadSlot{HeadLSN: 15488, HeadSeq: 61, LastEpoch: 2}, records)
	blocks, superblock, records := goldenBlocks()
	g.files["ring_blocks.bin"] = blocks
	g.sayRing("ring_blocks.bin", superblock, HeadSlot{HeadLSN: 13376, HeadSeq: 60, LastEpoch: 2}, records)
}

func (g *golden) sayRing(file string, superblock Superblock, head HeadSlot, records []Record) {
	g.saySuperblock(file, superblock)
	last := records[len(records)-1]
	g.write(file, "head_lsn", head.HeadLSN)
	g.write(file, "head_seq", head.HeadSeq)
	g.write(file, "last_epoch", head.LastEpoch)
	g.write(file, "tail_lsn", last.LSN+last.Extent(64))
	g.write(file, "next_seq", last.Seq+1)
	g.write(file, "tail_epoch", last.Epoch)
	g.write(file, "record_count", len(records))
	for i, rec := range records {
		g.sayHeader(file, fmt.Sprintf("record.%d.", i), rec.Header, 64)
		g.write(file, fmt.Sprintf("record.%d.payload", i), hexOf(rec.Payload))
	}
}

func makeGolden(t *testing.T) *golden {
	g := &golden{files: map[string][]byte{}}
	for _, r := range goldenRecords() {
		g.addRecord(t, r)
	}
	g.addEncrypted(t)
	g.addSuperblock()
	g.addHeadSlot()
	g.addRing()
	return g
}

// TestGolden_FilesAreWhatTheEncoderMakes proves that the encoder still writes the committed bytes.
func TestGolden_FilesAreWhatTheEncoderMakes(t *testing.T) {
	g := makeGolden(t)
	g.files["golden.txt"] = []byte(strings.Join(g.lines, "\n") + "\n")
	for name, want := range g.files {
		path := filepath.Join(goldenDir, name)
		if *update {
			if err := os.MkdirAll(goldenDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%v (make it with -update)", err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the encoder makes: %d and %d bytes", path, len(got), len(want))
		}
	}
}

// readGolden reads golden.txt as file → field → value.
func readGolden(t *testing.T) map[string]map[string]string {
	text, err := os.ReadFile(filepath.Join(goldenDir, "golden.txt"))
	if err != nil {
		t.Fatal(err)
	}
	expected := map[string]map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(parts) != 3 {
			t.Fatalf("golden.txt: line %q: expected file, field, value", line)
		}
		if expected[parts[0]] == nil {
			expected[parts[0]] = map[string]string{}
		}
		expected[parts[0]][parts[1]] = parts[2]
	}
	return expected
}

func number(t *testing.T, fields map[string]string, name string) uint64 {
	var n uint64
	if _, err := fmt.Sscan(fields[name], &n); err != nil {
		t.Fatalf("field %s = %q: %v", name, fields[name], err)
	}
	return n
}

// TestGolden_DecoderReadsThem reads the committed bytes and compares every field with golden.txt, without the encoder.
func TestGolden_DecoderReadsThem(t *testing.T) {
	expected := readGolden(t)
	for file, fields := range expected {
		raw, err := os.ReadFile(filepath.Join(goldenDir, file))
		if err != nil {
			t.Fatal(err)
		}
		got := &golden{}
		switch {
		case strings.HasPrefix(file, "record_"):
			id := Identity{
				Salt: number(t, fields, "salt"), Align: uint32(number(t, fields, "align")),
				RecordLenMax: uint32(number(t, fields, "record_len_max")),
			}
			rec, err := Decode(raw, id)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			got.sayHeader(file, "", rec.Header, id.Align)
			got.write(file, "key", hexOf(rec.Key))
			got.write(file, "payload", hexOf(rec.Payload))
			if rec.IsEncrypted() {
				if rec, err = NewDecrypter([]EncryptionKey{testKey}).Decrypt(rec); err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				got.sayPlain(file, rec.Key, rec.Payload)
			}
		case file == "superblock.bin":
			s, err := DecodeSuperblock(raw)
			if err != nil {
				t.Fatal(err)
			}
			got.saySuperblock(file, s)
		case file == "head_slot.bin":
			h, err := DecodeHeadSlot(raw, number(t, fields, "salt"))
			if err != nil {
				t.Fatal(err)
			}
			got.write(file, "head_lsn", h.HeadLSN)
			got.write(file, "head_seq", h.HeadSeq)
			got.write(file, "last_epoch", h.LastEpoch)
		case strings.HasPrefix(file, "ring_"):
			got.walk(t, file, raw)
		}
		for _, line := range got.lines {
			parts := strings.SplitN(line, " ", 3)
			if fields[parts[1]] != parts[2] {
				t.Errorf("%s %s: got %s, expected %s", file, parts[1], parts[2], fields[parts[1]])
			}
		}
		if len(got.lines) < 3 {
			t.Errorf("%s: nothing was compared", file)
		}
	}
}

func (g *golden) walk(t *testing.T, file string, raw []byte) {
	im, err := OpenImage(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	g.saySuperblock(file, im.Superblock)
	g.write(file, "head_lsn", im.Head.HeadLSN)
	g.write(file, "head_seq", im.Head.HeadSeq)
	g.write(file, "last_epoch", im.Head.LastEpoch)
	w, count := im.Walk(), 0
	for {
		rec, err := w.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		g.sayHeader(file, fmt.Sprintf("record.%d.", count), rec.Header, 64)
		g.write(file, fmt.Sprintf("record.%d.payload", count), hexOf(rec.Payload))
		count++
	}
	g.write(file, "record_count", count)
	g.write(file, "tail_lsn", w.Tail().LSN)
	g.write(file, "next_seq", w.Tail().Seq)
	g.write(file, "tail_epoch", w.Tail().Epoch)
	if !errors.Is(w.Reason(), ErrCRC) {
		t.Errorf("reason at the tail: %v, expected %v", w.Reason(), ErrCRC)
	}
}
