package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"slices"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// gatherAnchors reads what --anchor names, and with --anchored asks the control plane.
func gatherAnchors(ctx context.Context, env *environment, opened *store.Store, options verifyOptions,
) ([]store.Anchor, error) {
	anchors, err := readAnchors(options.anchors)
	if err != nil || !options.isAnchored {
		return anchors, err
	}
	streams, err := opened.Streams()
	if err != nil {
		return nil, err
	}
	known, err := controlAnchors(ctx, env, opened.UUID().String(), streams)
	return append(anchors, known...), err
}

// readAnchors reads the files that --anchor names. One that cannot be read is an error: nobody knows what it says.
func readAnchors(files []string) ([]store.Anchor, error) {
	var all []store.Anchor
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, pathError(file, err)
		}
		anchors, err := store.ParseAnchors(raw)
		if err != nil {
			return nil, fmt.Errorf("--anchor %s: %w", file, err)
		}
		for _, anchor := range anchors {
			anchor.Source = file
			all = append(all, anchor)
		}
	}
	return all, nil
}

// keepEnds gives the anchors of the ends that were found, to be kept where the store is not.
func (v *verifyResult) keepEnds() {
	for _, stream := range v.Streams {
		if stream.Failure == nil && stream.End != nil {
			v.Anchors = append(v.Anchors, *stream.End)
		}
	}
}

// controlAnchors asks the control plane for the anchors of this store, and for those of its streams by whatever store.
// A control plane that does not answer is an error: it may have one.
func controlAnchors(ctx context.Context, env *environment, uuid string, streams []string) ([]store.Anchor, error) {
	statuses, err := fetchStreams(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("--anchored: %w", err)
	}
	var anchors []store.Anchor
	for _, status := range statuses {
		if status.Anchor == nil {
			continue
		}
		anchor, err := anchorOf(status.GetStream().GetSpec().GetName(), status.Anchor)
		if err != nil {
			return nil, fmt.Errorf("--anchored: %w", err)
		}
		if anchor.StoreUUID == uuid || slices.Contains(streams, anchor.Stream) {
			anchors = append(anchors, anchor)
		}
	}
	return anchors, nil
}

func anchorOf(stream string, message *api.StoreAnchor) (store.Anchor, error) {
	if len(message.StoreUuid) != len(record.UUID{}) || len(message.RingUuid) != len(record.UUID{}) {
		return store.Anchor{}, fmt.Errorf("anchor of stream %s: UUIDs of %d and %d bytes, expected %d", stream,
			len(message.StoreUuid), len(message.RingUuid), len(record.UUID{}))
	}
	return store.Anchor{
		StoreUUID: record.UUID(message.StoreUuid).String(), Stream: stream,
		RingUUID: record.UUID(message.RingUuid).String(), Generation: message.Generation, Segment: message.Segment,
		Offset: int64(message.Offset), Epoch: message.Epoch, NextLSN: message.NextLsn, NextSeq: message.NextSeq,
		SHA256: hex.EncodeToString(message.Sha256), SealedSegment: message.SealedSegment,
		ManifestSHA256: hex.EncodeToString(message.ManifestSha256), Time: message.AnchorTime.AsTime(),
		Source: "the control plane",
	}, nil
}

// requireAnchors fails when the end of a stream is proved by nothing.
func (v *verifyResult) requireAnchors() {
	for i := range v.Streams {
		if s := &v.Streams[i]; s.Failure == nil && !s.IsEndProved {
			s.Failure, v.OK = &store.Failure{
				Reason: "no anchor of the stream is known, so its end is not proved",
			}, false
		}
	}
}
