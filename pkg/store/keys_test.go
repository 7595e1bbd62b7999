package store_test

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/farlog/farlog/pkg/store"
	"github.com/farlog/farlog/pkg/store/storetest"
)

const headerSignatureAt = 232

// newRotated is a store whose key lies elsewhere, with some segments of its first key.
func newRotated(t *testing.T, seed uint64) *fixture {
	t.Helper()
	f := &fixture{t: t, fs: storetest.NewCrashFS(seed), ring: storetest.NewRing(testStream, 1)}
	f.openWith(f.keyOptions())
	f.ring.Append(60, 600)
	f.feed()
	return f
}

func (f *fixture) rotate() ed25519.PublicKey {
	f.t.Helper()
	public, err := f.store.RotateKey("a test", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return public
}

func (f *fixture) verifyBy(keys ...ed25519.PublicKey) store.StreamReport {
	f.t.Helper()
	report, err := f.store.Verify(context.Background(), store.VerifyOptions{PublicKeys: keys})
	if err != nil {
		f.t.Fatal(err)
	}
	return report.Streams[0]
}

// An appender that is at work takes the new key at its next signature; what the first one signed is still good, and the
// report says from which segment on another one signed. Who trusts one of them alone is not satisfied.
func TestRotateKey_OldAndNewAreAccepted(t *testing.T) {
	f := newRotated(t, 1)
	first := f.store.PublicKey()
	before, err := store.Open("/store", f.options()) // of a program that only reads
	if err != nil {
		t.Fatal(err)
	}
	reader, err := before.OpenReader(testStream, store.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	opened, err := store.Open("/store", f.keyOptions()) // as farlog store key rotate does, beside the drain
	if err != nil {
		t.Fatal(err)
	}
	second, err := opened.RotateKey("a test", nil)
	if err != nil {
		t.Fatal(err)
	}
	f.ring.Append(60, 600)
	f.feed()
	f.close()
	report := f.verify()
	if report.Failure != nil || len(report.Keys) != 2 || report.Keys[0].ID != store.KeyID(first) ||
		report.Keys[1].ID != store.KeyID(second) || report.Keys[1].Number != 2 {
		t.Fatalf("%s, keys %+v", report.Statement(), report.Keys)
	}
	if !strings.Contains(report.Statement(), "signed by key 2, "+store.KeyID(second)) {
		t.Errorf("statement %q", report.Statement())
	}
	for _, test := range []struct {
		keys []ed25519.PublicKey
		isOK bool
	}{
		{[]ed25519.PublicKey{first, second}, true},
		{[]ed25519.PublicKey{first}, false},
		{[]ed25519.PublicKey{second}, false},
	} {
		if got := f.verifyBy(test.keys...); (got.Failure == nil) != test.isOK {
			t.Errorf("by %d keys: %s", len(test.keys), got.Statement())
		}
	}
	for { // was opened before the new key came
		if _, err := reader.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if report, err := before.Verify(context.Background(), store.VerifyOptions{}); err != nil || !report.OK() {
		t.Errorf("%+v, %v", report, err)
	}
}

// Whoever has the former key alone signs nothing behind a signature of the new one; a stream that has none of the new
// one yet goes on with the former.
func TestRotateKey_FormerKeyDoesNotComeBack(t *testing.T) {
	f := newRotated(t, 1)
	f.close()
	f.rotate()
	former := &module{key: f.privateKey(f.store.PublicKey())}
	options := f.options()
	options.Signer = former
	f.openWith(options)
	f.ring.Append(60, 600)
	f.feed()
	f.close()
	if report := f.verify(); report.Failure != nil || len(report.Keys) != 1 {
		t.Fatalf("%s, keys %+v", report.Statement(), report.Keys)
	}
	f.openWith(f.keyOptions())
	f.ring.Append(60, 600)
	f.feed()
	f.close()
	f.openWith(options)
	f.ring.Append(200, 600) // more than the segment takes: it grows
	f.feed()
	if err := f.store.SigningFailure(); !errors.Is(err, store.ErrSigning) {
		t.Errorf("failure %v", err)
	}
	if err := f.app.Close(); err != nil && !errors.Is(err, store.ErrSigning) {
		t.Fatal(err)
	}
	if report := f.verify(); report.Failure != nil || len(report.Keys) != 2 {
		t.Errorf("%s, keys %+v", report.Statement(), report.Keys)
	}
}

// privateKey reads a key from its directory.
func (f *fixture) privateKey(public ed25519.PublicKey) ed25519.PrivateKey {
	f.t.Helper()
	raw, err := f.fs.Bytes("/keys/" + store.KeyID(public) + ".key")
	if err != nil {
		f.t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		f.t.Fatal(err)
	}
	return key.(ed25519.PrivateKey)
}

// A header that the former key signed behind one of the new key is found, although both keys are the store's.
func TestRotateKey_ForgedByTheFormerKey(t *testing.T) {
	f := newRotated(t, 1)
	f.rotate()
	f.ring.Append(200, 600)
	f.feed()
	f.close()
	key := f.privateKey(f.store.PublicKey())
	f.forgeHeader(uint64(f.verify().Segments), func(header []byte) {
		copy(header[headerSignatureAt:], ed25519.Sign(key, header[:headerSignatureAt]))
	})
	report := f.verify()
	if report.Failure == nil || !strings.Contains(report.Failure.Reason, "key 1 of the store has made it") {
		t.Errorf("%s, keys %+v", report.Statement(), report.Keys)
	}
}

// A statement of a key that the one before, or the key itself, has not signed is no key of the store.
func TestRotateKey_ForgedStatement(t *testing.T) {
	f := newRotated(t, 1)
	f.close()
	f.rotate()
	name := "/store/signing-0000000002.json"
	whole, err := f.fs.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 3 {
		if err := f.fs.Change(name, func(data []byte) []byte { data[at] ^= 1; return data }); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Open("/store", f.keyOptions()); !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if err := f.fs.Change(name, func([]byte) []byte { return whole }); err != nil {
			t.Fatal(err)
		}
	}
}

// A crash at each operation of a rotation leaves a store that signs and verifies, with the new key or without; doing it
// again goes on.
func TestRotateKey_CrashAtEachOperation(t *testing.T) {
	for after := 0; ; after++ {
		f := newRotated(t, uint64(after))
		f.fs.CrashAfter(after)
		_, err := f.store.RotateKey("a test", nil)
		isCrashed := f.fs.IsCrashed()
		if err == nil == isCrashed {
			t.Fatalf("operation %d: crashed %v, %v", after, isCrashed, err)
		}
		f.fs.Crash()
		f.openWith(f.keyOptions())
		if count := len(f.store.Keys()); count > 2 || !isCrashed && count != 2 {
			t.Fatalf("operation %d: %d keys", after, count)
		}
		f.ring.Append(60, 600)
		f.feed()
		f.rotate()
		f.ring.Append(60, 600)
		f.fillAndVerify("rotate", after)
		if !isCrashed {
			return
		}
	}
}

// Who has the former key alone removes nothing from a stream that the new one has signed.
func TestRotateKey_FormerKeyRemovesNothing(t *testing.T) {
	f := newRotated(t, 1)
	former := &module{key: f.privateKey(f.store.PublicKey())}
	f.rotate()
	f.ring.Append(200, 600)
	f.feed()
	f.close()
	if _, err := f.store.RemoveBefore(testStream, store.Removal{Before: 3}); err != nil {
		t.Fatal(err)
	}
	options := f.options()
	options.Signer = former
	opened, err := store.Open("/store", options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.RemoveBefore(testStream, store.Removal{Before: 4}); !errors.Is(err, store.ErrSigning) {
		t.Errorf("%v, expected that it cannot be signed", err)
	}
	if report := f.verify(); report.Failure != nil {
		t.Error(report.Statement())
	}
}

// killedBeforeSync is the file system of a process that is killed before it syncs the store's directory.
type killedBeforeSync struct{ store.FS }

var errKilled = errors.New("killed")

func (k killedBeforeSync) SyncDir(name string) error {
	if name == "/store" {
		return errKilled
	}
	return k.FS.SyncDir(name)
}

// A rotation that is killed before it syncs the directory of its statement leaves a key that the drain signs with. What
// that key has signed is good after a power cut, whatever the cut takes of what nobody synced: who signs with a new key
// makes its statement durable first.
func TestRotateKey_KilledBeforeItsSync(t *testing.T) {
	for seed := range uint64(20) {
		f := newRotated(t, seed)
		options := f.keyOptions()
		options.FS, options.Create = killedBeforeSync{f.fs}, false
		other, err := store.Open("/store", options)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.RotateKey("a test", nil); !errors.Is(err, errKilled) {
			t.Fatalf("%v, expected that it is killed", err)
		}
		f.ring.Append(200, 600)
		f.feed()
		if count := len(f.store.Keys()); count != 2 {
			t.Fatalf("seed %d: the drain knows %d keys, expected that it signs with the second", seed, count)
		}
		f.fs.Crash()
		f.openWith(f.keyOptions())
		if count := len(f.store.Keys()); count != 2 {
			t.Fatalf("seed %d: %d keys are left, and 2 have signed", seed, count)
		}
		f.fillAndVerify("killed rotation, seed", int(seed))
	}
}
