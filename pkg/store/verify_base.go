package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/farlog/farlog/pkg/record"
)

// verifyStream checks one stream. When segments are removed meanwhile, it begins again behind the newer base.
func (s *Store) verifyStream(ctx context.Context, stream string, options VerifyOptions) (StreamReport, error) {
	for {
		v := &verifier{
			ctx: ctx, store: s, dir: s.streamDir(stream), options: options,
			report: StreamReport{Stream: stream}, anchors: newAnchorCheck(stream, options.Anchors),
		}
		err := v.run()
		if err == nil && v.report.Failure == nil || ctx.Err() != nil {
			return v.report, err
		}
		now, listErr := v.dir.list()
		if listErr != nil || slices.Equal(now.bases, v.list.bases) {
			return v.report, err
		}
	}
}

// checkBases checks all base manifests of the stream: signatures, and that each follows the one before. The stream
// begins behind the newest.
func (v *verifier) checkBases() error {
	previous, before := [sha256.Size]byte{}, (*Base)(nil)
	for _, number := range v.list.bases {
		b, raw, err := v.dir.loadBase(v.store, v.report.Stream, number, v.signedAfter(&v.baseKey))
		if err != nil {
			return err
		}
		name := v.dir.file(number, baseSuffix)
		if b.PreviousSHA256 != hex.EncodeToString(previous[:]) {
			return fail(name, b.NextLSN, 0, "base manifest follows one with SHA-256 %s, the one before has %x",
				b.PreviousSHA256, previous)
		}
		if before != nil && (b.RemovedSegments <= before.RemovedSegments || b.RemovedRecords < before.RemovedRecords ||
			b.RemovedBytes < before.RemovedBytes || b.last().IsBefore(before.last())) {
			return fail(name, b.NextLSN, 0, "base manifest says that less was removed than the one before says")
		}
		previous, before = sha256.Sum256(raw), &b
	}
	if v.base = before; before == nil {
		return nil
	}
	v.before, v.previous = before.digests()
	v.report.Base = before
	return nil
}

// enterBehindBase checks the first segment's header against what the base manifest says of the last removed one.
func (v *verifier) enterBehindBase(f found) error {
	if err := v.base.checkFit(f.header); err != nil {
		return fail(f.name, v.base.NextLSN, 0, "%w", err)
	}
	if f.header.StreamID != v.base.StreamID && f.header.Generation == v.base.Generation {
		return fail(f.name, v.base.NextLSN, 0, "header has stream_id %d, the base manifest %d", f.header.StreamID,
			v.base.StreamID)
	}
	v.enter(f.header)
	return nil
}

// checkAnchoredBase compares the base with the anchors of the point where it ends. Those of points before it prove
// nothing any more: what they commit to was removed. Where there are no others, the check that was asked for has
// failed.
func (v *verifier) checkAnchoredBase() error {
	c, base := &v.anchors, v.base
	if base == nil {
		return nil
	}
	name := v.dir.file(base.Segment, baseSuffix)
	v.sealed = base.Segment - 1
	for len(c.todo) > 0 && c.todo[0].Segment < base.Segment {
		anchor := c.todo[0]
		c.todo = c.todo[1:]
		if anchor.Segment != base.Segment-1 || anchor.NextLSN != base.NextLSN {
			v.report.RemovedAnchors++
			continue
		}
		if anchor.SHA256 != base.SegmentSHA256 || anchor.NextSeq != base.NextSeq || anchor.Epoch != base.LastEpoch {
			return fail(
				name,
				base.NextLSN,
				0,
				"the base manifest says SHA-256 %s, seq %d, epoch %d of the last removed "+
					"segment, %s says %s, %d, %d",
				base.SegmentSHA256,
				base.NextSeq,
				base.LastEpoch,
				anchor.from(),
				anchor.SHA256,
				anchor.NextSeq,
				anchor.Epoch,
			)
		}
		v.report.Anchors = append(v.report.Anchors, anchor)
	}
	if v.report.RemovedAnchors > 0 && len(v.report.Anchors) == 0 && len(c.todo) == 0 {
		return fail(name, base.NextLSN, 0, "all %d anchors speak of what was removed before lsn %d: none is left that "+
			"proves the end; give a newer one", v.report.RemovedAnchors, base.NextLSN)
	}
	for _, anchor := range c.sealed {
		if anchor.SealedSegment == base.Segment-1 && anchor.ManifestSHA256 != base.ManifestSHA256 {
			return fail(
				name,
				base.NextLSN,
				0,
				"the base manifest says SHA-256 %s of the last removed manifest, %s says "+
					"%s",
				base.ManifestSHA256,
				anchor.from(),
				anchor.ManifestSHA256,
			)
		}
	}
	return nil
}

// isBeforeBase reports whether an epoch goes back to a record that was removed: nothing is left to compare it with.
// That it was so when it was stored, the signed headers say.
func (v *verifier) isBeforeBase(at found, first record.Record) bool {
	return v.base != nil && at.header.Generation == v.base.Generation && first.LSN < v.base.NextLSN
}

// steady does something with what a stream's directory lists, and does it again when it fails and segments were removed
// meanwhile. Errors: ErrNotFound, those of do.
func (s *Store) steady(stream string, do func(list listing) error) error {
	d := s.streamDir(stream)
	for {
		list, err := d.list()
		if isNotExist(err) {
			return fmt.Errorf("%w: store %s has no stream %q", ErrNotFound, s.dir, stream)
		}
		if err != nil {
			return err
		}
		if err = do(list); err == nil {
			return nil
		}
		now, listErr := d.list()
		if listErr != nil || slices.Equal(now.bases, list.bases) {
			return errors.Join(err, listErr)
		}
	}
}
