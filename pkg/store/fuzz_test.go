package store

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// fuzzSegment makes a segment with three records.
func fuzzSegment(tb testing.TB) []byte {
	h := segmentHeader{
		Version: 1, Salt: 1, Align: 64, RecordLenMax: 1024, Number: 1, Generation: 1, StreamName: "fuzz", FirstTS: 1,
	}
	raw := make([]byte, segmentDataOffset)
	copy(raw, h.encode())
	cursor := record.Cursor{}
	for _, flags := range []record.Flags{record.FlagEpoch, 0, 0} {
		header := record.Header{Flags: flags, LSN: cursor.LSN, Seq: cursor.Seq, Epoch: 1, TimestampNS: 1}
		before := len(raw)
		var err error
		if raw, err = record.AppendTo(raw, header, []byte("key"), []byte("a payload"), h.identity()); err != nil {
			tb.Fatal(err)
		}
		rec, err := record.Decode(raw[before:], h.identity())
		if err != nil {
			tb.Fatal(err)
		}
		cursor.Advance(rec.Header, h.Align)
	}
	m := mark{syncedOffset: int64(len(raw)), count: 1}
	copy(raw[m.offset():], m.encode(h.Salt))
	return append(raw, make([]byte, 4096)...)
}

// FuzzOpenSegment gives any bytes as the one segment of a stream to all that opens segments: the reader, the verifier,
// the appender. None may panic, loop or give a record that is not in the bytes; what the appender takes over, the
// verifier must find whole. The header's CRC is mended so that the fuzzer reaches what is behind it.
func FuzzOpenSegment(f *testing.F) {
	whole := fuzzSegment(f)
	f.Add(whole)
	altered := bytes.Clone(whole)
	altered[segmentDataOffset+record.HeaderLen+len("keya payload")] = 0xff // the first byte of the first record's fill
	f.Add(altered)
	f.Add(whole[:segmentDataOffset])
	f.Add(whole[:len(whole)-4096-70])
	f.Add(make([]byte, 8192))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Open(filepath.Join(fuzzDir(t), "store"),
			Options{Create: true, IsSynchronous: true, SegmentBytes: SegmentBytesMin})
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) >= segmentHeaderLen {
			copy(raw[16:32], s.uuid[:])
			crc := record.CRC32C(0, raw[:segmentCRCOffset])
			raw[508], raw[509], raw[510], raw[511] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
		}
		stream := s.streamDir("fuzz")
		if err := os.Mkdir(stream.path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(stream.file(1, segmentSuffix), raw, 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := s.OpenReader("fuzz", ReaderOptions{IncludeControl: true, IncludeSuperseded: true}); err == nil {
			for {
				item, err := r.Next()
				if err != nil {
					if err != io.EOF && len(raw) == 0 {
						t.Fatal(err)
					}
					break
				}
				if !bytes.Contains(raw, item.Raw) {
					t.Fatalf("record at lsn %d was invented", item.LSN)
				}
			}
			r.Close()
		}
		if _, err := s.Verify(context.Background(), VerifyOptions{}); err != nil {
			t.Fatal(err)
		}
		head, _ := decodeSegmentHeader(raw)
		a, err := s.OpenStream(Source{
			StreamName: "fuzz", StreamID: head.StreamID, RingUUID: head.RingUUID,
			Salt:  head.Salt,
			Align: 64, RecordLenMax: 1024,
		})
		if err != nil {
			return
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		report, err := s.Verify(context.Background(), VerifyOptions{})
		if err != nil || !report.OK() {
			t.Fatalf("recovered, and then: %+v, %v", report, err)
		}
	})
}

// fuzzDir is a new directory in memory where there is one: a sync costs nothing there.
func fuzzDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "farlog-fuzz-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// FuzzManifest gives any bytes as a manifest. Only what this key signed may be accepted.
func FuzzManifest(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	m := newManifest(segmentHeader{StreamName: "fuzz", Number: 1}, summary{}, chain{}, 4096, sha256.Sum256(nil),
		sha256.Sum256(nil), time.Unix(0, 0))
	whole, err := encodeManifest(m, func(b []byte) ([]byte, error) { return ed25519.Sign(key, b), nil })
	if err != nil {
		f.Fatal(err)
	}
	check := func(statement, signature []byte) error {
		if !ed25519.Verify(key.Public().(ed25519.PublicKey), statement, signature) {
			return errUnknownKey
		}
		return nil
	}
	f.Add(whole)
	f.Add([]byte(`{"manifest":{},"signature":""}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decodeManifest(raw, check); err == nil && !bytes.Equal(raw, whole) {
			t.Fatalf("accepted %q", raw)
		}
	})
}

// FuzzIndex gives any bytes as an index. What is believed must point into its segment.
func FuzzIndex(f *testing.F) {
	h := segmentHeader{Number: 3, Align: 64}
	x := index{
		entries: []indexEntry{{offset: segmentDataOffset}, {lsn: 640, offset: segmentDataOffset + 640}},
		marks:   []EpochMark{{Epoch: 1}},
	}
	f.Add(x.encode(h, 8192))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) >= 4 {
			crc := record.CRC32C(0, raw[:len(raw)-4])
			raw = append(raw[:len(raw)-4:len(raw)-4], byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24))
		}
		x, err := decodeIndex(raw, h, 8192)
		if err != nil {
			return
		}
		if at := x.offsetOfLSN(640); at < segmentDataOffset || at >= 8192 {
			t.Fatalf("index points to offset %d", at)
		}
	})
}

// FuzzBase gives any bytes as a base manifest. Only what this key signed may be accepted.
func FuzzBase(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	zeros := strings.Repeat("0", 2*sha256.Size)
	whole, err := encodeBase(Base{
		Format: baseFormat, Version: baseVersion, Stream: "fuzz", Segment: 2, FormerRings: []string{},
		SegmentSHA256: zeros, ManifestSHA256: zeros, PreviousSHA256: zeros, RemovedAt: "2026-01-02T03:04:05Z",
	}, func(b []byte) ([]byte, error) { return ed25519.Sign(key, b), nil })
	if err != nil {
		f.Fatal(err)
	}
	check := func(statement, signature []byte) error {
		if !ed25519.Verify(key.Public().(ed25519.PublicKey), statement, signature) {
			return errUnknownKey
		}
		return nil
	}
	if _, err := decodeBase(whole, check); err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"base":{},"signature":""}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decodeBase(raw, check); err == nil && !bytes.Equal(raw, whole) {
			t.Fatalf("accepted %q", raw)
		}
	})
}

// FuzzSuccessor gives any bytes as the statement of a key. Only what both keys signed may be accepted.
func FuzzSuccessor(f *testing.F) {
	before := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	next := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 1))
	public := before.Public().(ed25519.PublicKey)
	body, err := json.Marshal(successor{
		Format: keyFormat, Version: keyVersion, StoreUUID: record.UUID{}.String(), Number: 2,
		PublicKey: hex.EncodeToString(next.Public().(ed25519.PublicKey)), PreviousKey: hex.EncodeToString(public),
	})
	if err != nil {
		f.Fatal(err)
	}
	whole, err := encodeSuccessor(body, ed25519.Sign(before, body), ed25519.Sign(next, body))
	if err != nil {
		f.Fatal(err)
	}
	if _, err := decodeSuccessor(whole, record.UUID{}, 2, public); err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"key":{},"signature_previous":"","signature":""}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decodeSuccessor(raw, record.UUID{}, 2, public); err == nil && !bytes.Equal(raw, whole) {
			t.Fatalf("accepted %q", raw)
		}
	})
}
