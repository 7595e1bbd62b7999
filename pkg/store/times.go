package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math"
)

// sealing is what a manifest says of a segment.
type sealing struct {
	isRead   bool // there is a manifest, and it is one
	manifest Manifest
	digest   string // SHA-256 of its file
}

// loadTimes gives the times of all segments. It believes nothing but a manifest that the store signed: without it a
// segment may have records of any time. A signed manifest names the SHA-256 of the one before, which is as good as a
// signature of that, and is checked in a tenth of the time.
func (r *Reader) loadTimes(check checker) ([]times, error) {
	sealings := make([]sealing, len(r.segments))
	err := inParallel(len(sealings), func(i int) (err error) {
		sealings[i], err = r.readSealing(i, func(_, _ []byte) error { return nil })
		return err
	})
	if err != nil {
		return nil, err
	}
	list, signed := make([]times, len(sealings)), ""
	for i := len(sealings) - 1; i >= 0; i-- {
		one := sealings[i]
		if one.isRead && one.digest != signed {
			if one, err = r.readSealing(i, check); err != nil {
				return nil, err
			}
		}
		list[i], signed = r.timesOf(i, one), one.manifest.PreviousSHA256
	}
	return list, nil
}

// readSealing reads the manifest of a segment.
func (r *Reader) readSealing(i int, check checker) (sealing, error) {
	m, raw, err := r.store.readManifest(r.stream, r.segments[i].number, check)
	if isNotExist(err) || errors.Is(err, ErrCorrupt) {
		return sealing{}, nil
	}
	if err != nil {
		return sealing{}, err
	}
	m.Epochs = nil // which nobody needs here
	digest := sha256.Sum256(raw)
	return sealing{isRead: true, manifest: m, digest: hex.EncodeToString(digest[:])}, nil
}

// timesOf are those that a signed manifest says. The last segment has no records that come before its first, as far as
// its neighbor is concerned.
func (r *Reader) timesOf(i int, signed sealing) times {
	s := &r.segments[i]
	unknown := times{high: math.MaxUint64}
	if i == len(r.segments)-1 {
		unknown.low = s.header.FirstTS
	}
	if !signed.isRead {
		return unknown
	}
	m := signed.manifest
	s.isSealed, s.size = true, m.UsedBytes
	if m.FirstLSN != s.header.FirstLSN || m.Generation != s.header.Generation {
		return unknown
	}
	return times{m.MinTimestampNS, m.MaxTimestampNS, true}
}
