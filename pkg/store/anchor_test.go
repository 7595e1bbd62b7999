package store_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

// image is all files of a store, as somebody who may write its disk can copy and put back.
type image map[string][]byte

func (f *fixture) image(dir string) image {
	f.t.Helper()
	files := image{}
	names, err := f.fs.ReadDir(dir)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range names {
		name = path.Join(dir, name)
		if _, err := f.fs.ReadDir(name); err == nil {
			for below, raw := range f.image(name) {
				files[below] = raw
			}
			continue
		}
		raw, err := f.fs.Bytes(name)
		if err != nil {
			f.t.Fatal(err)
		}
		files[name] = raw
	}
	return files
}

// verifyImage verifies a copy of a store against anchors.
func (f *fixture) verifyImage(files image, anchors ...store.Anchor) store.Report {
	f.t.Helper()
	copied := &fixture{t: f.t, fs: storetest.NewCrashFS(1), ring: f.ring}
	for _, dir := range []string{"/store", "/store/streams"} {
		if err := copied.fs.Mkdir(dir, 0o750); err != nil {
			f.t.Fatal(err)
		}
	}
	for name, raw := range files {
		_ = copied.fs.Mkdir(path.Dir(name), 0o750)
		if err := copied.put(name, bytes.NewReader(raw)); err != nil {
			f.t.Fatal(err)
		}
	}
	opened, err := store.Open("/store", store.Options{FS: copied.fs, SegmentBytes: crashSegmentBytes})
	if err != nil {
		f.t.Fatal(err)
	}
	report, err := opened.Verify(f.t.Context(), store.VerifyOptions{Anchors: anchors})
	if err != nil {
		f.t.Fatal(err)
	}
	return report
}

// anchored is a store at each of its syncs, with the anchor that was given out then.
type anchored struct {
	*fixture
	images  []image
	anchors []store.Anchor
}

// feedAnchored stores what the ring has, and keeps an image and an anchor after each sync.
func (a *anchored) feedAnchored(records []storetest.Record) {
	a.t.Helper()
	for batch := range slices.Chunk(records, 10) {
		if _, _, err := a.app.Append(storetest.Batch(batch)); err != nil {
			a.t.Fatal(err)
		}
		if n := len(a.anchors); n > 0 {
			if anchor, _ := a.app.Anchor(); anchor.NextLSN != a.anchors[n-1].NextLSN {
				a.t.Fatalf("before the sync: %+v, expected %+v", anchor, a.anchors[n-1])
			}
		}
		if err := a.app.Sync(); err != nil {
			a.t.Fatal(err)
		}
		anchor, ok := a.app.Anchor()
		if !ok {
			a.t.Fatal("no anchor after a sync")
		}
		a.images = append(a.images, a.image("/store"))
		a.anchors = append(a.anchors, anchor)
	}
	a.ring.Release(a.ring.NextLSN())
}

// newAnchored makes a store of several segments, epochs and openings, and of two rings.
func newAnchored(t *testing.T) *anchored {
	t.Helper()
	a := &anchored{fixture: newFixture(t)}
	a.ring.Append(100, 600)
	a.feedAnchored(a.ring.Records)
	a.close()
	a.open()
	a.ring.OpenEpoch()
	a.ring.Append(60, 600)
	a.feedAnchored(a.ring.Records)
	a.close()
	for range 2 { // of the opening that changes the ring, and of the next
		a.ring = storetest.NewRing(testStream, 2)
		a.open()
		before := a.anchors[len(a.anchors)-1]
		if anchor, ok := a.app.Anchor(); !ok || anchor.NextLSN != before.NextLSN || anchor.CheckAfter(before) != nil {
			t.Fatalf("opened for another ring: %+v, expected %+v", anchor, before)
		}
		a.close()
	}
	a.open()
	a.ring.Append(60, 600)
	a.feedAnchored(a.ring.Records)
	a.close()
	return a
}

func failureOf(report store.Report) string {
	for _, stream := range report.Streams {
		if stream.Failure != nil {
			return stream.Failure.String()
		}
	}
	return ""
}

// Each anchor is recomputed by verifying at its very point, in the store as it was then and as it became.
func TestAnchor_IsFoundAtItsPoint(t *testing.T) {
	a := newAnchored(t)
	last := len(a.anchors) - 1
	if a.anchors[last].Segment < 5 || a.anchors[last].SealedSegment < 4 || a.anchors[last].Generation != 2 {
		t.Fatalf("the store is smaller than this test is for: %+v", a.anchors[last])
	}
	for i, anchor := range a.anchors {
		report := a.verifyImage(a.images[i], a.anchors[:i+1]...)
		got := report.Streams[0]
		if !report.OK() || !got.IsEndProved || len(got.Anchors) != i+1 {
			t.Fatalf("sync %d: %s", i, got.Statement())
		}
		if !strings.Contains(got.Statement(), "is proved by an anchor of ") {
			t.Fatalf("sync %d: %s", i, got.Statement())
		}
		if got.End == nil || got.End.CheckAfter(anchor) != nil || anchor.CheckAfter(*got.End) != nil {
			t.Fatalf("sync %d: verify ends at %+v, the appender at %+v", i, got.End, anchor)
		}
		if i > 0 {
			if err := anchor.CheckAfter(a.anchors[i-1]); err != nil {
				t.Fatalf("sync %d: %v", i, err)
			}
		}
	}
	report := a.verifyImage(a.images[last], a.anchors[last-1])
	if text := report.Streams[0].Statement(); !strings.Contains(text, "; not proved: that the stream ends at lsn ") ||
		!strings.Contains(text, "the end is proved up to lsn ") {
		t.Errorf("an anchor before the end: %s", text)
	}
}

// The store as it was at any earlier sync, which is whole and signed, lacks what an anchor of any later one has.
func TestAnchor_AnySuffixRemoved(t *testing.T) {
	a := newAnchored(t)
	for i := range a.images {
		for j := i + 1; j < len(a.anchors); j++ {
			report := a.verifyImage(a.images[i], a.anchors[j])
			if report.OK() || report.Streams[0].IsEndProved {
				t.Fatalf("the store as of sync %d agrees with the anchor of sync %d: %s", i, j,
					report.Streams[0].Statement())
			}
			if err := a.anchors[i].CheckAfter(a.anchors[j]); !errors.Is(err, store.ErrAnchor) {
				t.Fatalf("the anchor of sync %d is taken after that of sync %d: %v", i, j, err)
			}
		}
		if report := a.verifyImage(a.images[i]); !report.OK() || report.Streams[0].IsEndProved {
			t.Fatalf("sync %d without an anchor: %s", i, report.Streams[0].Statement())
		}
	}
}

// Each file that proves something is missed.
func TestAnchor_AnyFileRemoved(t *testing.T) {
	a := newAnchored(t)
	last := len(a.anchors) - 1
	for name := range a.images[last] {
		if path.Ext(name) != ".seg" && (path.Ext(name) != ".json" || path.Base(name) == "store.json") {
			continue
		}
		damaged := image{}
		for other, raw := range a.images[last] {
			if other != name {
				damaged[other] = raw
			}
		}
		isSpare := bytes.Equal(a.images[last][name], make([]byte, len(a.images[last][name])))
		if report := a.verifyImage(damaged, a.anchors[last]); report.OK() != isSpare {
			t.Errorf("%s is missing: %s", name, report.Streams[0].Statement())
		}
	}
	for name := range a.images[last] {
		if strings.HasPrefix(name, "/store/streams/") {
			delete(a.images[last], name)
		}
	}
	report := a.verifyImage(a.images[last], a.anchors[last])
	if report.OK() || !strings.Contains(failureOf(report), "the stream is missing") {
		t.Errorf("the stream's directory is missing: %+v", report)
	}
}

// rewrite makes a store with the identity and the key of another one, and puts other records of the same ring into it.
func (a *anchored) rewrite(change func(records []storetest.Record) []storetest.Record) *anchored {
	a.t.Helper()
	forged := &anchored{fixture: &fixture{t: a.t, fs: storetest.NewCrashFS(1), ring: storetest.NewRing(testStream, 1)}}
	if err := forged.fs.Mkdir("/store", 0o750); err != nil {
		a.t.Fatal(err)
	}
	for _, name := range []string{"signing.key", "signing.pub", "store.json"} {
		raw, err := a.fs.Bytes("/store/" + name)
		if err == nil {
			err = forged.put("/store/"+name, bytes.NewReader(raw))
		}
		if err != nil {
			a.t.Fatal(err)
		}
	}
	if err := forged.fs.Mkdir("/store/streams", 0o750); err != nil {
		a.t.Fatal(err)
	}
	forged.open()
	forged.ring.Append(100, 600)
	forged.feedAnchored(change(forged.ring.Records))
	forged.close()
	return forged
}

// Who has the store's key writes it again: without a record's last payload byte, or only signed at another time. Both
// are found, each by each anchor from there on.
func TestAnchor_SignedAgainWithTheStoresKey(t *testing.T) {
	a := &anchored{fixture: newFixture(t)}
	a.ring.Append(100, 600)
	a.feedAnchored(a.ring.Records)
	a.close()
	for name, change := range map[string]func(records []storetest.Record) []storetest.Record{
		"other records": func(records []storetest.Record) []storetest.Record {
			other := storetest.NewRing(testStream, 1)
			for _, rec := range records[len(other.Records):] {
				other.AppendPayload(make([]byte, rec.PayloadLen))
			}
			return other.Records
		},
		"the same records, signed again": func(records []storetest.Record) []storetest.Record { return records },
	} {
		forged := a.rewrite(change)
		last := len(forged.images) - 1
		if report := forged.verifyImage(forged.images[last]); !report.OK() {
			t.Fatalf("%s: without an anchor: %s", name, report.Streams[0].Statement())
		}
		for i, anchor := range a.anchors {
			if report := forged.verifyImage(forged.images[last], anchor); report.OK() {
				t.Errorf("%s: agrees with the anchor of sync %d: %s", name, i, report.Streams[0].Statement())
			}
		}
		if err := forged.anchors[0].CheckAfter(a.anchors[0]); !errors.Is(err, store.ErrAnchor) {
			t.Errorf("%s: the anchor of the same point: %v", name, err)
		}
	}
}

// Who has the key signs one manifest again, with another time in it.
func TestAnchor_ManifestSignedAgain(t *testing.T) {
	a := newAnchored(t)
	last := len(a.anchors) - 1
	block, _ := pem.Decode(a.images[last]["/store/signing.key"])
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	name := streamPath + fmt.Sprintf("%010d.json", a.anchors[last].SealedSegment)
	var file struct {
		Manifest  json.RawMessage `json:"manifest"`
		Signature string          `json:"signature"`
	}
	if err := json.Unmarshal(a.images[last][name], &file); err != nil {
		t.Fatal(err)
	}
	file.Manifest = bytes.Replace(file.Manifest, []byte(`"sealed_at":"2`), []byte(`"sealed_at":"3`), 1)
	file.Signature = hex.EncodeToString(ed25519.Sign(key.(ed25519.PrivateKey), file.Manifest))
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	a.images[last][name] = append(raw, '\n')
	if report := a.verifyImage(a.images[last]); !report.OK() {
		t.Fatalf("without an anchor: %s", report.Streams[0].Statement())
	}
	if report := a.verifyImage(a.images[last], a.anchors[last]); report.OK() {
		t.Errorf("with an anchor: %s", report.Streams[0].Statement())
	}
}

// A store that was made again has streams of the same names. Its own signatures are sound.
func TestAnchor_StoresSwapped(t *testing.T) {
	one, other := newAnchored(t), newAnchored(t)
	last := len(one.anchors) - 1
	report := one.verifyImage(other.images[last], one.anchors[last])
	if report.OK() || !strings.Contains(failureOf(report), "this is store ") {
		t.Errorf("%s", report.Streams[0].Statement())
	}
	if err := other.anchors[last].CheckAfter(one.anchors[0]); !errors.Is(err, store.ErrAnchor) {
		t.Errorf("%v", err)
	}
}

// The directories of two streams of one store are swapped.
func TestAnchor_StreamsSwapped(t *testing.T) {
	a := newAnchored(t)
	other := storetest.NewRing("desk7/fills", 3)
	app, err := a.store.OpenStream(other.Source)
	if err != nil {
		t.Fatal(err)
	}
	other.Append(50, 600)
	if _, _, err := app.Append(storetest.Batch(other.Records[:20])); err != nil {
		t.Fatal(err)
	}
	if err := app.Sync(); err != nil {
		t.Fatal(err)
	}
	anchor, _ := app.Anchor()
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	files, swapped := a.image("/store"), image{}
	for name, raw := range files {
		if strings.Contains(name, "orders") {
			name = strings.Replace(name, "orders", "fills", 1)
		} else {
			name = strings.Replace(name, "fills", "orders", 1)
		}
		swapped[name] = raw
	}
	anchors := []store.Anchor{a.anchors[len(a.anchors)-1], anchor}
	if report := a.verifyImage(files, anchors...); !report.OK() {
		t.Fatal(failureOf(report))
	}
	report := a.verifyImage(swapped, anchors...)
	for _, stream := range report.Streams {
		if stream.Failure == nil {
			t.Errorf("%s: %s", stream.Stream, stream.Statement())
		}
	}
}

// A file of anchors is read as it was written; one without an anchor, or with half of one, proves nothing.
func TestParseAnchors(t *testing.T) {
	a := newAnchored(t)
	raw, err := store.FormatAnchors(a.anchors)
	if err != nil {
		t.Fatal(err)
	}
	again, err := store.ParseAnchors(raw)
	if err != nil || len(again) != len(a.anchors) {
		t.Fatalf("%d anchors, %v", len(again), err)
	}
	for i := range again {
		if again[i] != a.anchors[i] {
			t.Errorf("%+v, expected %+v", again[i], a.anchors[i])
		}
	}
	for _, text := range []string{"", "{}", `{"anchors":[]}`, `{"anchors":[{"stream":"a"}]}`, "[]"} {
		if got, err := store.ParseAnchors([]byte(text)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
