package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"path"
	"slices"
	"time"
)

// anchorCheck compares what a walk along a stream finds with the anchors of the stream, each at its very point.
type anchorCheck struct {
	todo   []Anchor // not reached yet, in order
	sealed []Anchor // whose manifest was not reached yet
	end    Anchor   // of what was walked; Segment 0: nothing
}

// newAnchorCheck takes the anchors of one stream.
func newAnchorCheck(stream string, anchors []Anchor) anchorCheck {
	var c anchorCheck
	for _, anchor := range anchors {
		if anchor.Stream != stream {
			continue
		}
		c.todo = append(c.todo, anchor)
		if anchor.SealedSegment != 0 {
			c.sealed = append(c.sealed, anchor)
		}
	}
	slices.SortStableFunc(c.todo, func(a, b Anchor) int {
		switch {
		case a.isBehind(b):
			return -1
		case b.isBehind(a):
			return 1
		}
		return 0
	})
	return c
}

// checkAnchoredStore: an anchor of another store says that this one was put in its place.
func (v *verifier) checkAnchoredStore() error {
	for _, anchor := range v.anchors.todo {
		if uuid := v.store.uuid.String(); anchor.StoreUUID != uuid {
			return fail(v.dir.file(1, segmentSuffix), 0, 0, "this is store %s, but %s says %s of the stream",
				uuid, anchor.from(), anchor.place())
		}
	}
	return nil
}

// checkAnchorsAt compares the anchors of the point behind a record with what lies before it.
func (v *verifier) checkAnchorsAt(f found, sum hash.Hash, end int64) error {
	c := &v.anchors
	for len(c.todo) > 0 && c.todo[0].Segment == f.number && c.todo[0].Offset <= end {
		g := v.report.Generations[len(v.report.Generations)-1]
		want := c.todo[0]
		got := Anchor{
			RingUUID: g.RingUUID, Generation: g.Generation, Epoch: g.LastEpoch, NextLSN: g.NextLSN,
			NextSeq: g.NextSeq, SHA256: hex.EncodeToString(sum.Sum(nil)),
		}
		if want.Offset != end || !got.isSamePoint(want) {
			return fail(
				f.name,
				g.NextLSN,
				end,
				"the stream holds other records than %s says: at %s: epoch %d, seq %d, "+
					"SHA-256 %s; here lsn %d, epoch %d, seq %d, SHA-256 %s",
				want.from(),
				want.place(),
				want.Epoch,
				want.NextSeq,
				want.SHA256,
				got.NextLSN,
				got.Epoch,
				got.NextSeq,
				got.SHA256,
			)
		}
		v.report.Anchors = append(v.report.Anchors, want)
		c.todo = c.todo[1:]
	}
	return nil
}

// checkAnchoredSegment is called behind the last record of a segment, whose manifest was checked.
func (v *verifier) checkAnchoredSegment(f found, digest [sha256.Size]byte) error {
	c, w := &v.anchors, v.lastWalk
	if len(c.todo) > 0 && c.todo[0].Segment == f.number {
		return v.endsBehind(f, c.todo[0])
	}
	for _, anchor := range c.sealed {
		switch manifest := hex.EncodeToString(v.previous[:]); {
		case anchor.SealedSegment != f.number:
		case !f.isSealed:
			return fail(f.name, w.chain.LSN, w.end, "manifest is missing: %s says that %s was there", anchor.from(),
				path.Base(v.dir.file(f.number, manifestSuffix)))
		case anchor.ManifestSHA256 != manifest:
			return fail(v.dir.file(f.number, manifestSuffix), w.chain.LSN, 0, "manifest has SHA-256 %s, %s says %s",
				manifest, anchor.from(), anchor.ManifestSHA256)
		}
	}
	if w.end > segmentDataOffset {
		c.end = endAnchor(f.header, w.chain, w.end, digest)
	}
	if f.isSealed {
		v.sealed = f.number
	}
	return nil
}

// checkAnchoredEnd is called at the end of the stream.
func (v *verifier) checkAnchoredEnd() error {
	c := &v.anchors
	if len(c.todo) > 0 {
		f := found{name: v.dir.file(c.todo[0].Segment, segmentSuffix)}
		if n := len(v.begun); n > 0 {
			f = v.begun[n-1]
		}
		return v.endsBehind(f, c.todo[0])
	}
	if c.end.Segment != 0 {
		c.end.SealedSegment, c.end.ManifestSHA256 = v.sealed, hex.EncodeToString(v.previous[:])
		c.end.Time = v.store.options.Now().UTC()
		v.report.End = &c.end
	}
	v.report.IsEndProved = len(v.report.Anchors) > 0
	return nil
}

func (v *verifier) endsBehind(f found, anchor Anchor) error {
	return fail(f.name, v.lastWalk.chain.LSN, v.lastWalk.end, "the stream ends at lsn %d, but %s says that it went up "+
		"to %s: its end is missing", v.lastWalk.chain.LSN, anchor.from(), anchor.place())
}

// from names an anchor in a sentence.
func (a Anchor) from() string {
	name := "an anchor"
	if a.Source != "" {
		name = "the anchor of " + a.Source
	}
	if a.Time.IsZero() {
		return name
	}
	return name + " of " + a.Time.Format(time.RFC3339)
}

// addMissingStreams reports streams that have anchors of this store and no directory in it.
func (s *Store) addMissingStreams(report *Report, options VerifyOptions) {
	isKnown := map[string]bool{}
	for _, stream := range report.Streams {
		isKnown[stream.Stream] = true
	}
	for _, anchor := range options.Anchors {
		if isKnown[anchor.Stream] || anchor.StoreUUID != s.uuid.String() ||
			options.Stream != "" && options.Stream != anchor.Stream {
			continue
		}
		isKnown[anchor.Stream] = true
		dir := s.streamDir(anchor.Stream)
		report.Streams = append(report.Streams, StreamReport{Stream: anchor.Stream, Failure: &Failure{
			Segment: path.Base(dir.file(1, segmentSuffix)),
			Reason: fmt.Sprintf("the stream is missing: %s says that it went up to %s", anchor.from(),
				anchor.place()),
		}})
	}
}

// proof says how far the end of a stream is proved, and by which anchor.
func (s StreamReport) proof() string {
	end := s.Generations[len(s.Generations)-1].NextLSN
	if len(s.Anchors) == 0 {
		return fmt.Sprintf("not proved: that the stream ends at lsn %d. It does if the head of its ring is not above "+
			"that; anchors prove it (--anchored, --anchor)", end)
	}
	newest := s.Anchors[len(s.Anchors)-1]
	if s.End != nil && newest.isBehind(*s.End) {
		return fmt.Sprintf("the end is proved up to lsn %d by %s; not proved: that the stream ends at lsn %d",
			newest.NextLSN, newest.from(), end)
	}
	return fmt.Sprintf("the end, lsn %d, is proved by %s", end, newest.from())
}
