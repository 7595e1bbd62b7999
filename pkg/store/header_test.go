package store_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// Places in a segment's header (docs/reference/format-store.md).
const (
	headerVersionAt = 8
	headerHashAt    = 200
	headerCRCAt     = 508
	headerLen       = 512
)

// openVersion1 opens a store that was made when segments had headers of version 1: two sealed and one begun, of 200
// records.
func openVersion1(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}
	packed, err := os.Open("testdata/version-1.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := "/" + strings.TrimSuffix(header.Name, "/")
		if header.Typeflag == tar.TypeDir {
			err = f.fs.Mkdir(name, 0o750)
		} else {
			err = f.put(name, files)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		f.ring.AppendPayload(make([]byte, 100))
	}
	return f
}

func (f *fixture) put(name string, from io.Reader) error {
	file, err := f.fs.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.fs.Change(name, func([]byte) []byte {
		data, err := io.ReadAll(from)
		if err != nil {
			f.t.Fatal(err)
		}
		return data
	})
}

// newest is the number of the last segment with a manifest.
func (f *fixture) newest() (number uint64) {
	f.t.Helper()
	names, err := f.fs.ReadDir(streamPath)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".json") {
			if _, err := fmt.Sscanf(name, "%d.json", &number); err != nil {
				f.t.Fatal(err)
			}
		}
	}
	return number
}

// unseal takes a segment's manifest away, and gives its file back to who may write.
func (f *fixture) unseal(number uint64) {
	f.t.Helper()
	raw, err := f.fs.Bytes(streamPath + segmentName(number))
	for _, name := range []string{fmt.Sprintf("%010d.json", number), segmentName(number)} {
		if err == nil {
			err = f.fs.Remove(streamPath + name)
		}
	}
	if err == nil {
		err = f.put(streamPath+segmentName(number), bytes.NewReader(raw))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// forge changes a bit of the first payload of a segment, and makes its CRC right: who may write the file can.
func (f *fixture) forge(number uint64) {
	f.t.Helper()
	source := f.ring.Source
	identity := record.Identity{Salt: source.Salt, Align: source.Align, RecordLenMax: source.RecordLenMax}
	f.change(segmentName(number), func(data []byte) []byte {
		for at := uint64(4096); ; {
			header, err := record.ParseHeader(data[at:])
			if err != nil {
				f.t.Fatal(err)
			}
			end := at + header.StoredLen(source.Align)
			if !header.Flags.IsControl() && header.PayloadLen > 0 {
				rec, err := record.Decode(data[at:end], identity)
				if err != nil {
					f.t.Fatal(err)
				}
				payload := append([]byte(nil), rec.Payload...)
				payload[0] ^= 1
				raw, err := record.AppendTo(nil, header, rec.Key, payload, identity)
				if err != nil {
					f.t.Fatal(err)
				}
				copy(data[at:end], raw)
				return data
			}
			at = end
		}
	})
}

// forgeHeader changes a header and makes its CRC right.
func (f *fixture) forgeHeader(number uint64, change func(header []byte)) {
	f.t.Helper()
	f.change(segmentName(number), func(data []byte) []byte {
		change(data)
		binary.LittleEndian.PutUint32(data[headerCRCAt:], record.CRC32C(0, data[:headerCRCAt]))
		return data
	})
}

// digest is what a manifest says of a segment.
func (f *fixture) digest(number uint64) [sha256.Size]byte {
	f.t.Helper()
	raw, err := f.fs.Bytes(streamPath + segmentName(number))
	if err != nil {
		f.t.Fatal(err)
	}
	used := uint64(4096)
	for used+record.HeaderLen <= uint64(len(raw)) && raw[used] != 0 {
		header, err := record.ParseHeader(raw[used:])
		if err != nil {
			f.t.Fatal(err)
		}
		used += header.StoredLen(f.ring.Source.Align)
	}
	return sha256.Sum256(append(append([]byte(nil), raw[:headerLen]...), raw[4096:used]...))
}

func (f *fixture) version(number uint64) uint32 {
	f.t.Helper()
	raw, err := f.fs.Bytes(streamPath + segmentName(number))
	if err != nil {
		f.t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(raw[headerVersionAt:])
}

// expectRefused: verifying names the segment, and so does an appender, which seals nothing.
func (f *fixture) expectRefused(number uint64, why string) {
	f.t.Helper()
	var err error
	if f.store, err = store.Open("/store", f.options()); err != nil {
		f.t.Fatal(err)
	}
	report := f.verify()
	if report.Failure == nil || report.Failure.Segment != segmentName(number) ||
		!strings.Contains(report.Statement(), why) {
		f.t.Errorf("verify: %s, expected segment %s: %s", report.Statement(), segmentName(number), why)
	}
	app, err := f.store.OpenStream(f.ring.Source)
	if err == nil {
		err = app.Close()
		f.t.Errorf("the stream is opened and closed: %v", err)
	} else if !strings.Contains(err.Error(), segmentName(number)) || !strings.Contains(err.Error(), why) {
		f.t.Errorf("open: %v, expected segment %s: %s", err, segmentName(number), why)
	}
	if newest := f.newest(); newest >= number {
		f.t.Errorf("segment %d was sealed", newest)
	}
}

func (f *fixture) expectWhole(what string) {
	f.t.Helper()
	if report := f.verify(); report.Failure != nil {
		f.t.Fatalf("%s: %s", what, report.Statement())
	}
}

// What a segment held when the next one was begun is in the next one's header, which the store has signed. So one whose
// manifest is gone is sealed again only with the same bytes.
func TestRecover_SegmentIsSealedAgainOnlyAsItWas(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(f *fixture, number uint64)
		at     uint64 // the segment that is named, behind the one whose manifest is gone
		why    string
	}{
		{"nothing is changed", func(*fixture, uint64) {}, 0, ""},
		{"a record is changed", (*fixture).forge, 0, "SHA-256 of the segment is "},
		{"a record is changed, and the next header", func(f *fixture, number uint64) {
			f.forge(number)
			digest := f.digest(number)
			f.forgeHeader(number+1, func(header []byte) { copy(header[headerHashAt:], digest[:]) })
		}, 1, "signature of the segment's header does not match"},
		{"a record is changed, and the next header is of version 1", func(f *fixture, number uint64) {
			f.forge(number)
			f.forgeHeader(number+1, func(header []byte) {
				header[headerVersionAt] = 1
				clear(header[headerHashAt:headerCRCAt])
			})
		}, 1, "header has version 1, the one before has 2"},
		{"both headers are of version 1", func(f *fixture, number uint64) {
			f.forge(number)
			for _, one := range []uint64{number, number + 1} {
				f.forgeHeader(one, func(header []byte) {
					header[headerVersionAt] = 1
					clear(header[headerHashAt:headerCRCAt])
				})
			}
		}, 0, "header has version 1, the one before has 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.fill(200)
			number := f.newest()
			f.forgeable(number)
			f.unseal(number)
			c.damage(f, number)
			if c.why != "" {
				f.expectRefused(number+c.at, c.why)
				return
			}
			f.expectWhole("without the manifest")
			f.open()
			f.fill(100)
			if f.newest() <= number {
				t.Errorf("segment %d was not sealed", number)
			}
			f.expectWhole("sealed again")
		})
	}
}

// forgeable: the attack has something to attack, a sealed segment behind which another is begun.
func (f *fixture) forgeable(number uint64) {
	f.t.Helper()
	if number < 2 || f.version(number+1) != 2 {
		f.t.Fatalf("segment %d is the last that is sealed, the next has a header of version %d", number,
			f.version(number+1))
	}
}

// A store of before is read and written on; what is begun from now on says what was before it.
func TestRecover_HeadersOfVersion1(t *testing.T) {
	f := openVersion1(t)
	f.open()
	f.expectWhole("as it was")
	last := f.newest()
	if f.version(last) != 1 {
		t.Fatalf("segment %d has a header of version %d", last, f.version(last))
	}
	f.fill(30)
	f.expectWhole("written on")
	old := last + 1
	if f.newest() != old || f.version(old) != 1 || f.version(old+1) != 2 {
		t.Fatalf("segment %d is sealed; %d and the next have versions %d and %d", f.newest(), old, f.version(old),
			f.version(old+1))
	}
	f.unseal(old)
	f.forge(old)
	f.expectRefused(old, "SHA-256 of the segment is ")
}

// A crash of a program of before has left the newest segment but one without its manifest. It leaves no second one so.
func TestRecover_HeadersOfVersion1WithoutManifest(t *testing.T) {
	f := openVersion1(t)
	last := f.newest()
	f.unseal(last)
	f.open()
	f.fill(10)
	f.expectWhole("sealed again")
	f = openVersion1(t)
	f.unseal(last)
	f.unseal(last - 1)
	f.expectRefused(last-1, "manifest is missing")
}
