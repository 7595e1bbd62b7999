// Package store keeps streams of records on a file system: append-only segments of verbatim records, with a sparse
// index, sealed by signed manifests that form a chain. The bytes, the order of syncs and every crash case are in
// docs/reference/format.md, sections 5 and 6.
//
// An Appender puts the batches of one ring into one stream; a Reader goes along a stream, also while an appender in
// another process writes it; Verify proves that nothing before the end of a stream is missing, altered or out of order,
// or names the first place where that fails.
package store

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"sync/atomic"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

// Sizes of a segment.
const (
	SegmentBytesDefault = 64 << 20
	SegmentBytesMin     = 16 << 10
)

// Options of a store. The zero value is the product's.
type Options struct {
	Create       bool  // make the store when the directory holds none
	SegmentBytes int64 // size of new segments; 0 = 64 MiB
	FS           FS    // nil = OS
	// KeyDir is the directory of the signing key, outside of the store; "" = in the store.
	KeyDir string
	// Signer signs in place of a key in KeyDir; nil = the key is there.
	Signer Signer
	// IsSynchronous makes the appender prepare and seal segments itself instead of in the background: a reproducible
	// order for crash tests.
	IsSynchronous bool
	Now           func() time.Time // nil = time.Now

	isDerived bool // of Derived
}

// Store is an open store. It holds no lock and no open file; methods may be called from any goroutine.
type Store struct {
	dir     string
	streams string // the directory of the streams
	fsys    FS
	options Options
	signing *signing
	uuid    record.UUID
	key     ed25519.PublicKey // the first, of its identity
	keys    *keyList          // with those that followed
	synced  *atomic.Pointer[func(stream string)]
}

type identityFile struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	StoreUUID string `json:"store_uuid"`
	PublicKey string `json:"public_key"`
}

const (
	identityFormat  = "farlog-store"
	identityVersion = 1
)

// Open opens the store in dir, or makes it when options.Create is set and dir is missing, empty, or a store whose
// making was interrupted. Errors: ErrNotAStore, ErrInvalid, ErrNoSpace, ErrLocked (another process is making it).
func Open(dir string, options Options) (*Store, error) {
	if options.FS == nil {
		options.FS = OS
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.SegmentBytes = cmp.Or(options.SegmentBytes, SegmentBytesDefault)
	if options.SegmentBytes < SegmentBytesMin || options.SegmentBytes%segmentDataOffset != 0 {
		return nil, fmt.Errorf("%w: segment size %d, expected a multiple of %d from %d on",
			ErrInvalid, options.SegmentBytes, segmentDataOffset, SegmentBytesMin)
	}
	s := &Store{
		dir: dir, streams: path.Join(dir, streamsName), fsys: options.FS, options: options,
		signing: &signing{now: options.Now}, synced: new(atomic.Pointer[func(string)]),
	}
	if err := s.checkKeyDir(); err != nil {
		return nil, err
	}
	err := s.load()
	if err == nil && options.Create {
		err = s.syncDirs()
	}
	if err == nil || !isNotExist(err) {
		return s, err
	}
	if !options.Create {
		return nil, fmt.Errorf("%w: %s has no %s: expected a directory that a farlog drain made", ErrNotAStore, dir,
			identityName)
	}
	if err := s.create(); err != nil {
		return nil, err
	}
	return s, s.load()
}

// UUID is the store's identity.
func (s *Store) UUID() record.UUID { return s.uuid }

// PublicKey is the first key that signs for the store, as its identity file has it; Keys has those that followed.
func (s *Store) PublicKey() ed25519.PublicKey { return s.key }

// OnSynced lets f be called whenever an appender of this store, in this process, has synced records of a stream: from
// the goroutine of the appender, which waits for it.
func (s *Store) OnSynced(f func(stream string)) { s.synced.Store(&f) }

func (s *Store) noteSynced(stream string) {
	if f := s.synced.Load(); f != nil {
		(*f)(stream)
	}
}

// Dir is the directory of the store.
func (s *Store) Dir() string { return s.dir }

// Streams lists the names of the streams in the store, sorted.
func (s *Store) Streams() ([]string, error) {
	names, err := s.fsys.ReadDir(s.streams)
	if err != nil {
		return nil, wrap("list", s.streams, err)
	}
	var streams []string
	for _, name := range names {
		if stream, ok := unescapeName(name); ok {
			streams = append(streams, stream)
		}
	}
	sort.Strings(streams)
	return streams, nil
}

func (s *Store) streamDir(stream string) streamDir {
	return streamDir{fsys: s.fsys, path: path.Join(s.streams, escapeName(stream))}
}

// load reads who the store is, and its keys.
func (s *Store) load() error {
	if err := s.loadIdentity(); err != nil {
		return err
	}
	s.keys = &keyList{list: []ed25519.PublicKey{s.key}}
	return s.loadKeys()
}

func (s *Store) loadIdentity() error {
	name := path.Join(s.dir, identityName)
	raw, err := readFile(s.fsys, name, 1<<16)
	if err != nil {
		return wrap("read", name, err)
	}
	var identity identityFile
	if err := json.Unmarshal(raw, &identity); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotAStore, name, err)
	}
	if identity.Format != identityFormat || identity.Version != identityVersion {
		return fmt.Errorf("%w: %s: format %q version %d, expected %q version %d",
			ErrNotAStore, name, identity.Format, identity.Version, identityFormat, identityVersion)
	}
	if s.uuid, err = record.ParseUUID(identity.StoreUUID); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotAStore, name, err)
	}
	key, err := hex.DecodeString(identity.PublicKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return fmt.Errorf("%w: %s: public key %q, expected %d bytes in hexadecimal",
			ErrNotAStore, name, identity.PublicKey, ed25519.PublicKeySize)
	}
	s.key = key
	return nil
}

// create makes the store: keys and directories first, the identity file last.
func (s *Store) create() error {
	if err := s.checkOnlyOurs(); err != nil && !isNotExist(err) {
		return err
	}
	if err := s.fsys.Mkdir(s.dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return wrap("make store", s.dir, err)
	}
	lock, err := s.fsys.Lock(path.Join(s.dir, createLockName), holderText())
	if err != nil {
		return wrap("make store, lock", path.Join(s.dir, createLockName), err)
	}
	defer lock.Close()
	if err := s.load(); err == nil || !isNotExist(err) {
		return err
	}
	public, err := s.createKeys()
	if err != nil {
		return err
	}
	if err := s.fsys.Mkdir(s.streams, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return wrap("make", s.streams, err)
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return wrap("sync", s.dir, err)
	}
	if err := s.createIdentity(public); err != nil {
		return err
	}
	return s.syncDirs()
}

// syncDirs makes the store's own entries durable. Whoever will write does it also to a store that is there: its maker
// may have been killed before, and a power cut would then take the whole store from under records that were synced.
func (s *Store) syncDirs() error {
	for _, dir := range []string{s.dir, path.Dir(path.Clean(s.dir))} {
		if err := s.fsys.SyncDir(dir); err != nil {
			return wrap("sync", dir, err)
		}
	}
	return nil
}

// checkOnlyOurs refuses a directory that holds anything but the beginnings of a store.
func (s *Store) checkOnlyOurs() error {
	names, err := s.fsys.ReadDir(s.dir)
	if err != nil {
		return wrap("list", s.dir, err)
	}
	ours := map[string]bool{createLockName: true, streamsName: true}
	for _, name := range []string{identityName, privateKeyName, publicKeyName} {
		ours[name], ours[name+tmpSuffix] = true, true
	}
	for _, name := range names {
		if !ours[name] {
			return fmt.Errorf("%w: %s holds %q and no %s: expected an empty directory to make a store in",
				ErrNotAStore, s.dir, name, identityName)
		}
	}
	return nil
}

func (s *Store) createIdentity(public ed25519.PublicKey) error {
	var uuid record.UUID
	if _, err := rand.Read(uuid[:]); err != nil {
		return fmt.Errorf("make store uuid: %w", err)
	}
	uuid[6], uuid[8] = uuid[6]&0x0F|0x40, uuid[8]&0x3F|0x80
	raw, err := json.Marshal(identityFile{
		Format: identityFormat, Version: identityVersion, StoreUUID: uuid.String(),
		PublicKey: hex.EncodeToString(public),
	})
	if err != nil {
		return fmt.Errorf("encode store identity: %w", err)
	}
	return writeFile(s.fsys, path.Join(s.dir, identityName), append(raw, '\n'), 0o640)
}

// ParsePublicKey reads a public key as signing.pub has it, for verifying a store against a key kept elsewhere.
func ParsePublicKey(raw []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%w: public key is not PEM", ErrInvalid)
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: public key: %w", ErrInvalid, err)
	}
	public, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%w: public key is %T, expected Ed25519", ErrInvalid, key)
	}
	return public, nil
}
