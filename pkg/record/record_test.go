package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCRC32C_CheckValueOfTheFormatPage(t *testing.T) {
	if got := CRC32C(0, []byte("123456789")); got != 0xE3069283 {
		t.Fatalf("got %#x, expected 0xE3069283", got)
	}
	if got := CRC32C(CRC32C(77, []byte("1234")), []byte("56789")); got != CRC32C(77, []byte("123456789")) {
		t.Fatalf("continued CRC %#x differs from the whole", got)
	}
}

func drawIdentity(t *rapid.T) Identity {
	return Identity{
		Salt:         rapid.Uint64().Draw(t, "salt"),
		Align:        AlignMin << rapid.IntRange(0, 6).Draw(t, "align shift"),
		RecordLenMax: 1 << 20,
	}
}

func drawRecord(t *rapid.T, id Identity) (Header, []byte, []byte, []byte) {
	h := Header{
		LSN:         rapid.Uint64().Draw(t, "lsn"),
		Epoch:       rapid.Uint32().Draw(t, "epoch"),
		Seq:         rapid.Uint64().Draw(t, "seq"),
		TimestampNS: rapid.Uint64().Draw(t, "ts"),
		ClockErrNS:  rapid.Uint32().Draw(t, "clock error"),
		Class:       rapid.Uint16().Draw(t, "class"),
		StreamID:    rapid.Uint32().Draw(t, "stream"),
		Flags:       Flags(rapid.Uint16().Draw(t, "flags")),
	}
	var key, payload []byte
	if h.Flags.IsPad() {
		h.PayloadLen = uint32(rapid.IntRange(0, 4).Draw(t, "pad units"))*id.Align + id.Align - PadStoredLen
	} else {
		key = rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "key")
		payload = rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "payload")
	}
	raw, err := AppendTo(nil, h, key, payload, id)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return h, key, payload, raw
}

func TestDecode_GivesBackWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawIdentity(t)
		h, key, payload, raw := drawRecord(t, id)
		if uint64(len(raw)) != h.storedWith(key, payload, id) {
			t.Fatalf("stored %d bytes", len(raw))
		}
		tail := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "what follows")
		rec, err := Decode(append(bytes.Clone(raw), tail...), id)
		if err != nil {
			t.Fatal(err)
		}
		h.KeyLen, h.CRC = uint16(len(key)), rec.CRC
		if !h.Flags.IsPad() {
			h.PayloadLen = uint32(len(payload))
		}
		if rec.Header != h || !bytes.Equal(rec.Key, key) || !bytes.Equal(rec.Payload, payload) ||
			!bytes.Equal(rec.Raw, raw) {
			t.Fatalf("got %+v, expected %+v", rec, h)
		}
	})
}

func (h Header) storedWith(key, payload []byte, id Identity) uint64 {
	if h.Flags.IsPad() {
		return PadStoredLen
	}
	return Extent(id.Align, len(key), len(payload))
}

// TestDecode_AnyFlippedBitIsFound proves that no bit of header, key, payload or trailer can change unseen. Zero fill is
// not covered by the CRC and means nothing.
func TestDecode_AnyFlippedBitIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := drawIdentity(t)
		h, key, payload, raw := drawRecord(t, id)
		covered := HeaderLen
		if !h.Flags.IsPad() {
			covered += len(key) + len(payload)
		}
		bit := rapid.IntRange(0, (covered+TrailerLen)*8-1).Draw(t, "bit")
		at := bit / 8
		if at >= covered {
			at = len(raw) - TrailerLen + (at - covered)
		}
		raw[at] ^= 1 << (bit % 8)
		if rec, err := Decode(raw, id); err == nil {
			t.Fatalf("bit %d of byte %d flipped unseen: %+v", bit%8, at, rec.Header)
		}
	})
}

func TestDecode_NamesWhatIsWrong(t *testing.T) {
	id := Identity{Salt: 5, Align: 64, RecordLenMax: 256}
	whole, err := AppendTo(nil, Header{LSN: 64, Epoch: 1}, nil, []byte("payload"), id)
	if err != nil {
		t.Fatal(err)
	}
	pad, err := AppendTo(nil, Header{LSN: 64, Epoch: 1, Flags: FlagPad, PayloadLen: 64}, nil, nil, id)
	if err != nil {
		t.Fatal(err)
	}
	change := func(raw []byte, at int, value byte) []byte {
		raw = bytes.Clone(raw)
		raw[at] = value
		return raw
	}
	for _, c := range []struct {
		name string
		raw  []byte
		id   Identity
		want error
	}{
		{"zero", make([]byte, 128), id, ErrNothing},
		{"empty", nil, id, ErrShort},
		{"cut in the header", whole[:55], id, ErrShort},
		{"cut in the body", whole[:127], id, ErrShort},
		{"magic", change(whole, 0, 'X'), id, ErrMagic},
		{"version", change(whole, 4, 2), id, ErrVersion},
		{"header length", change(whole, 5, 8), id, ErrHeaderLen},
		{"payload longer than the maximum", change(whole, 21, 0xFF), id, ErrLength},
		{"pad not a multiple", change(pad, 20, 65), id, ErrLength},
		{"pad with a key", change(pad, 46, 1), id, ErrLength},
		{"trailer", change(whole, 127, 1), id, ErrTrailer},
		{"payload", change(whole, 56, 'P'), id, ErrCRC},
		{"crc", change(whole, 52, whole[52]+1), id, ErrCRC},
		{"salt of another ring", whole, Identity{Salt: 6, Align: 64, RecordLenMax: 256}, ErrTrailer},
		{"align zero", whole, Identity{Salt: 5}, ErrIdentity},
		{"align not a power of two", whole, Identity{Salt: 5, Align: 96}, ErrIdentity},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Decode(c.raw, c.id); !errors.Is(err, c.want) {
				t.Errorf("got %v, expected %v", err, c.want)
			}
		})
	}
}

func TestAppendTo_RefusesWhatDecodeWouldRefuse(t *testing.T) {
	id := Identity{Salt: 5, Align: 64, RecordLenMax: 256}
	for _, c := range []struct {
		name         string
		h            Header
		key, payload []byte
	}{
		{"record over the maximum", Header{}, nil, make([]byte, 193)},
		{"key over 65535", Header{}, make([]byte, 65536), nil},
		{"pad with a payload", Header{Flags: FlagPad}, nil, []byte("x")},
		{"pad not a multiple", Header{Flags: FlagPad, PayloadLen: 3}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dst := []byte("kept")
			got, err := AppendTo(dst, c.h, c.key, c.payload, id)
			if !errors.Is(err, ErrLength) || string(got) != "kept" {
				t.Errorf("got %q, %v; expected %v", got, err, ErrLength)
			}
		})
	}
}

func TestCursor_AcceptsOnlyTheNextRecord(t *testing.T) {
	at := Cursor{LSN: 640, Seq: 9, Epoch: 3, EpochMax: 5}
	for _, c := range []struct {
		name string
		h    Header
		want error
	}{
		{"next", Header{LSN: 640, Seq: 9, Epoch: 3}, nil},
		{"older lap", Header{LSN: 576, Seq: 9, Epoch: 3}, ErrLSN},
		{"hole in seq", Header{LSN: 640, Seq: 10, Epoch: 3}, ErrSeq},
		{"older epoch", Header{LSN: 640, Seq: 9, Epoch: 2}, ErrEpoch},
		{"epoch zero", Header{LSN: 640, Seq: 9}, ErrEpoch},
		{"newer epoch without EPOCH", Header{LSN: 640, Seq: 9, Epoch: 4}, ErrEpoch},
		{"newer epoch", Header{LSN: 640, Seq: 9, Epoch: 4, Flags: FlagEpoch}, nil},
		{"newer epoch, its PAD", Header{LSN: 640, Seq: 9, Epoch: 4, Flags: FlagPad}, nil},
		{"epoch never persisted", Header{LSN: 640, Seq: 9, Epoch: 6, Flags: FlagEpoch}, ErrEpoch},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := at.Check(c.h); !errors.Is(err, c.want) {
				t.Errorf("got %v, expected %v", err, c.want)
			}
		})
	}
}

func TestRegion_RoundTripAndFlippedBits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sb := goldenSuperblock()
		sb.Generation = rapid.Uint64().Draw(t, "generation")
		sb.WriterEpoch = rapid.Uint32().Draw(t, "epoch")
		raw := sb.Encode()
		if got, err := DecodeSuperblock(raw); err != nil || got != sb {
			t.Fatalf("got %+v, %v; expected %+v", got, err, sb)
		}
		bit := rapid.IntRange(0, len(raw)*8-1).Draw(t, "bit")
		raw[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeSuperblock(raw); !errors.Is(err, ErrSuperblock) {
			t.Fatalf("bit %d flipped: %v, expected %v", bit, err, ErrSuperblock)
		}
		slot := HeadSlot{HeadLSN: rapid.Uint64().Draw(t, "head"), HeadSeq: 3, LastEpoch: 1}
		raw = slot.Encode(sb.Salt)
		if got, err := DecodeHeadSlot(raw, sb.Salt); err != nil || got != slot {
			t.Fatalf("got %+v, %v; expected %+v", got, err, slot)
		}
		bit = rapid.IntRange(0, len(raw)*8-1).Draw(t, "slot bit")
		raw[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeHeadSlot(raw, sb.Salt); !errors.Is(err, ErrHeadSlot) {
			t.Fatalf("bit %d flipped: %v, expected %v", bit, err, ErrHeadSlot)
		}
	})
}

// TestWalk_RandomRing writes a random log around a ring several times, with PADs and new epochs, moves the head at
// random, tears the tail, and expects the walk to give exactly the undrained records.
func TestWalk_RandomRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sb := goldenSuperblock()
		ring := newTestRing(sb)
		for range rapid.IntRange(0, 60).Draw(t, "records") {
			ring.step(t)
		}
		region, want := ring.region()
		got := walkAll(t, region)
		if len(got) != len(want) {
			t.Fatalf("walk found %d records, expected %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("record %d differs", i)
			}
		}
	})
}

// testRing is a writer and a drain in a few lines.
type testRing struct {
	sb     Superblock
	data   []byte
	head   HeadSlot
	cursor Cursor
	stored []testStored
}

type testStored struct {
	h   Header
	raw []byte
}

func newTestRing(sb Superblock) *testRing {
	return &testRing{sb: sb, data: make([]byte, sb.Capacity), head: HeadSlot{}}
}

func (r *testRing) step(t *rapid.T) {
	payload := rapid.SliceOfN(rapid.Byte(), 0, 900).Draw(t, "payload")
	h := Header{Epoch: r.cursor.Epoch}
	if r.cursor.Epoch == 0 || rapid.IntRange(0, 9).Draw(t, "new epoch") == 0 {
		h.Epoch, h.Flags = h.Epoch+1, FlagEpoch
		payload = EpochPayload{StartLSN: r.cursor.LSN}.Encode()
	}
	extent := Extent(r.sb.Align, 0, len(payload))
	left := r.sb.Capacity - r.cursor.LSN%r.sb.Capacity
	for r.cursor.LSN+left+extent-r.head.HeadLSN > r.sb.Capacity && len(r.stored) > 0 {
		r.drainOne()
	}
	if extent > left {
		r.put(Header{Flags: FlagPad, Epoch: h.Epoch, PayloadLen: uint32(left - PadStoredLen)}, nil)
	}
	r.put(h, payload)
	if len(r.stored) > 0 && rapid.Bool().Draw(t, "drain") {
		r.drainOne()
	}
}

func (r *testRing) put(h Header, payload []byte) {
	h.LSN, h.Seq = r.cursor.LSN, r.cursor.Seq
	raw, err := AppendTo(nil, h, nil, payload, r.sb.Identity())
	if err != nil {
		panic(err)
	}
	rec, _ := Decode(raw, r.sb.Identity())
	copy(r.data[h.LSN%r.sb.Capacity:], raw)
	r.stored = append(r.stored, testStored{rec.Header, raw})
	r.cursor.Advance(rec.Header, r.sb.Align)
}

func (r *testRing) drainOne() {
	at := Cursor{}
	at.Advance(r.stored[0].h, r.sb.Align)
	r.head = HeadSlot{HeadLSN: at.LSN, HeadSeq: at.Seq, LastEpoch: at.Epoch}
	r.stored = r.stored[1:]
}

func (r *testRing) region() ([]byte, [][]byte) {
	region := make([]byte, DataOffset, DataOffset+len(r.data))
	r.sb.WriterEpoch = r.cursor.Epoch
	copy(region, r.sb.Encode())
	copy(region[HeadSlotBOffset:], r.head.Encode(r.sb.Salt))
	binary.LittleEndian.PutUint64(region[DurableHintOffset:], r.cursor.LSN)
	var want [][]byte
	for _, s := range r.stored {
		want = append(want, s.raw)
	}
	return append(region, r.data...), want
}

func walkAll(t interface{ Fatal(...any) }, region []byte) [][]byte {
	im, err := OpenImage(bytes.NewReader(region), int64(len(region)))
	if err != nil {
		t.Fatal(err)
	}
	var found [][]byte
	w := im.Walk()
	for {
		rec, err := w.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, bytes.Clone(rec.Raw))
	}
}

func TestWalk_TailBelowDurableHintIsRefused(t *testing.T) {
	region, records := goldenRing()
	last := records[len(records)-1]
	binary.LittleEndian.PutUint64(region[DurableHintOffset:], last.LSN+last.Extent(64)+64)
	im, err := OpenImage(bytes.NewReader(region), int64(len(region)))
	if err != nil {
		t.Fatal(err)
	}
	w := im.Walk()
	for err == nil {
		_, err = w.Next()
	}
	if !errors.Is(err, ErrLost) || !errors.Is(err, ErrCRC) {
		t.Fatalf("got %v, expected %v", err, ErrLost)
	}
}

func TestOpenImage_Refuses(t *testing.T) {
	region, _ := goldenRing()
	blank := func(off, length int) []byte {
		changed := bytes.Clone(region)
		clear(changed[off : off+length])
		return changed
	}
	for _, c := range []struct {
		name   string
		region []byte
		want   error
	}{
		{"nothing", nil, ErrShort},
		{"zeroed region", make([]byte, len(region)), ErrSuperblock},
		{"both superblocks gone", blank(0, 0x2000), ErrSuperblock},
		{"both head slots gone", blank(HeadSlotAOffset, 128), ErrHeadSlot},
		{"cut short", region[:len(region)-4096], ErrShort},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := OpenImage(bytes.NewReader(c.region), int64(len(c.region))); !errors.Is(err, c.want) {
				t.Errorf("got %v, expected %v", err, c.want)
			}
		})
	}
	for _, c := range []struct {
		name   string
		region []byte
	}{{"superblock A gone", blank(0, 512)}, {"head slot A gone", blank(HeadSlotAOffset, 64)}} {
		if got := walkAll(t, c.region); len(got) != 8 {
			t.Errorf("%s: %d records, expected 8", c.name, len(got))
		}
	}
}

func TestFlags_String(t *testing.T) {
	for flags, want := range map[Flags]string{
		0: "-", FlagPad: "PAD", FlagEpoch | FlagGap: "EPOCH|GAP",
		0x8001: "PAD|0x8000",
	} {
		if got := flags.String(); got != want {
			t.Errorf("%#x: got %s, expected %s", uint16(flags), got, want)
		}
	}
}

func TestUUID_RoundTrip(t *testing.T) {
	got, err := ParseUUID(goldenUUID.String())
	if err != nil || got != goldenUUID {
		t.Errorf("got %v, %v; expected %v", got, err, goldenUUID)
	}
	if _, err := ParseUUID("12"); err == nil {
		t.Error("a short uuid was taken")
	}
}

func BenchmarkParseHeader(b *testing.B) {
	raw, _ := AppendTo(nil, Header{Epoch: 1}, nil, make([]byte, 192), Identity{Salt: 1, Align: 64})
	for b.Loop() {
		if _, err := ParseHeader(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode256(b *testing.B) {
	id := Identity{Salt: 1, Align: 64}
	raw, _ := AppendTo(nil, Header{Epoch: 1}, nil, make([]byte, 192), id)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Decode(raw, id); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleDecode() {
	id := Identity{Salt: 42, Align: 64}
	raw, _ := AppendTo(nil, Header{LSN: 0, Epoch: 1, Class: 3}, []byte("ORD-1"), []byte("buy 100"), id)
	rec, err := Decode(raw, id)
	fmt.Println(string(rec.Key), string(rec.Payload), len(rec.Raw), err)
	// Output: ORD-1 buy 100 128 <nil>
}

// A time that no record can have is the first or the last that one has, and never that of another record.
func TestTimestampOf_TimesOutsideOfThoseOfRecords(t *testing.T) {
	for text, want := range map[string]uint64{
		"0001-01-01T00:00:00Z": 0, "1650-01-01T00:00:00Z": 0, "1970-01-01T00:00:00Z": 0, "1970-01-01T00:00:01Z": 1e9,
		"2262-04-11T23:47:16Z": 9223372036000000000, "2262-04-11T23:47:17Z": math.MaxInt64,
		"2300-01-01T00:00:00Z": math.MaxInt64, "9999-12-31T23:59:59Z": math.MaxInt64,
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := TimestampOf(at); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}
