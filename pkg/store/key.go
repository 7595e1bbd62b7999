package store

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
)

const keySuffix = ".key"

// KeyDirBeside is where the signing key of a store is kept by default: beside the store, and not in it.
func KeyDirBeside(dir string) string { return path.Join(path.Dir(path.Clean(dir)), "keys") }

// KeyID names a public key in a few digits: the first 16 hexadecimal digits of its SHA-256.
func KeyID(key ed25519.PublicKey) string {
	digest := sha256.Sum256(key)
	return hex.EncodeToString(digest[:8])
}

// keyName is the file of a signing key: outside of the store one directory may have the keys of several stores.
func (s *Store) keyName(public ed25519.PublicKey) string {
	if s.options.KeyDir == "" {
		return s.insideKeyName()
	}
	return path.Join(s.keyDir(), KeyID(public)+keySuffix)
}

func (s *Store) keyDir() string { return path.Clean(cmp.Or(s.options.KeyDir, s.dir)) }

func (s *Store) insideKeyName() string { return path.Join(s.dir, privateKeyName) }

// CheckKey reports whether this process has a key that signs for the store, or a signer that says so: no signature is
// made. Errors: ErrInvalid (it is another one), fs.ErrNotExist, or of the file system.
func (s *Store) CheckKey() error {
	signer := s.options.Signer
	if signer == nil {
		_, err := s.privateKey()
		return err
	}
	if err := s.loadKeys(); err != nil {
		return err
	}
	public, keys := signer.Public(), s.Keys()
	if public != nil && !slices.ContainsFunc(keys, func(k ed25519.PublicKey) bool { return k.Equal(public) }) {
		return fmt.Errorf("%w: the signer has key %s, expected key %s of store %s", ErrInvalid, KeyID(public),
			KeyID(keys[len(keys)-1]), s.dir)
	}
	return nil
}

// privateKey reads the newest signing key that is there: from where Options say, or from the store as long as it could
// not be moved.
func (s *Store) privateKey() (ed25519.PrivateKey, error) {
	if err := s.loadKeys(); err != nil {
		return nil, err
	}
	keys := s.Keys()
	name, first := s.keyName(keys[len(keys)-1]), error(nil)
	for _, public := range slices.Backward(keys) {
		key, _, err := s.readKey(s.keyName(public), public)
		if err == nil {
			return key, nil
		}
		if !isNotExist(err) && first == nil {
			first = err
		}
	}
	if s.options.KeyDir == "" {
		return nil, cmp.Or(first, fmt.Errorf("%w: signing key %s", fs.ErrNotExist, name))
	}
	for _, public := range slices.Backward(keys) {
		key, _, err := s.readKey(s.insideKeyName(), public)
		if err == nil {
			return key, nil
		}
		if !isNotExist(err) && first == nil {
			first = err
		}
	}
	if first != nil {
		return nil, first
	}
	return nil, fmt.Errorf("%w: the signing key of store %s is neither %s nor in the store: copy it there, or "+
		"name the directory that has it (--store-keys)", fs.ErrNotExist, s.dir, name)
}

// readKey reads a private key and checks that it belongs to the public one.
func (s *Store) readKey(name string, public ed25519.PublicKey) (ed25519.PrivateKey, []byte, error) {
	raw, err := readFile(s.fsys, name, 1<<16)
	if err != nil {
		return nil, nil, wrap("read signing key", name, err)
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, nil, fmt.Errorf("%w: signing key %s is not PEM", ErrInvalid, name)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: signing key %s: %w", ErrInvalid, name, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok || !public.Equal(private.Public()) {
		return nil, nil, fmt.Errorf("%w: signing key %s does not belong to the public key %s of store %s", ErrInvalid,
			name, KeyID(public), s.dir)
	}
	return private, raw, nil
}

// MoveKey moves the signing key out of the store into Options.KeyDir. The key is durable there before it leaves the
// store; a crash in between leaves it in both, and the next call goes on. isMoved is false when there was nothing to
// move; then nothing says that there is a key: CheckKey does. Errors: ErrInvalid, ErrLocked (another process moves it),
// ErrNoSpace, or of the file system: the key is in the store still.
func (s *Store) MoveKey() (isMoved bool, err error) {
	if s.options.KeyDir == "" || s.options.Signer != nil {
		return false, nil
	}
	from := s.insideKeyName()
	if _, _, err = s.readKey(from, s.key); isNotExist(err) {
		return false, nil
	}
	lock, err := s.fsys.Lock(path.Join(s.dir, createLockName), holderText())
	if err != nil {
		return false, wrap("move signing key, lock", path.Join(s.dir, createLockName), err)
	}
	defer lock.Close()
	_, raw, err := s.readKey(from, s.key)
	if err != nil {
		return false, err
	}
	if _, _, err := s.readKey(s.keyName(s.key), s.key); isNotExist(err) {
		if err := s.putKey(raw, s.key); err != nil {
			return false, err
		}
	} else if err != nil {
		return false, err
	}
	// Also one that an attempt before has put there.
	if err := s.syncKeyDir(); err != nil {
		return false, err
	}
	if err := s.fsys.Remove(from); err != nil {
		return false, wrap("remove", from, err)
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return false, wrap("sync", s.dir, err)
	}
	return true, nil
}

// putKey writes a signing key where it belongs; syncKeyDir makes it durable.
func (s *Store) putKey(raw []byte, public ed25519.PublicKey) error {
	if s.options.KeyDir != "" {
		if err := s.fsys.Mkdir(s.keyDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return wrap("make directory of the signing key", s.keyDir(), err)
		}
	}
	return writeFile(s.fsys, s.keyName(public), raw, 0o600)
}

func (s *Store) syncKeyDir() error {
	dir := s.keyDir()
	if err := s.fsys.SyncDir(dir); err != nil {
		return wrap("sync", dir, err)
	}
	err := s.fsys.SyncDir(path.Dir(dir))
	if errors.Is(err, fs.ErrPermission) {
		return nil // who may not even read it has not made dir in it
	}
	return wrap("sync", path.Dir(dir), err)
}

// createKeys makes the keys of a new store. The public one is durable first: so an attempt that was interrupted leaves
// no private key that the next one does not find.
func (s *Store) createKeys() (ed25519.PublicKey, error) {
	if s.options.Signer != nil {
		public := s.options.Signer.Public()
		if public == nil {
			return nil, fmt.Errorf("%w: the signer of a new store says no public key: name its file "+
				"(--signing-public)", ErrInvalid)
		}
		return public, s.putPublicKey(public, path.Join(s.dir, publicKeyName))
	}
	public, err := s.formerKeys()
	if err != nil || public != nil {
		return public, err
	}
	if s.options.KeyDir != "" { // that of an attempt which was to have it in the store
		if err := s.fsys.Remove(s.insideKeyName()); err != nil && !isNotExist(err) {
			return nil, wrap("remove", s.insideKeyName(), err)
		}
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	if err := s.putPublicKey(public, path.Join(s.dir, publicKeyName)); err != nil {
		return nil, err
	}
	if err := s.syncDirs(); err != nil {
		return nil, err
	}
	return public, s.putPrivateKey(private)
}

// makeKey makes another signing key, durable where Options say.
func (s *Store) makeKey() (Signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make signing key: %w", err)
	}
	return fileSigner{private}, s.putPrivateKey(private)
}

func (s *Store) putPrivateKey(private ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fmt.Errorf("make signing key: %w", err)
	}
	raw := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := s.putKey(raw, private.Public().(ed25519.PublicKey)); err != nil {
		return err
	}
	return s.syncKeyDir()
}

func (s *Store) putPublicKey(public ed25519.PublicKey, name string) error {
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return fmt.Errorf("make signing key: %w", err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	return writeFile(s.fsys, name, publicPEM, 0o640)
}

// formerKeys gives the public key that an interrupted attempt has made, when the private one is there as well.
func (s *Store) formerKeys() (ed25519.PublicKey, error) {
	raw, err := readFile(s.fsys, path.Join(s.dir, publicKeyName), 1<<16)
	if isNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, wrap("read", path.Join(s.dir, publicKeyName), err)
	}
	public, err := ParsePublicKey(raw)
	if err != nil {
		return nil, nil // it is written again
	}
	if _, _, err := s.readKey(s.keyName(public), public); err != nil {
		if isNotExist(err) || errors.Is(err, ErrInvalid) && s.options.KeyDir == "" {
			return nil, nil
		}
		return nil, err
	}
	return public, s.syncKeyDir()
}
