package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrAnchor: an anchor does not continue an earlier one of its stream. Records are gone, or they are others.
var ErrAnchor = errors.New("anchor does not continue the one before")

// Anchor commits to all that a stream holds up to one point (docs/reference/format-store-anchors.md). Kept where the
// store is not, it finds a store whose end was cut off, and one that was written again with the store's own key.
type Anchor struct {
	StoreUUID  string `json:"store_uuid"`
	Stream     string `json:"stream"`
	RingUUID   string `json:"ring_uuid"`
	Generation uint64 `json:"generation"`
	Segment    uint64 `json:"segment"`
	Offset     int64  `json:"offset"` // in the segment, after the last record
	Epoch      uint32 `json:"epoch"`
	NextLSN    uint64 `json:"next_lsn"`
	NextSeq    uint64 `json:"next_seq"`
	SHA256     string `json:"sha256"` // of the segment's header and its records up to Offset
	// The newest segment with a manifest, and the SHA-256 of that file; 0 and 64 zeros: there is none.
	SealedSegment  uint64    `json:"sealed_segment"`
	ManifestSHA256 string    `json:"manifest_sha256"`
	Time           time.Time `json:"time"`             // when it was made
	Source         string    `json:"source,omitempty"` // who keeps it, for people
}

// Anchor commits to what is synced. ok is false while the stream holds no record. It waits until the last batch is
// hashed, so it is called now and then, not after each Sync.
func (a *Appender) Anchor() (anchor Anchor, ok bool) {
	anchor = a.ended
	if a.active != nil && a.synced.end > segmentDataOffset {
		anchor = endAnchor(a.active.header, a.synced.chain, a.synced.end, a.hash.keptDigest())
	}
	anchor.SealedSegment = a.rollover.sealed.Load()
	anchor.ManifestSHA256 = hex.EncodeToString(a.rollover.previous[:])
	anchor.Time = a.store.options.Now().UTC()
	return anchor, anchor.Segment != 0
}

// endAnchor is an anchor without what it says of manifests.
func endAnchor(h segmentHeader, at chain, end int64, digest [sha256.Size]byte) Anchor {
	return Anchor{
		StoreUUID: h.StoreUUID.String(), Stream: h.StreamName, RingUUID: h.RingUUID.String(),
		Generation: h.Generation, Segment: h.Number, Offset: end,
		Epoch: at.Epoch, NextLSN: at.LSN, NextSeq: at.Seq, SHA256: hex.EncodeToString(digest[:]),
	}
}

// keptDigest is the SHA-256 as of the last sync.
func (x *hasher) keptDigest() [sha256.Size]byte {
	x.wait()
	return [sha256.Size]byte(x.kept.Sum(nil))
}

// place is the position that an anchor speaks of.
func (a Anchor) place() string {
	return fmt.Sprintf("lsn %d (segment %d, offset %d, of store %s)", a.NextLSN, a.Segment, a.Offset, a.StoreUUID)
}

// isBehind reports whether an anchor speaks of an earlier point than another one of the same store.
func (a Anchor) isBehind(other Anchor) bool {
	return a.Segment < other.Segment || a.Segment == other.Segment && a.Offset < other.Offset
}

// CheckAfter reports whether an anchor can be of the same stream as an earlier one, at the same point or a later one.
// Errors: ErrAnchor.
func (a Anchor) CheckAfter(before Anchor) error {
	switch {
	case a.Stream != before.Stream || a.StoreUUID != before.StoreUUID:
		return fmt.Errorf("%w: stream %s of store %s after stream %s of store %s", ErrAnchor, a.Stream, a.StoreUUID,
			before.Stream, before.StoreUUID)
	case a.isBehind(before):
		return fmt.Errorf("%w: stream %s went back from %s to %s", ErrAnchor, a.Stream, before.place(), a.place())
	case a.SealedSegment < before.SealedSegment:
		return fmt.Errorf("%w: stream %s had a manifest for segment %d, and has one only for segment %d", ErrAnchor,
			a.Stream, before.SealedSegment, a.SealedSegment)
	case !a.isBehind(before) && !before.isBehind(a) && !a.isSamePoint(before):
		return fmt.Errorf("%w: stream %s holds other records up to %s: SHA-256 %s, it was %s", ErrAnchor, a.Stream,
			a.place(), a.SHA256, before.SHA256)
	case a.SealedSegment == before.SealedSegment && a.ManifestSHA256 != before.ManifestSHA256:
		return fmt.Errorf("%w: stream %s has another manifest for segment %d: SHA-256 %s, it was %s", ErrAnchor,
			a.Stream, a.SealedSegment, a.ManifestSHA256, before.ManifestSHA256)
	}
	return nil
}

func (a Anchor) isSamePoint(b Anchor) bool {
	return a.RingUUID == b.RingUUID && a.Generation == b.Generation && a.Epoch == b.Epoch &&
		a.NextLSN == b.NextLSN && a.NextSeq == b.NextSeq && a.SHA256 == b.SHA256
}

// anchorFile is a file of anchors; verify --output json prints one, among other fields.
type anchorFile struct {
	Anchors []Anchor `json:"anchors"`
}

// ParseAnchors reads the field "anchors" of a JSON document. A document that has no anchor is refused: it would prove
// nothing. Errors: ErrInvalid.
func ParseAnchors(raw []byte) ([]Anchor, error) {
	var file anchorFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("%w: anchors: %w", ErrInvalid, err)
	}
	if len(file.Anchors) == 0 {
		return nil, fmt.Errorf("%w: no anchor: expected a list in the field \"anchors\"", ErrInvalid)
	}
	for i, anchor := range file.Anchors {
		if err := anchor.validate(); err != nil {
			return nil, fmt.Errorf("%w: anchor %d: %w", ErrInvalid, i+1, err)
		}
	}
	return file.Anchors, nil
}

// FormatAnchors makes what ParseAnchors reads.
func FormatAnchors(anchors []Anchor) ([]byte, error) {
	raw, err := json.MarshalIndent(anchorFile{Anchors: anchors}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode anchors: %w", err)
	}
	return append(raw, '\n'), nil
}

func (a Anchor) validate() error {
	if a.StoreUUID == "" || a.Stream == "" || a.RingUUID == "" || a.Segment == 0 || a.Generation == 0 ||
		a.Offset <= segmentDataOffset {
		return errors.New("expected store_uuid, stream, ring_uuid, generation, segment and an offset of records")
	}
	for _, hash := range []string{a.SHA256, a.ManifestSHA256} {
		if raw, err := hex.DecodeString(hash); err != nil || len(raw) != sha256.Size {
			return fmt.Errorf("hash %q, expected %d bytes in hexadecimal", hash, sha256.Size)
		}
	}
	return nil
}
