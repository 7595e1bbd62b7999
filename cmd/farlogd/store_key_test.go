//go:build cgo

package main

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// A key that cannot leave a store of before is an error where the operator has said where it belongs, and else a
// warning at each start.
func TestOpenOwnStore_KeyThatCannotBeMoved(t *testing.T) {
	dir := t.TempDir()
	s := &settings{storeDir: filepath.Join(dir, "store"), storeKeys: filepath.Join(dir, "keys"), segmentBytes: 1 << 20}
	if _, err := store.Open(s.storeDir, store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.storeKeys, nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		log.Reset()
		if opened, err := openOwnStore(s, logger); err != nil || opened.CheckKey() != nil {
			t.Fatalf("by default: %v", err)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "--store-keys") {
			t.Errorf("log %q", log.String())
		}
	}
	s.isStoreKeysGiven = true
	if _, err := openOwnStore(s, logger); err == nil || !strings.Contains(err.Error(), "--store-keys") {
		t.Errorf("as it was said: %v", err)
	}
}

// The default directory is one that nobody has chosen: where it is none for a key, as others can write it, a store of
// before keeps its key, with a warning at each start. A store that has no key inside is not opened, nor made.
func TestOpenOwnStore_DefaultPlaceIsOfOthers(t *testing.T) {
	dir := t.TempDir()
	s := &settings{storeDir: filepath.Join(dir, "store"), storeKeys: filepath.Join(dir, "keys"), segmentBytes: 1 << 20}
	if err := os.Mkdir(s.storeKeys, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(s.storeKeys, 0o777); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := openOwnStore(s, logger); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a new store: %v", err)
	}
	if _, err := store.Open(s.storeDir, store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		log.Reset()
		opened, err := openOwnStore(s, logger)
		if err != nil {
			t.Fatalf("by default: %v", err)
		}
		if _, err := opened.Sign([]byte("statement")); err != nil || opened.CheckKey() != nil {
			t.Errorf("it does not sign: %v", err)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "chmod go-w") {
			t.Errorf("log %q", log.String())
		}
	}
	s.isStoreKeysGiven = true
	if _, err := openOwnStore(s, logger); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("as it was said: %v", err)
	}
	s.isStoreKeysGiven = false
	key := filepath.Join(s.storeDir, "signing.key")
	if err := os.Rename(key, filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if _, err := openOwnStore(s, logger); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("without a key inside: %v", err)
	}
}

// The key leaves the store; a drain that has none does not start.
func TestOpenOwnStore_MovesTheKey(t *testing.T) {
	dir := t.TempDir()
	s := &settings{storeDir: filepath.Join(dir, "store"), storeKeys: filepath.Join(dir, "keys"), segmentBytes: 1 << 20}
	if _, err := store.Open(s.storeDir, store.Options{Create: true}); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	opened, err := openOwnStore(s, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(s.storeKeys, store.KeyID(opened.PublicKey())+".key")
	if _, err := os.Stat(key); err != nil || !strings.Contains(log.String(), "moved out of the store") {
		t.Errorf("%v, log %q", err, log.String())
	}
	if _, err := os.Stat(filepath.Join(s.storeDir, "signing.key")); !os.IsNotExist(err) {
		t.Errorf("the key is in the store still: %v", err)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	_, err = openOwnStore(s, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), fs.ErrNotExist.Error()) {
		t.Errorf("without a key: %v", err)
	}
}

// mute is a signer that answers when a test lets it.
type mute struct {
	ed25519.PrivateKey
	err error
}

func (m *mute) Public() ed25519.PublicKey { return m.PrivateKey.Public().(ed25519.PublicKey) }
func (m *mute) Sign(statement []byte) ([]byte, error) {
	return ed25519.Sign(m.PrivateKey, statement), m.err
}

// The log names the signer's failure once, and its end; the metric has it meanwhile.
func TestSigningNote_FailureAndItsEnd(t *testing.T) {
	signer := &mute{PrivateKey: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), err: errors.New("no such slot")}
	now := time.Unix(1_700_000_000, 0)
	opened, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{
		Create: true, Signer: signer, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	note := &signingNote{store: opened, logger: slog.New(slog.NewTextHandler(&log, nil))}
	scrubbing := &scrub{store: opened}
	for range 2 {
		_, _ = opened.Sign([]byte("statement"))
		note.look()
	}
	if strings.Count(log.String(), "no such slot") != 1 || !scrubbing.sample().IsSigningFailing {
		t.Errorf("log %q, metric %v", log.String(), scrubbing.sample().IsSigningFailing)
	}
	signer.err, now = nil, now.Add(time.Minute)
	if _, err := opened.Sign([]byte("statement")); err != nil {
		t.Fatal(err)
	}
	note.look()
	if !strings.Contains(log.String(), "signing goes on") || scrubbing.sample().IsSigningFailing {
		t.Errorf("log %q, metric %v", log.String(), scrubbing.sample().IsSigningFailing)
	}
}
