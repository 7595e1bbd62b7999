package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// An excerpt of a store has the records of a window, and what proves them: its identity and its keys, all base
// manifests and all manifests of a stream, the segments with records near the window, and of the other sealed segments
// the header, which is signed as their manifests are. Files have the names and the bytes that they have in the store;
// segments end where their records do. A Reader with the same window reads it as a store, and VerifyOptions.IsExcerpt
// verifies it.

// ExcerptFile is a file of an excerpt.
type ExcerptFile struct {
	Name string // relative to the store's directory
	Size int64  // so many of its bytes; 0 = all
	Head []byte // the first of them, where the store may change them meanwhile
}

// Excerpt lists what of a stream an excerpt for a window has. What was not yet synced is not in it. Errors:
// ErrNotFound, ErrCorrupt, ErrRemoved (meanwhile), or of the file system.
func (s *Store) Excerpt(stream string, window Window) (files []ExcerptFile, err error) {
	r, err := s.OpenReader(stream, ReaderOptions{IncludeControl: true, SyncedOnly: true, Window: window})
	if err != nil {
		return nil, err
	}
	sealed, err := s.Sealed(stream)
	if err != nil {
		return nil, err
	}
	if sealed.First != r.base.firstSegment() {
		return nil, r.checkRemoved(r.base.firstSegment())
	}
	for _, number := range sealed.Bases {
		files = append(files, ExcerptFile{Name: BaseFile(stream, number)})
	}
	for i := range r.segments {
		number := r.segments[i].number
		if _, isSealed := slices.BinarySearch(sealed.Segments, number); !isSealed {
			one, err := r.excerptOpen(i)
			if err != nil {
				return nil, err
			}
			files = append(files, one...)
			continue
		}
		m, _, err := s.ReadManifest(stream, number)
		if err != nil {
			return nil, err
		}
		one := ExcerptFile{Name: SegmentFile(stream, number), Size: m.UsedBytes}
		if r.segments[i].part.isEmpty {
			one.Size = segmentDataOffset
		}
		files = append(files, ExcerptFile{Name: ManifestFile(stream, number)}, one)
	}
	return files, nil
}

// excerptOpen is a segment without a manifest, up to where it was synced: none when nothing was.
func (r *Reader) excerptOpen(i int) ([]ExcerptFile, error) {
	s := &r.segments[i]
	file, err := r.store.OpenFile(SegmentFile(r.stream, s.number))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, segmentDataOffset)
	if _, err := file.ReadAt(head, 0); err != nil {
		return nil, wrap("read", s.name, err)
	}
	if _, err := decodeSegmentHeader(head); err != nil {
		return nil, &CorruptError{Path: s.name, Err: err}
	}
	synced := int64(0)
	for _, off := range []int{markAOffset, markBOffset} {
		if m, ok := decodeMark(head[off:off+markLen], s.header.Salt); ok {
			synced = max(synced, m.syncedOffset)
		}
	}
	if synced <= segmentDataOffset {
		return nil, nil
	}
	return []ExcerptFile{{Name: SegmentFile(r.stream, s.number), Size: synced, Head: head}}, nil
}

// IdentityFiles are the names of the files that say which store it is, and by which keys it is signed, relative to its
// directory; the last ones may be missing.
func (s *Store) IdentityFiles() []string {
	return append(append([]string{identityName}, s.KeyFiles()...), publicKeyName)
}

// IsExcerptFile reports whether Excerpt or IdentityFiles could have a name: indexes are not among them, nobody signs
// those.
func IsExcerptFile(name string) bool {
	_, _, suffix, isOfStream := FileName(name)
	return name == identityName || name == publicKeyName || IsKeyFile(name) || isOfStream && suffix != indexSuffix
}

// marksOf gives the epochs that begin in a segment: those of its signed manifest, without one those of its records.
func (r *Reader) marksOf(i int) ([]EpochMark, error) {
	s := &r.segments[i]
	m, _, err := r.store.ReadManifest(r.stream, s.number)
	if err == nil && m.FirstLSN == s.header.FirstLSN && m.Generation == s.header.Generation {
		return m.Epochs, nil
	}
	x, err := rebuildIndex(r.dir, s.number)
	return x.marks, err
}

// isCut reports whether an excerpt has the header of a sealed segment alone.
func (v *verifier) isCut(f found) bool {
	return v.options.IsExcerpt && f.isSealed && f.size == segmentDataOffset
}

// cutSegment checks the manifest of a segment whose records were left out against its header and its neighbors: hash,
// chain and signature.
func (v *verifier) cutSegment(f found) error {
	m, _, err := loadManifest(v.dir, f.number, v.store.checkSignature)
	if err != nil {
		return err
	}
	var digest [sha256.Size]byte
	if n, err := hex.Decode(digest[:], []byte(m.SHA256[:min(len(m.SHA256), 2*sha256.Size)])); err != nil ||
		n != sha256.Size {
		return fail(v.dir.file(f.number, manifestSuffix), m.FirstLSN, 0, "%q is no SHA-256", m.SHA256)
	}
	if m.FirstLSN != f.header.FirstLSN || m.FirstSeq != f.header.FirstSeq {
		return fail(f.name, f.header.FirstLSN, 0, "header says lsn %d, seq %d first, the manifest %d, %d",
			f.header.FirstLSN, f.header.FirstSeq, m.FirstLSN, m.FirstSeq)
	}
	v.lastWalk = walked{
		front: f.front, chain: m.end(), end: m.UsedBytes,
		stop: fmt.Errorf("%w: the records of the segment are not in the excerpt", ErrMissing),
		sum: summary{
			recordCount: m.RecordCount, controlCount: m.ControlCount, padCount: m.PadCount,
			firstLSN: m.FirstLSN, lastLSN: m.LastLSN, firstSeq: m.FirstSeq, lastSeq: m.LastSeq,
			firstEpoch: m.FirstEpoch, lastEpoch: m.LastEpoch, minTS: m.MinTimestampNS, maxTS: m.MaxTimestampNS,
			marks: m.Epochs, isAny: true,
		},
	}
	if err := v.checkManifest(f, digest); err != nil {
		return err
	}
	for _, mark := range m.Epochs {
		if n := len(v.marks); n == 0 || mark.Epoch > v.marks[n-1].Epoch {
			v.marks = append(v.marks, mark)
		}
	}
	g := &v.report.Generations[len(v.report.Generations)-1]
	g.NextLSN, g.NextSeq, g.LastEpoch = m.NextLSN, m.NextSeq, m.LastEpoch
	v.report.SealedSegments++
	v.report.CutSegments++
	v.cutGeneration = m.Generation
	v.at, v.before = v.lastWalk.chain, digest
	return nil
}

// isInCut reports whether an epoch of a generation may go back to a record that an excerpt left out: nothing is there
// to compare it with. That it was so when it was stored, the signed headers and manifests say.
func (v *verifier) isInCut(generation uint64) bool { return v.cutGeneration == generation }
