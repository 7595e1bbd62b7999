package store_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
)

// TestVerify_FlippedBitInARecordIsNamed flips one bit in every region of a closed store's segments in turn.
func TestVerify_FlippedBitInARecordIsNamed(t *testing.T) {
	f := newFixture(t)
	f.fill(120)
	for _, item := range f.read(store.ReaderOptions{IncludeControl: true}) {
		name := fmt.Sprintf("%010d.seg", item.Segment)
		last := item.Offset + int64(len(item.Raw)) - 1
		for _, at := range []int64{item.Offset, item.Offset + 9, item.Offset + 30, last} {
			f.change(name, flip(int(at)))
			report := f.verify()
			if report.Failure == nil || report.Failure.Segment != name || report.Failure.LSN != item.LSN ||
				report.Failure.Offset != item.Offset {
				t.Fatalf("byte %d of %s: %s, expected lsn %d at offset %d", at, name, report.Statement(), item.LSN,
					item.Offset)
			}
			f.change(name, flip(int(at)))
		}
	}
	if report := f.verify(); report.Failure != nil {
		t.Fatal(report.Statement())
	}
}

func TestVerify_AnyFlippedBitOfASealedSegmentOrManifestIsFound(t *testing.T) {
	f := newFixture(t)
	f.fill(60)
	for _, name := range []string{"0000000001.json", "0000000002.json", "0000000001.seg"} {
		size := 0
		f.change(name, func(data []byte) []byte { size = len(data); return data })
		for at := 0; at < size; at += 1 + size/400 {
			if strings.HasSuffix(name, ".seg") && at >= 512 && at < 4096 {
				continue // marks and reserved bytes say nothing about a sealed segment
			}
			f.change(name, flip(at))
			if report := f.verify(); report.Failure == nil {
				t.Fatalf("byte %d of %s changed unseen", at, name)
			}
			f.change(name, flip(at))
		}
	}
}

func TestVerify_MissingAndSwappedFiles(t *testing.T) {
	swap := func(a, b string) func(f *fixture) {
		return func(f *fixture) {
			first, _ := f.fs.Bytes(streamPath + a)
			second, _ := f.fs.Bytes(streamPath + b)
			f.change(a, func([]byte) []byte { return second })
			f.change(b, func([]byte) []byte { return first })
		}
	}
	remove := func(names ...string) func(f *fixture) {
		return func(f *fixture) {
			for _, name := range names {
				if err := f.fs.Remove(streamPath + name); err != nil {
					f.t.Fatal(err)
				}
			}
		}
	}
	for _, c := range []struct {
		name    string
		damage  func(f *fixture)
		segment string
	}{
		{"segments swapped", swap("0000000002.seg", "0000000003.seg"), "0000000002.seg"},
		{"segments and manifests swapped", func(f *fixture) {
			swap("0000000002.seg", "0000000003.seg")(f)
			swap("0000000002.json", "0000000003.json")(f)
		}, "0000000002.seg"},
		{"manifests swapped", swap("0000000002.json", "0000000003.json"), "0000000002.seg"},
		{"middle segment gone", remove("0000000002.seg"), "0000000002.seg"},
		{"middle segment gone with its manifest", remove("0000000002.seg", "0000000002.json"), "0000000002.seg"},
		{"first segment gone", remove("0000000001.seg"), "0000000001.seg"},
		{"manifest gone", remove("0000000002.json"), "0000000002.seg"},
		{"segment cut", func(f *fixture) {
			f.change("0000000002.seg", func(data []byte) []byte { return data[:len(data)-64] })
		}, "0000000002.seg"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.fill(200)
			c.damage(f)
			report := f.verify()
			if report.Failure == nil || report.Failure.Segment != c.segment {
				t.Fatalf("%s, expected segment %s to be named", report.Statement(), c.segment)
			}
		})
	}
}

func TestVerify_AnotherKeyIsNotTrusted(t *testing.T) {
	f := newFixture(t)
	f.fill(100)
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	report, err := f.store.Verify(context.Background(), store.VerifyOptions{PublicKeys: []ed25519.PublicKey{public}})
	if err != nil || report.OK() {
		t.Fatalf("got %+v, %v", report, err)
	}
	raw, err := f.fs.Bytes("/store/signing.pub")
	if err != nil {
		t.Fatal(err)
	}
	if public, err = store.ParsePublicKey(raw); err != nil {
		t.Fatal(err)
	}
	options := store.VerifyOptions{PublicKeys: []ed25519.PublicKey{public}}
	if report, err = f.store.Verify(context.Background(), options); err != nil || !report.OK() {
		t.Fatalf("exported key: got %+v, %v", report, err)
	}
}

// The file that people take elsewhere has the key that verifies here, or verify fails. Without it there is nothing to
// compare.
func TestVerify_PublicKeyFileIsTheStores(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"another key": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "no key": []byte("nothing"),
		"empty": {},
	} {
		f := newFixture(t)
		f.fill(10)
		if report := f.verifyAll(); !report.OK() || report.IsKeyMissing {
			t.Fatalf("%+v", report)
		}
		if err := f.fs.Change("/store/signing.pub", func([]byte) []byte { return content }); err != nil {
			t.Fatal(err)
		}
		if report := f.verifyAll(); report.OK() || !strings.Contains(report.KeyFailure, "signing.pub") {
			t.Errorf("%s: %+v", name, report)
		}
		if err := f.fs.Remove("/store/signing.pub"); err != nil {
			t.Fatal(err)
		}
		if report := f.verifyAll(); !report.OK() || !report.IsKeyMissing {
			t.Errorf("none: %+v", report)
		}
	}
}

func (f *fixture) verifyAll() store.Report {
	f.t.Helper()
	report, err := f.store.Verify(context.Background(), store.VerifyOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return report
}

func TestReader_IndexMissingOrDoubtful(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(f *fixture, name string)
	}{
		{"missing", func(f *fixture, name string) {
			if err := f.fs.Remove(streamPath + name); err != nil {
				f.t.Fatal(err)
			}
		}},
		{"flipped bit", func(f *fixture, name string) { f.change(name, flip(60)) }},
		{"cut", func(f *fixture, name string) { f.change(name, func(data []byte) []byte { return data[:50] }) }},
		{"of another segment", func(f *fixture, name string) {
			other, _ := f.fs.Bytes(streamPath + "0000000003.idx")
			f.change(name, func([]byte) []byte { return other })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.fill(200)
			c.damage(f, "0000000001.idx")
			c.damage(f, "0000000002.idx")
			for _, want := range f.given {
				r, err := f.store.OpenReader(testStream, store.ReaderOptions{IncludeControl: true})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.SeekLSN(want.LSN); err != nil {
					t.Fatal(err)
				}
				if item, err := r.Next(); err != nil || item.LSN != want.LSN {
					t.Fatalf("sought lsn %d, got %d, %v", want.LSN, item.LSN, err)
				}
				r.Close()
			}
			if report := f.verify(); report.Failure != nil {
				t.Errorf("an index is not evidence, but verify says: %s", report.Statement())
			}
		})
	}
}
