//go:build cgo

package main

import (
	"encoding/hex"

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
