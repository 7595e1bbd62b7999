package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path"
	"slices"
)

// Sealed names what of a stream does not change any more: its sealed segments and its base manifests, ascending.
type Sealed struct {
	Segments []uint64
	Bases    []uint64
	First    uint64 // where the stream begins
}

// Sealed lists the sealed segments of a stream. Errors: ErrNotFound, ErrCorrupt, or of the file system.
func (s *Store) Sealed(stream string) (sealed Sealed, err error) {
	err = s.steady(stream, func(list listing) error {
		base, err := s.begin(s.streamDir(stream), list)
		if err != nil {
			return err
		}
		sealed = Sealed{First: base.firstSegment(), Bases: list.bases}
		for _, number := range list.behind(sealed.First) {
			if list.manifests[number] {
				sealed.Segments = append(sealed.Segments, number)
			}
		}
		slices.Sort(sealed.Bases)
		return nil
	})
	return sealed, err
}

// ReadManifest reads and checks the manifest of a segment; raw is the whole file. Errors: ErrCorrupt, or of the file
// system.
func (s *Store) ReadManifest(stream string, number uint64) (m Manifest, raw []byte, err error) {
	return s.readManifest(stream, number, s.checkSignature)
}

func (s *Store) readManifest(stream string, number uint64, check checker) (m Manifest, raw []byte, err error) {
	d := s.streamDir(stream)
	m, raw, err = loadManifest(d, number, check)
	if err == nil && (m.Stream != stream || m.Segment != number || m.StoreUUID != s.uuid.String()) {
		err = &CorruptError{Path: d.file(number, manifestSuffix), LSN: m.FirstLSN, Err: fmt.Errorf(
			"manifest is of segment %d of stream %q of store %s, expected %d of %q of %s", m.Segment, m.Stream,
			m.StoreUUID, number, stream, s.uuid)}
	}
	return m, raw, err
}

// DecodeManifest reads and checks the bytes of a manifest of this store, wherever they come from. Errors: ErrCorrupt.
func (s *Store) DecodeManifest(name string, raw []byte) (Manifest, error) {
	m, err := decodeManifest(raw, s.checkSignature)
	if err != nil {
		return m, &CorruptError{Path: name, LSN: m.FirstLSN, Err: err}
	}
	return m, nil
}

// Names of files of a store relative to its directory, slash-separated.
const (
	IdentityFile  = identityName
	PublicKeyFile = publicKeyName
)

// KeyFiles are the names of the statements of the keys that followed the first one, and of their public keys, relative
// to the store's directory: of all that the store knows.
func (s *Store) KeyFiles() (names []string) {
	for number := uint64(2); number <= uint64(len(s.Keys())); number++ {
		for _, suffix := range []string{".pub", ".json"} {
			names = append(names, path.Base(s.successorName(number, suffix)))
		}
	}
	return names
}

// IsKeyFile reports whether KeyFiles could have a name.
func IsKeyFile(name string) bool {
	var number uint64
	suffix := path.Ext(name)
	_, err := fmt.Sscanf(name, "signing-%010d", &number)
	return err == nil && number > 1 && (suffix == ".pub" || suffix == ".json") &&
		name == path.Base((&Store{}).successorName(number, suffix))
}

// SegmentFile is the name of a segment, relative to the store's directory.
func SegmentFile(stream string, number uint64) string { return relative(stream, number, segmentSuffix) }

// IndexFile is the name of a segment's index, relative to the store's directory.
func IndexFile(stream string, number uint64) string { return relative(stream, number, indexSuffix) }

// ManifestFile is the name of a segment's manifest, relative to the store's directory.
func ManifestFile(stream string, number uint64) string {
	return relative(stream, number, manifestSuffix)
}

// BaseFile is the name of a base manifest, relative to the store's directory.
func BaseFile(stream string, number uint64) string { return relative(stream, number, baseSuffix) }

// ArchivedFile is the name of the file that says how far a stream is archived, relative to the store's directory.
func ArchivedFile(stream string) string {
	return path.Join(streamsName, escapeName(stream), "archived.json")
}

func relative(stream string, number uint64, suffix string) string {
	return streamDir{path: path.Join(streamsName, escapeName(stream))}.file(number, suffix)
}

// FileName says what the name of a file in a store, relative to its directory, is of; ok is false for all that does not
// belong to a sealed segment or a base.
func FileName(name string) (stream string, number uint64, suffix string, ok bool) {
	dir, file := path.Split(name)
	parent, escaped := path.Split(path.Clean(dir))
	stream, isStream := unescapeName(escaped)
	suffix = path.Ext(file)
	if _, err := fmt.Sscanf(file, "%010d", &number); err != nil || !isStream || path.Clean(parent) != streamsName {
		return "", 0, "", false
	}
	isOurs := slices.Contains([]string{segmentSuffix, indexSuffix, manifestSuffix, baseSuffix}, suffix)
	return stream, number, suffix, isOurs && relative(stream, number, suffix) == name
}

// OpenFile opens a file of the store to read it, by its name relative to the store's directory.
func (s *Store) OpenFile(name string) (File, error) {
	full := path.Join(s.dir, name)
	file, err := s.fsys.OpenFile(full, os.O_RDONLY, 0)
	return file, wrap("open", full, err)
}

// SegmentHash is the SHA-256 that a manifest has of its segment: what is written to it is the segment's file, from the
// first byte on.
type SegmentHash struct {
	hash hash.Hash
	off  int64
}

// NewSegmentHash begins before the first byte.
func NewSegmentHash() *SegmentHash { return &SegmentHash{hash: sha256.New()} }

// Write leaves out the marks between header and records.
func (h *SegmentHash) Write(raw []byte) (int, error) {
	for rest := raw; len(rest) > 0; {
		length := int64(len(rest))
		switch {
		case h.off < segmentHeaderLen:
			length = min(length, segmentHeaderLen-h.off)
			_, _ = h.hash.Write(rest[:length])
		case h.off < segmentDataOffset:
			length = min(length, segmentDataOffset-h.off)
		default:
			_, _ = h.hash.Write(rest)
		}
		rest, h.off = rest[length:], h.off+length
	}
	return len(raw), nil
}

// Sum is the hash as manifests have it.
func (h *SegmentHash) Sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }
