package store

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/farlog/farlog/pkg/record"
)

const (
	manifestFormat   = "farlog-manifest"
	manifestVersion  = 1
	manifestBytesMax = 64 << 20
)

// Manifest is the signed word on a sealed segment (docs/reference/format.md section 5).
type Manifest struct {
	Format         string      `json:"format"`
	Version        int         `json:"version"`
	StoreUUID      string      `json:"store_uuid"`
	Stream         string      `json:"stream"`
	StreamID       uint32      `json:"stream_id"`
	Segment        uint64      `json:"segment"`
	Generation     uint64      `json:"generation"`
	RingUUID       string      `json:"ring_uuid"`
	FirstLSN       uint64      `json:"first_lsn"`
	LastLSN        uint64      `json:"last_lsn"`
	NextLSN        uint64      `json:"next_lsn"`
	FirstSeq       uint64      `json:"first_seq"`
	LastSeq        uint64      `json:"last_seq"`
	NextSeq        uint64      `json:"next_seq"`
	FirstEpoch     uint32      `json:"first_epoch"`
	LastEpoch      uint32      `json:"last_epoch"`
	Epochs         []EpochMark `json:"epochs"`
	RecordCount    uint64      `json:"record_count"`
	ControlCount   uint64      `json:"control_count"`
	PadCount       uint64      `json:"pad_count"`
	MinTimestampNS uint64      `json:"min_ts_ns"`
	MaxTimestampNS uint64      `json:"max_ts_ns"`
	UsedBytes      int64       `json:"used_bytes"`
	SHA256         string      `json:"sha256"`
	PreviousSHA256 string      `json:"previous_sha256"`
	SealedAt       string      `json:"sealed_at"`
}

type manifestFile struct {
	Manifest  json.RawMessage `json:"manifest"`
	Signature string          `json:"signature"`
}

// What can be wrong with a manifest.
var (
	errManifestForm      = errors.New("manifest is not what its fields encode to")
	errManifestSignature = errors.New("manifest signature does not match")
)

// newManifest takes all its numbers from what was appended or walked.
func newManifest(h segmentHeader, sum summary, end chain, usedBytes int64, hash, previous [sha256.Size]byte,
	now time.Time,
) Manifest {
	marks := sum.marks
	if marks == nil {
		marks = []EpochMark{}
	}
	return Manifest{
		Format: manifestFormat, Version: manifestVersion,
		StoreUUID: h.StoreUUID.String(), Stream: h.StreamName, StreamID: h.StreamID,
		Segment: h.Number, Generation: h.Generation, RingUUID: h.RingUUID.String(),
		FirstLSN: sum.firstLSN, LastLSN: sum.lastLSN, NextLSN: end.LSN,
		FirstSeq: sum.firstSeq, LastSeq: sum.lastSeq, NextSeq: end.Seq,
		FirstEpoch: sum.firstEpoch, LastEpoch: sum.lastEpoch, Epochs: marks,
		RecordCount: sum.recordCount, ControlCount: sum.controlCount, PadCount: sum.padCount,
		MinTimestampNS: sum.minTS, MaxTimestampNS: sum.maxTS,
		UsedBytes: usedBytes, SHA256: hex.EncodeToString(hash[:]), PreviousSHA256: hex.EncodeToString(previous[:]),
		SealedAt: now.UTC().Format(time.RFC3339Nano),
	}
}

// end is the chain after the segment's last record.
func (m Manifest) end() chain {
	return chain{isBegun: true, Cursor: record.Cursor{LSN: m.NextLSN, Seq: m.NextSeq, Epoch: m.LastEpoch}}
}

// encodeManifest signs a manifest and makes the bytes of its file.
func encodeManifest(m Manifest, sign func([]byte) ([]byte, error)) ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	signature, err := sign(body)
	if err != nil {
		return nil, fmt.Errorf("sign manifest: %w", err)
	}
	return frameManifest(body, signature)
}

func frameManifest(body, signature []byte) ([]byte, error) {
	raw, err := json.Marshal(manifestFile{Manifest: body, Signature: hex.EncodeToString(signature)})
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(raw, '\n'), nil
}

// decodeManifest reads a manifest and checks its form and its signature. Every byte of the file counts.
func decodeManifest(raw []byte, check checker) (Manifest, error) {
	var file manifestFile
	var m Manifest
	if err := json.Unmarshal(raw, &file); err != nil {
		return m, fmt.Errorf("%w: %w", errManifestForm, err)
	}
	if err := json.Unmarshal(file.Manifest, &m); err != nil {
		return m, fmt.Errorf("%w: %w", errManifestForm, err)
	}
	signature, err := hex.DecodeString(file.Signature)
	if err != nil || len(signature) != ed25519.SignatureSize {
		return m, fmt.Errorf("%w: signature is not %d bytes in hexadecimal", errManifestForm, ed25519.SignatureSize)
	}
	if err := check(file.Manifest, signature); err != nil {
		return m, fmt.Errorf("%w: %w", errManifestSignature, err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return m, fmt.Errorf("%w: %w", errManifestForm, err)
	}
	again, err := frameManifest(body, signature)
	switch {
	case err != nil:
		return m, err
	case !bytes.Equal(again, raw):
		return m, errManifestForm
	case m.Format != manifestFormat || m.Version != manifestVersion:
		return m, fmt.Errorf("%w: format %q version %d, expected %q version %d",
			errManifestForm, m.Format, m.Version, manifestFormat, manifestVersion)
	}
	return m, nil
}

// loadManifest reads the manifest of a segment; raw is what the next one's chain is made of.
func loadManifest(dir streamDir, number uint64, check checker) (m Manifest, raw []byte, err error) {
	name := dir.file(number, manifestSuffix)
	if raw, err = readFile(dir.fsys, name, manifestBytesMax); err != nil {
		return m, nil, wrap("read", name, err)
	}
	if m, err = decodeManifest(raw, check); err != nil {
		return m, raw, &CorruptError{Path: name, LSN: m.FirstLSN, Err: err}
	}
	return m, raw, nil
}
