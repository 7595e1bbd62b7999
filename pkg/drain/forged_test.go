package drain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const dataOff = 0x3000 // of the records of a ring that has a file of its own

// forge changes the record of a ring that begins with a text, as its writer could: the checksum is right afterwards.
func (b *bench) forge(text string, change func(h *record.Header, payload []byte)) (raw []byte) {
	b.Helper()
	reader, err := farlog.OpenReader(b.uri, farlog.ReaderOptions{})
	b.must(err)
	status, err := reader.Status()
	b.must(err)
	reader.Close()
	ring, err := os.OpenFile(b.path, os.O_RDWR, 0)
	b.must(err)
	defer ring.Close()
	whole, err := io.ReadAll(ring)
	b.must(err)
	id := record.Identity{Salt: status.Salt, Align: status.Align}
	at := dataOff
	rec, err := record.Decode(whole[at:], id)
	isIt := func() bool {
		return bytes.HasPrefix(rec.Payload, []byte(text)) && (text != "" || len(rec.Payload) == 0)
	}
	for ; err == nil && !isIt(); rec, err = record.Decode(whole[at:], id) {
		at += int(rec.Extent(id.Align))
	}
	b.must(err)
	header, payload := rec.Header, bytes.Clone(rec.Payload)
	change(&header, payload)
	raw, err = record.AppendTo(nil, header, nil, payload, id)
	b.must(err)
	if len(raw) != len(rec.Raw) {
		b.Fatalf("forged record has %d bytes, expected %d", len(raw), len(rec.Raw))
	}
	_, err = ring.WriteAt(raw, int64(at))
	b.must(err)
	return raw
}

// gaps are the GAP records of the stream.
func (b *bench) gaps() (gaps []record.GapPayload) {
	b.Helper()
	reader, err := b.store.OpenReader("test/orders", store.ReaderOptions{IncludeControl: true})
	b.must(err)
	defer reader.Close()
	for {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return gaps
		}
		b.must(err)
		if item.Flags&record.FlagGap != 0 {
			gap, err := record.DecodeGapPayload(item.Payload)
			b.must(err)
			gaps = append(gaps, gap)
		}
	}
}

func setFlags(flags record.Flags) func(*record.Header, []byte) {
	return func(h *record.Header, _ []byte) { h.Flags = flags }
}

func setTime(ns uint64) func(*record.Header, []byte) {
	return func(h *record.Header, _ []byte) { h.TimestampNS = ns }
}

var forgeries = map[string]struct {
	change func(*record.Header, []byte)
	cause  string
}{
	"another stream's id": {
		func(h *record.Header, _ []byte) { h.StreamID = 99 }, "stream id 99, expected 3",
	},
	"reserved flags": {setFlags(1 << 15), "reserved flags 0x8000, expected none"},
	"encrypted": {
		setFlags(record.FlagEncrypted),
		"an encrypted record in a stream that is not encrypted, whose readers have no key",
	},
	"two flags": {
		setFlags(record.FlagHeartbeat | record.FlagSeal),
		"flags HEARTBEAT|SEAL, expected one at most",
	},
	"time of 2^63":      {setTime(1 << 63), "time stamp 9223372036854775808, expected less than 2^63 ns"},
	"time of all ones":  {setTime(1<<64 - 1), "time stamp 18446744073709551615, expected less than 2^63 ns"},
	"EPOCH of the same": {setFlags(record.FlagEpoch), "a second EPOCH record of epoch 1, expected one"},
}

// A forged record with a right checksum is a GAP with its cause; the records around it are stored, the head moves, and
// its bytes are kept.
func TestRun_ForgedRecordIsAGap(t *testing.T) {
	for name, one := range forgeries {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, store.Options{})
			b.append("one", "two"+strings.Repeat("x", 300), "three")
			raw := b.forge("twoxx", one.change)
			progress, stop := b.run(b.config())
			p := b.await(progress, "drained", b.isDrained)
			b.must(stop())
			b.expectStored("one", "three")
			if gaps := b.gaps(); len(gaps) != 1 || !gaps[0].IsRefused || gaps[0].Cause != one.cause {
				t.Fatalf("gaps %v, expected one with the cause %q", gaps, one.cause)
			}
			if p.Forged != 1 || !strings.Contains(p.ForgedText, one.cause) {
				t.Fatalf("progress has %d forged: %q", p.Forged, p.ForgedText)
			}
			kept, err := filepath.Glob(filepath.Join(b.store.Dir(), "refused", "test%2Forders-1-*"))
			if err != nil || len(kept) != 1 {
				t.Fatalf("kept %v, %v: expected one file", kept, err)
			}
			if got, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(got, raw) {
				t.Fatalf("kept %d bytes, %v: expected the %d of the record", len(got), err, len(raw))
			}
			report, err := b.store.Verify(t.Context(), store.VerifyOptions{})
			if err != nil || !report.OK() {
				t.Fatalf("%v, %v", report, err)
			}
		})
	}
}

// Nothing that everybody can read passes into the store of an encrypted stream, but farlog's own records.
func TestWhyForged_ClearRecordInEncryptedStream(t *testing.T) {
	from := origin{streamID: 3, encryption: record.EncryptionAES256GCM}
	for flags, want := range map[record.Flags]string{
		0:                    "a record that everybody can read in a stream that is encrypted, by aes-256-gcm",
		record.FlagEncrypted: "", record.FlagHeartbeat: "", record.FlagGap: "", record.FlagPad: "",
		record.FlagEncrypted | record.FlagGap: "flags GAP|ENCRYPTED, expected one at most",
	} {
		if got := from.whyForged(record.Header{Flags: flags, StreamID: 3, Epoch: 1}, nil, 1); got != want {
			t.Errorf("flags %s: %q, expected %q", flags, got, want)
		}
	}
}

// An EPOCH record that names another ring still begins the epoch.
func TestRun_ForgedEpochBegins(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one")
	if err := b.writer.Close(); err != nil {
		t.Fatal(err)
	}
	b.openWriter()
	b.append("two")
	uuid := b.ringUUID()
	payload := record.EpochPayload{PrevEpoch: 1, StartLSN: b.epochStart(), RingUUID: uuid}.Encode()
	b.forge(string(payload), func(_ *record.Header, payload []byte) { payload[16] ^= 1 })
	progress, stop := b.run(b.config())
	b.await(progress, "drained", b.isDrained)
	b.must(stop())
	b.expectStored("one", "two")
	if gaps := b.gaps(); len(gaps) != 1 || !gaps[0].IsRefused {
		t.Fatalf("gaps %v, expected one", gaps)
	}
}

func (b *bench) ringUUID() record.UUID {
	b.Helper()
	reader, err := farlog.OpenReader(b.uri, farlog.ReaderOptions{})
	b.must(err)
	defer reader.Close()
	status, err := reader.Status()
	b.must(err)
	return status.RingUUID
}

// epochStart is where the second epoch begins in the ring: the first 64 bytes are of the first one's EPOCH record.
func (b *bench) epochStart() uint64 {
	b.Helper()
	whole, err := os.ReadFile(b.path)
	b.must(err)
	for at := dataOff; at < len(whole); at += 64 {
		if h, err := record.ParseHeader(whole[at:]); err == nil && h.Flags == record.FlagEpoch && h.Epoch == 2 {
			return binary.LittleEndian.Uint64(whole[at+record.HeaderLen+8:])
		}
	}
	b.Fatal("there is no EPOCH record of epoch 2")
	return 0
}

// A record of the shortest kind has no room for a cause.
func TestRun_ForgedRecordWithoutPayload(t *testing.T) {
	b := newBench(t, store.Options{})
	b.append("one", "", "three")
	if raw := b.forge("", func(h *record.Header, _ []byte) { h.Flags = 1 << 9 }); len(raw) != 64 {
		t.Fatalf("the record has %d bytes, expected 64", len(raw))
	}
	progress, stop := b.run(b.config())
	b.await(progress, "drained", b.isDrained)
	b.must(stop())
	b.expectStored("one", "three")
	if gaps := b.gaps(); len(gaps) != 1 || !gaps[0].IsRefused || gaps[0].Count != 1 {
		t.Fatalf("gaps %v, expected one", gaps)
	}
}

// A crash of the store at each of its operations, while forged records are refused: the honest ones are stored, each
// forged one is a GAP once, and its bytes are kept.
func TestRun_CrashWhileForgedRecordsAreRefused(t *testing.T) {
	crashes := 0
	for operation := 0; ; operation++ {
		b := newAheadBench(t, uint64(operation))
		forgedAt := map[int]bool{3: true, 4: true, 20: true, 39: true}
		var kept [][]byte
		var honest []string
		for i, text := range b.want {
			if forgedAt[i] {
				kept = append(kept, b.forge(text[:40], setFlags(1<<12)))
			} else {
				honest = append(honest, text)
			}
		}
		b.want = honest
		b.disk.CrashAfter(operation)
		_, err := b.drain()
		isPast := !b.disk.IsCrashed()
		if isPast && err != nil {
			t.Fatalf("no crash: %v", err)
		}
		b.disk.Crash()
		if err := b.drainRest(); err != nil {
			t.Fatalf("crash in operation %d: %v", operation, err)
		}
		if gaps := b.gaps(); len(gaps) != len(kept) {
			t.Fatalf("crash in operation %d: %d gaps, expected %d", operation, len(gaps), len(kept))
		}
		expectKept(t, b.disk, kept)
		b.writer.Close()
		if isPast {
			break
		}
		crashes++
	}
	if crashes < 50 {
		t.Fatalf("%d crashes: the test proves nothing", crashes)
	}
}

func expectKept(t *testing.T, disk *storetest.CrashFS, records [][]byte) {
	t.Helper()
	names, err := disk.ReadDir("/store/refused")
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, name := range names {
		raw, err := disk.Bytes("/store/refused/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	for i, one := range records {
		if !bytes.Contains(all, one) {
			t.Fatalf("refused record %d is not kept in %v", i, names)
		}
	}
}

// Where no record fits before the ring's end, a PAD carries the new epoch, and its EPOCH record follows.
func TestRun_EpochBehindAPadIsNotRefused(t *testing.T) {
	b := newBench(t, store.Options{})
	progress, stop := b.run(b.config())
	big := strings.Repeat("x", 60_000)
	count := 0
	for left := b.leftInRing(); left != 64; left = b.leftInRing() {
		if text := big; left <= 60_128+64 {
			b.append("") // 64 bytes
		} else {
			b.append(text)
		}
		count++
	}
	b.must(b.writer.Close())
	b.openWriter()
	b.append("behind")
	p := b.await(progress, "drained", b.isDrained)
	b.must(stop())
	if stored := b.stored(); p.Forged != 0 || len(stored) != count+1 || stored[count] != "behind" {
		t.Fatalf("%d refused: %s; %d stored, expected %d", p.Forged, p.ForgedText, len(stored), count+1)
	}
	reader, err := b.store.OpenReader("test/orders", store.ReaderOptions{IncludeControl: true})
	b.must(err)
	defer reader.Close()
	for item, err := reader.Next(); ; item, err = reader.Next() {
		if b.must(err); item.Flags.IsPad() && item.Epoch == 2 {
			return // the test is about this one
		}
	}
}

func (b *bench) leftInRing() uint64 { return 1<<20 - b.writer.Cursors().AppendedLSN%(1<<20) }

// What honest writers write is never refused: epochs, PADs at the end of laps, heartbeats, keys.
func TestRun_HonestRecordsAreNotRefused(t *testing.T) {
	b := newBench(t, store.Options{})
	progress, stop := b.run(b.config())
	for i := range 60 {
		b.append(fmt.Sprint(i, strings.Repeat("x", 40_000+i*37)), "")
		if i%20 == 7 {
			b.must(b.writer.Close())
			b.openWriter()
		}
		if _, err := b.writer.Append(farlog.Entry{Key: []byte("k"), Data: []byte("d")}, waitMax); err != nil {
			t.Fatal(err)
		}
	}
	p := b.await(progress, "drained", b.isDrained)
	b.must(stop())
	if p.Forged != 0 || len(b.gaps()) != 0 || len(b.stored()) != 180 {
		t.Fatalf("%d refused: %s; %d stored, expected 180", p.Forged, p.ForgedText, len(b.stored()))
	}
}
