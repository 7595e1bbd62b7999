package store

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

const (
	baseFormat   = "farlog-base"
	baseVersion  = 1
	baseBytesMax = 1 << 20
)

// Base is a base manifest: the signed statement that a stream begins at a segment, and how what lay before it ended
// (docs/reference/format-store-base.md). Counts are of everything before the segment, since the stream began.
type Base struct {
	Format          string   `json:"format"`
	Version         int      `json:"version"`
	StoreUUID       string   `json:"store_uuid"`
	Stream          string   `json:"stream"`
	StreamID        uint32   `json:"stream_id"`
	Segment         uint64   `json:"segment"` // the first that is there
	Generation      uint64   `json:"generation"`
	RingUUID        string   `json:"ring_uuid"`
	LastEpoch       uint32   `json:"last_epoch"`
	LastLSN         uint64   `json:"last_lsn"`
	NextLSN         uint64   `json:"next_lsn"`
	LastSeq         uint64   `json:"last_seq"`
	NextSeq         uint64   `json:"next_seq"`
	SegmentSHA256   string   `json:"segment_sha256"`  // of the last removed segment
	ManifestSHA256  string   `json:"manifest_sha256"` // of the file of its manifest
	RemovedSegments uint64   `json:"removed_segments"`
	RemovedRecords  uint64   `json:"removed_records"`
	RemovedBytes    int64    `json:"removed_bytes"`
	MaxTimestampNS  uint64   `json:"max_ts_ns"`    // newest of all records that were removed, since the stream began
	FormerRings     []string `json:"former_rings"` // that records were removed of
	Policy          string   `json:"policy"`
	RemovedBy       string   `json:"removed_by"`
	RemovedAt       string   `json:"removed_at"`
	ArchivedAt      string   `json:"archived_at"` // "" = nowhere: removed without an archive
	PreviousSHA256  string   `json:"previous_sha256"`

	digest [sha256.Size]byte
}

// Digest is the SHA-256 of the base manifest's file. b is not nil.
func (b *Base) Digest() [sha256.Size]byte { return b.digest }

type baseFile struct {
	Base      json.RawMessage `json:"base"`
	Signature string          `json:"signature"`
}

// What can be wrong with a base manifest.
var (
	errBaseForm      = errors.New("base manifest is not what its fields encode to")
	errBaseSignature = errors.New("signature of the base manifest does not match")
	errBaseFit       = errors.New("base manifest does not fit the first segment")
)

func encodeBase(b Base, sign func([]byte) ([]byte, error)) ([]byte, error) {
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode base manifest: %w", err)
	}
	signature, err := sign(body)
	if err != nil {
		return nil, err
	}
	return frameBase(body, signature)
}

func frameBase(body, signature []byte) ([]byte, error) {
	raw, err := json.Marshal(baseFile{Base: body, Signature: hex.EncodeToString(signature)})
	if err != nil {
		return nil, fmt.Errorf("encode base manifest: %w", err)
	}
	return append(raw, '\n'), nil
}

// decodeBase reads a base manifest and checks its form and its signature. Every byte of the file counts.
func decodeBase(raw []byte, check checker) (Base, error) {
	var file baseFile
	var b Base
	if err := errors.Join(json.Unmarshal(raw, &file), json.Unmarshal(file.Base, &b)); err != nil {
		return b, fmt.Errorf("%w: %w", errBaseForm, err)
	}
	signature, err := hex.DecodeString(file.Signature)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return b, fmt.Errorf("%w: signature is not %d bytes in hexadecimal", errBaseForm, ed25519.SignatureSize)
	}
	if err := check(file.Base, signature); err != nil {
		return b, fmt.Errorf("%w: %w", errBaseSignature, err)
	}
	again, err := encodeBase(b, func([]byte) ([]byte, error) { return signature, nil })
	switch {
	case err != nil:
		return b, err
	case !bytes.Equal(again, raw):
		return b, errBaseForm
	case b.Format != baseFormat || b.Version != baseVersion:
		return b, fmt.Errorf("%w: format %q version %d, expected %q version %d", errBaseForm, b.Format, b.Version,
			baseFormat, baseVersion)
	}
	for _, digest := range []string{b.SegmentSHA256, b.ManifestSHA256, b.PreviousSHA256} {
		if raw, err := hex.DecodeString(digest); err != nil || len(raw) != sha256.Size {
			return b, fmt.Errorf("%w: %q is no SHA-256", errBaseForm, digest)
		}
	}
	if _, err := time.Parse(time.RFC3339Nano, b.RemovedAt); err != nil {
		return b, fmt.Errorf("%w: removed_at: %w", errBaseForm, err)
	}
	return b, nil
}

// loadBase reads the base manifest with the given number and checks whose it is.
func (d streamDir) loadBase(s *Store, stream string, number uint64, check checker) (b Base, raw []byte,
	err error,
) {
	name := d.file(number, baseSuffix)
	if raw, err = readFile(d.fsys, name, baseBytesMax); err != nil {
		return b, nil, wrap("read", name, err)
	}
	b, err = decodeBase(raw, check)
	b.digest = sha256.Sum256(raw)
	switch {
	case err != nil:
	case b.Segment != number:
		err = fmt.Errorf("%w: it says segment %d", errBaseForm, b.Segment)
	case b.StoreUUID != s.uuid.String() || b.Stream != stream:
		err = fmt.Errorf("base manifest is of stream %q of store %s, expected %q of %s", b.Stream, b.StoreUUID, stream,
			s.uuid)
	}
	if err != nil {
		return b, raw, &CorruptError{Path: name, LSN: b.NextLSN, Err: err}
	}
	return b, raw, nil
}

// begin is where a stream begins: nil, at its first segment; else where its newest base manifest says.
func (s *Store) begin(d streamDir, list listing) (*Base, error) {
	if len(list.bases) == 0 {
		return nil, nil
	}
	stream, isName := unescapeName(path.Base(d.path))
	if !isName {
		return nil, fmt.Errorf("%w: %s is no directory of a stream", ErrInvalid, d.path)
	}
	b, _, err := d.loadBase(s, stream, list.bases[len(list.bases)-1], s.checkSignature)
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// firstSegment is the number of the first segment behind a base; without one the first of all.
func (b *Base) firstSegment() uint64 {
	if b == nil {
		return 1
	}
	return b.Segment
}

// end is the chain behind the last removed record.
func (b *Base) end() chain {
	return chain{isBegun: true, Cursor: record.Cursor{LSN: b.NextLSN, Seq: b.NextSeq, Epoch: b.LastEpoch}}
}

// last is the place of the last removed record.
func (b *Base) last() Place { return Place{b.Generation, b.LastEpoch, b.LastLSN} }

// HasRemoved reports whether a place is before the first record that is there. Nothing was removed by a nil base.
func (b *Base) HasRemoved(p Place) bool {
	return b != nil && p.Generation != 0 && !b.last().IsBefore(p)
}

// digests are the SHA-256 of the last removed segment, and of its manifest's file. decodeBase has checked their form.
func (b *Base) digests() (segment, manifest [sha256.Size]byte) {
	_, _ = hex.Decode(segment[:], []byte(b.SegmentSHA256))
	_, _ = hex.Decode(manifest[:], []byte(b.ManifestSHA256))
	return segment, manifest
}

// checkFit compares the header of the first segment with what the base says of the last one before.
func (b *Base) checkFit(h segmentHeader) error {
	segment, _ := b.digests()
	isSameRing := b.RingUUID == h.RingUUID.String()
	switch {
	case h.Generation == b.Generation && isSameRing && h.start() == b.end():
	case h.Generation == b.Generation+1 && !isSameRing && h.PrevEpoch == 0:
	default:
		return fmt.Errorf("%w: it says generation %d of ring %s up to lsn %d, seq %d, epoch %d; the segment's header "+
			"has generation %d of ring %s behind lsn %d, seq %d, epoch %d", errBaseFit, b.Generation, b.RingUUID,
			b.NextLSN, b.NextSeq, b.LastEpoch, h.Generation, h.RingUUID, h.PrevNextLSN, h.PrevNextSeq, h.PrevEpoch)
	}
	if h.isSigned() && h.PrevSHA256 != segment {
		return fmt.Errorf("%w: SHA-256 of the last removed segment is %x by the base and %x by the header", errBaseFit,
			segment, h.PrevSHA256)
	}
	return nil
}

// checkThere reports a base whose first segment is missing. Only a stream that was begun as a copy of another one has a
// base before it has a segment.
func (b *Base) checkThere(d streamDir, begun int) error {
	if b == nil || begun > 0 || b.RemovedSegments == 0 || b.Segment == 1 {
		return nil
	}
	return &CorruptError{Path: d.file(b.Segment, segmentSuffix), LSN: b.NextLSN, Err: fmt.Errorf(
		"segment %w: the base manifest says that the stream begins with it", ErrMissing)}
}

// statement says what lay before the stream's first segment.
func (b *Base) statement() string {
	return fmt.Sprintf("; before segment %d, %d segments with %d records were removed, the last at %s by %q, %s",
		b.Segment, b.RemovedSegments, b.RemovedRecords, b.RemovedAt, b.Policy, b.where())
}

func (b *Base) where() string {
	if b.ArchivedAt == "" {
		return "without an archive"
	}
	return "and archived at " + b.ArchivedAt
}

// Statement says where the stream begins, and what lay before. b is not nil.
func (b *Base) Statement() string {
	newest := time.Unix(0, int64(min(b.MaxTimestampNS, math.MaxInt64))).UTC().Format(time.RFC3339Nano)
	return fmt.Sprintf("stream %s begins at segment %d, behind lsn %d of generation %d: before it, %d segments with "+
		"%d records, the newest of %s, were removed, the last at %s by %q, %s", b.Stream, b.Segment, b.LastLSN,
		b.Generation, b.RemovedSegments, b.RemovedRecords, newest, b.RemovedAt, b.Policy, b.where())
}

// HasRemovedLSN reports whether a record at lsn or behind it may have been removed. Nothing was by a nil base.
func (b *Base) HasRemovedLSN(lsn uint64) bool {
	return b != nil && (lsn < b.NextLSN || b.Generation > 1)
}

// HasRemovedTime reports whether a record of ts, in nanoseconds since 1970, or later may have been removed. Nothing was
// by a nil base.
func (b *Base) HasRemovedTime(ts uint64) bool { return b != nil && ts <= b.MaxTimestampNS }

// removedError says that a place is in what was removed.
func (b *Base) removedError(stream string) error {
	return fmt.Errorf("%w: stream %s begins at segment %d, behind lsn %d of epoch %d, generation %d: what lies before "+
		"was removed at %s by %q; begin at the oldest record that is there", ErrRemoved, stream, b.Segment, b.LastLSN,
		b.LastEpoch, b.Generation, b.RemovedAt, b.Policy)
}

// Base gives the base manifest of a stream; nil: it begins with its first segment. Errors: ErrNotFound, ErrCorrupt.
func (s *Store) Base(stream string) (base *Base, err error) {
	err = s.steady(stream, func(list listing) (err error) {
		base, err = s.begin(s.streamDir(stream), list)
		return err
	})
	return base, err
}
