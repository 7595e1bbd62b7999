//go:build cgo

package main

import (
	"encoding/hex"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/farlog/farlog/pkg/api/v1"
	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// anchorMessage is an anchor as a drain reports it; nil: there is none.
func anchorMessage(a *store.Anchor) *api.StoreAnchor {
	if a == nil {
		return nil
	}
	storeUUID, errStore := record.ParseUUID(a.StoreUUID)
	ringUUID, errRing := record.ParseUUID(a.RingUUID)
	digest, errDigest := hex.DecodeString(a.SHA256)
	manifest, errManifest := hex.DecodeString(a.ManifestSHA256)
	if errStore != nil || errRing != nil || errDigest != nil || errManifest != nil {
		return nil // the store made these texts: cannot be
	}
	return &api.StoreAnchor{
		StoreUuid: storeUUID[:], RingUuid: ringUUID[:], Generation: a.Generation, Segment: a.Segment,
		Offset: uint64(a.Offset), Epoch: a.Epoch, NextLsn: a.NextLSN, NextSeq: a.NextSeq, Sha256: digest,
		SealedSegment: a.SealedSegment, ManifestSha256: manifest, AnchorTime: timestamppb.New(a.Time),
	}
}

// baseMessage is what was removed from the store of a worker's stream, as a drain reports it; nil: nothing.
func (w *drainWorker) baseMessage() *api.StoreBase {
	w.mutex.Lock()
	appender := w.appender
	w.mutex.Unlock()
	if appender == nil || appender.Base() == nil {
		return nil
	}
	b := appender.Base()
	storeUUID, errStore := record.ParseUUID(b.StoreUUID)
	removed, errTime := time.Parse(time.RFC3339Nano, b.RemovedAt)
	if errStore != nil || errTime != nil {
		return nil // the store has checked these texts: cannot be
	}
	digest := b.Digest()
	return &api.StoreBase{
		StoreUuid: storeUUID[:], Segment: b.Segment, RemovedSegments: b.RemovedSegments,
		RemovedRecords: b.RemovedRecords, Policy: b.Policy, RemovedBy: b.RemovedBy,
		RemoveTime: timestamppb.New(removed), ArchivedAt: b.ArchivedAt, Sha256: digest[:],
	}
}
