package store

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

const (
	keyFormat     = "farlog-key"
	keyVersion    = 1
	keyBytesMax   = 1 << 16
	keyNumberName = "signing-%010d"
)

// successor is the statement that a key follows another one (docs/reference/format-store-keys.md). Both sign it.
type successor struct {
	Format      string `json:"format"`
	Version     int    `json:"version"`
	StoreUUID   string `json:"store_uuid"`
	Number      uint64 `json:"number"` // of the new key; the one in store.json is 1
	PublicKey   string `json:"public_key"`
	PreviousKey string `json:"previous_key"`
	RotatedBy   string `json:"rotated_by"`
	RotatedAt   string `json:"rotated_at"`
}

type successorFile struct {
	Key      json.RawMessage `json:"key"`
	Previous string          `json:"signature_previous"`
	New      string          `json:"signature"`
}

// What can be wrong with a signature, or with the statement of a key.
var (
	errKeyForm    = errors.New("statement of a key is not what its fields encode to")
	errUnknownKey = errors.New("no key of the store has made it")
)

// checker reports what is wrong with a signature; nil: nothing.
type checker func(statement, signature []byte) error

// keyList has the public keys of a store, and of all that are derived from it, the oldest first.
type keyList struct {
	mutex   sync.Mutex
	list    []ed25519.PublicKey
	durable uint64 // so many of their statements outlive a power cut, as far as this process knows
}

// Keys are the public keys that sign for the store, one after the other: the first is that of store.json.
func (s *Store) Keys() []ed25519.PublicKey {
	s.keys.mutex.Lock()
	defer s.keys.mutex.Unlock()
	return slices.Clone(s.keys.list)
}

// loadKeys adds the keys that have come since. Errors: ErrCorrupt, or of the file system.
func (s *Store) loadKeys() error {
	s.keys.mutex.Lock()
	defer s.keys.mutex.Unlock()
	for {
		number := uint64(len(s.keys.list)) + 1
		name := s.successorName(number, ".json")
		raw, err := readFile(s.fsys, name, keyBytesMax)
		if isNotExist(err) {
			return nil
		}
		if err != nil {
			return wrap("read", name, err)
		}
		public, err := decodeSuccessor(raw, s.uuid, number, s.keys.list[number-2])
		if err != nil {
			return &CorruptError{Path: name, Err: err}
		}
		s.keys.list = append(s.keys.list, public)
	}
}

func (s *Store) successorName(number uint64, suffix string) string {
	return path.Join(s.dir, fmt.Sprintf(keyNumberName, number)+suffix)
}

// keyNumber says which key has made a signature, from 1 on; 0 = none of the store's. One that has come since is known.
func (s *Store) keyNumber(statement, signature []byte) (uint64, error) {
	for isLoaded := false; ; isLoaded = true {
		keys := s.Keys()
		for i := len(keys) - 1; i >= 0; i-- {
			if ed25519.Verify(keys[i], statement, signature) {
				return uint64(i) + 1, nil
			}
		}
		if isLoaded {
			return 0, nil
		}
		if err := s.loadKeys(); err != nil {
			return 0, err
		}
	}
}

// checkSignature takes a signature of any key of the store.
func (s *Store) checkSignature(statement, signature []byte) error {
	return s.checkAndNote(new(uint64))(statement, signature)
}

// checkAndNote is checkSignature, and keeps the number of the newest key that it sees.
func (s *Store) checkAndNote(newest *uint64) checker {
	return func(statement, signature []byte) error {
		number, err := s.keyNumber(statement, signature)
		if err == nil && number == 0 {
			err = errUnknownKey
		}
		*newest = max(*newest, number)
		return err
	}
}

// makeDurable makes the statement of a key durable before a signature of that key is: who has renamed it may have been
// killed before he did.
func (s *Store) makeDurable(number uint64) error {
	s.keys.mutex.Lock()
	defer s.keys.mutex.Unlock()
	if number <= max(s.keys.durable, 1) {
		return nil
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return wrap("sync", s.dir, err)
	}
	s.keys.durable = number
	return nil
}

func encodeSuccessor(body, previous, signature []byte) ([]byte, error) {
	raw, err := json.Marshal(successorFile{
		Key: body, Previous: hex.EncodeToString(previous), New: hex.EncodeToString(signature),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the statement of a key: %w", err)
	}
	return append(raw, '\n'), nil
}

// decodeSuccessor reads the statement of a key and checks its form and both signatures. Every byte of the file counts.
func decodeSuccessor(raw []byte, uuid record.UUID, number uint64, before ed25519.PublicKey) (ed25519.PublicKey, error) {
	var file successorFile
	var k successor
	if err := errors.Join(json.Unmarshal(raw, &file), json.Unmarshal(file.Key, &k)); err != nil {
		return nil, fmt.Errorf("%w: %w", errKeyForm, err)
	}
	previous, errPrevious := hex.DecodeString(file.Previous)
	signature, errNew := hex.DecodeString(file.New)
	public, errPublic := hex.DecodeString(k.PublicKey)
	if err := errors.Join(errPrevious, errNew, errPublic); err != nil || len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: expected a public key and two signatures in hexadecimal", errKeyForm)
	}
	body, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errKeyForm, err)
	}
	again, err := encodeSuccessor(body, previous, signature)
	switch {
	case err != nil:
		return nil, err
	case !bytes.Equal(again, raw):
		return nil, errKeyForm
	case k.Format != keyFormat || k.Version != keyVersion:
		return nil, fmt.Errorf("%w: format %q version %d, expected %q version %d", errKeyForm, k.Format, k.Version,
			keyFormat, keyVersion)
	case k.StoreUUID != uuid.String() || k.Number != number || k.PreviousKey != hex.EncodeToString(before):
		return nil, fmt.Errorf("it is of key %d of store %s after key %s, expected key %d of %s after %x", k.Number,
			k.StoreUUID, k.PreviousKey, number, uuid, []byte(before))
	case !ed25519.Verify(before, body, previous):
		return nil, errors.New("the key before has not signed it")
	case !ed25519.Verify(public, body, signature):
		return nil, errors.New("the key itself has not signed it")
	}
	return public, nil
}

// RotateKey makes another key sign for the store: a new one in Options.KeyDir, or that of a signer. The present key
// signs that, and both are accepted from then on; along a stream no signature of an older key follows one of a newer.
// Appenders take the new key at their next signature, when they have it. A crash leaves the store with the present key
// or with the new one; then a key that is in KeyDir and that the store does not name may be left. Errors: ErrInvalid,
// ErrSigning, ErrLocked, ErrNoSpace, or of the file system.
func (s *Store) RotateKey(by string, next Signer) (ed25519.PublicKey, error) {
	if next == nil && s.options.KeyDir == "" {
		return nil, fmt.Errorf("%w: rotate the key of store %s: expected a directory for the new one", ErrInvalid,
			s.dir)
	}
	lock, err := s.fsys.Lock(path.Join(s.dir, createLockName), holderText())
	if err != nil {
		return nil, wrap("rotate key, lock", path.Join(s.dir, createLockName), err)
	}
	defer lock.Close()
	if err := s.loadKeys(); err != nil {
		return nil, err
	}
	if next == nil {
		if next, err = s.makeKey(); err != nil {
			return nil, err
		}
	}
	keys, public := s.Keys(), next.Public()
	switch {
	case len(public) != ed25519.PublicKeySize:
		return nil, fmt.Errorf("%w: rotate the key of store %s: the next signer says no public key", ErrInvalid, s.dir)
	case slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return k.Equal(public) }):
		return nil, fmt.Errorf("%w: key %s is one of store %s already", ErrInvalid, KeyID(public), s.dir)
	}
	if err := s.putSuccessor(by, keys, next); err != nil {
		return nil, err
	}
	return public, s.loadKeys()
}

// putSuccessor makes the statement of the new key durable, and its public key beside it.
func (s *Store) putSuccessor(by string, keys []ed25519.PublicKey, next Signer) error {
	number := uint64(len(keys)) + 1
	body, err := json.Marshal(successor{
		Format: keyFormat, Version: keyVersion, StoreUUID: s.uuid.String(), Number: number,
		PublicKey: hex.EncodeToString(next.Public()), PreviousKey: hex.EncodeToString(keys[number-2]),
		RotatedBy: by, RotatedAt: s.options.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return fmt.Errorf("encode the statement of a key: %w", err)
	}
	previous, _, err := s.signAtLeast(body, number-1)
	if err != nil {
		return err
	}
	signature, err := next.Sign(body)
	if err != nil {
		return fmt.Errorf("%w: by the new key: %w", ErrSigning, err)
	}
	raw, err := encodeSuccessor(body, previous, signature)
	if err != nil {
		return err
	}
	if _, err := decodeSuccessor(raw, s.uuid, number, keys[number-2]); err != nil {
		return fmt.Errorf("%w: %w", ErrSigning, err)
	}
	if err := s.putPublicKey(next.Public(), s.successorName(number, ".pub")); err != nil {
		return err
	}
	if err := writeFile(s.fsys, s.successorName(number, ".json"), raw, 0o440); err != nil {
		return err
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return fmt.Errorf("key %d of the store is %s, and may be forgotten at a power cut: %w", number,
			KeyID(next.Public()), wrap("sync", s.dir, err))
	}
	return nil
}

// fileSigner signs with a key that was just made.
type fileSigner struct{ ed25519.PrivateKey }

func (f fileSigner) Public() ed25519.PublicKey { return f.PrivateKey.Public().(ed25519.PublicKey) }

func (f fileSigner) Sign(statement []byte) ([]byte, error) {
	return ed25519.Sign(f.PrivateKey, statement), nil
}
