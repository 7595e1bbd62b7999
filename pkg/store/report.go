package store

import (
	"fmt"
	"slices"
	"time"
)

// Report is what Verify found in a store, a stream or a segment.
type Report struct {
	StoreUUID string         `json:"store_uuid"`
	Streams   []StreamReport `json:"streams"`
	// KeyFailure says why signing.pub is not the public key that store.json has; "" when it is, or is not there.
	KeyFailure   string `json:"key_failure,omitempty"`
	IsKeyMissing bool   `json:"key_missing,omitempty"` // there is no signing.pub, to be kept elsewhere
}

// OK reports whether nothing is missing, altered or out of order in any stream, up to its end here. Where a stream ends
// is not proved.
func (r Report) OK() bool {
	return r.KeyFailure == "" && !slices.ContainsFunc(r.Streams, func(s StreamReport) bool { return s.Failure != nil })
}

// StreamReport is what Verify found in one stream, up to its end or to the first failure.
type StreamReport struct {
	Stream         string             `json:"stream"`
	StreamID       uint32             `json:"stream_id"`
	Segments       int                `json:"segments"`
	SealedSegments int                `json:"sealed_segments"`
	Records        uint64             `json:"records"`         // the application's that count
	ControlRecords uint64             `json:"control_records"` // farlog's own that count, PADs left out
	Superseded     uint64             `json:"superseded"`      // records that a later epoch replaced, PADs left out
	Duplicates     uint64             `json:"duplicates"`      // always 0 without a failure
	Bytes          int64              `json:"bytes"`           // of records in the segments
	FirstTime      time.Time          `json:"first_time"`
	LastTime       time.Time          `json:"last_time"`
	Generations    []GenerationReport `json:"generations"`
	// IsEndProved: an anchor proves the end, up to its own point. Without one, a store whose last segments were removed
	// with their manifests cannot tell: the ring's head, or what the control plane knows as drained, must not be above
	// the next_lsn of the last generation.
	IsEndProved bool     `json:"end_proved"`
	Anchors     []Anchor `json:"anchors,omitempty"` // that the stream was found to agree with, the newest last
	End         *Anchor  `json:"-"`                 // of the end here, to be kept elsewhere; nil: no record
	Tail        *Tail    `json:"tail,omitempty"`
	MovedTails  []string `json:"moved_tails,omitempty"` // files with the bytes of former tails
	// RemovedAnchors counts those of points before the base: nothing is left to compare them with.
	RemovedAnchors int       `json:"removed_anchors,omitempty"`
	Unsealed       *Unsealed `json:"unsealed,omitempty"` // nil: all segments have manifests
	// CutSegments counts those of which an excerpt has no records.
	CutSegments int `json:"cut_segments,omitempty"`
	// Keys say which keys signed the segments' headers, each from its first segment on.
	Keys    []KeyReport `json:"keys,omitempty"`
	Base    *Base       `json:"base,omitempty"` // what was removed before the first segment
	Failure *Failure    `json:"failure,omitempty"`
}

// KeyReport is a key of the store and the first segment of a stream that it signed.
type KeyReport struct {
	Number  uint64 `json:"number"`
	ID      string `json:"id"`
	Segment uint64 `json:"segment"`
}

// GenerationReport is the part of a stream that came from one ring. Positions are those of the records that count.
type GenerationReport struct {
	Generation uint64 `json:"generation"`
	RingUUID   string `json:"ring_uuid"`
	FirstLSN   uint64 `json:"first_lsn"`
	NextLSN    uint64 `json:"next_lsn"`
	FirstSeq   uint64 `json:"first_seq"`
	NextSeq    uint64 `json:"next_seq"`
	LastEpoch  uint32 `json:"last_epoch"`
}

// Tail tells of bytes behind the last record, in the segment that is still written and beyond its last mark: an append
// under way, what a crash left of one, or records behind a damaged one that were synced after the last durable mark.
// The next appender moves them to a file of their own (format.md section 6).
type Tail struct {
	Segment string `json:"segment"`
	LSN     uint64 `json:"lsn"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"` // to the last one that is not zero
	Reason  string `json:"reason"`
}

// Failure is the first place where a stream is not what it should be.
type Failure struct {
	Segment string `json:"segment"` // file name, without its directory
	LSN     uint64 `json:"lsn"`
	Offset  int64  `json:"offset"`
	Reason  string `json:"reason"`
}

func (f Failure) String() string {
	if f.Segment == "" {
		return f.Reason
	}
	return fmt.Sprintf("segment %s, lsn %d, offset %d: %s", f.Segment, f.LSN, f.Offset, f.Reason)
}

// Statement says what was proved of the stream and what was not, or where it fails.
func (s StreamReport) Statement() string {
	switch {
	case s.Failure != nil:
		return "FAILED at " + s.Failure.String()
	case len(s.Generations) == 0 && s.Base != nil:
		return "the stream is empty" + s.Base.statement()
	case len(s.Generations) == 0:
		return "the stream is empty"
	}
	text, before := "", ""
	for i, g := range s.Generations {
		if i > 0 {
			text += "; after the ring was formatted again, "
		}
		text += fmt.Sprintf("between lsn %d and %d", g.FirstLSN, g.NextLSN)
		if i == 0 && s.Base != nil {
			before += s.Base.statement()
		} else if g.FirstLSN > 0 {
			before += fmt.Sprintf("; this store begins at lsn %d, seq %d, of ring %s: what lies before that went to "+
				"another one", g.FirstLSN, g.FirstSeq, g.RingUUID)
		}
	}
	return text + " nothing is missing, altered or out of order" + before + s.signedBy() + s.Unsealed.statement() +
		"; " + s.proof()
}

// signedBy says where another key began to sign; nothing when one key signed all.
func (s StreamReport) signedBy() string {
	text := ""
	for i, key := range s.Keys {
		if i > 0 {
			text += fmt.Sprintf("; from segment %d on signed by key %d, %s", key.Segment, key.Number, key.ID)
		}
	}
	return text
}
