package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"
)

// checkManifest compares a manifest with what the walk found.
func (v *verifier) checkManifest(f found, digest [sha256.Size]byte) error {
	name := v.dir.file(f.number, manifestSuffix)
	m, raw, err := loadManifest(v.dir, f.number, v.signedAfter(&v.manifestKey))
	if err != nil {
		return err
	}
	w := v.lastWalk
	if m.UsedBytes != w.end {
		return fail(f.name, w.chain.LSN, w.end, "%w; the manifest says %d bytes", w.stop, m.UsedBytes)
	}
	if m.SHA256 != hex.EncodeToString(digest[:]) {
		return fail(f.name, f.header.FirstLSN, segmentDataOffset, "SHA-256 of the segment is %x, the manifest says %s",
			digest, m.SHA256)
	}
	want := newManifest(f.header, w.sum, w.chain, w.end, digest, v.previous, time.Time{})
	want.SealedAt = m.SealedAt
	if m.PreviousSHA256 != want.PreviousSHA256 {
		return fail(name, f.header.FirstLSN, 0, "manifest follows one with SHA-256 %s, the one before has %s",
			m.PreviousSHA256, want.PreviousSHA256)
	}
	if field := firstDifference(m, want); field != "" {
		return fail(name, f.header.FirstLSN, 0, "manifest does not describe its segment: %s", field)
	}
	v.previous = sha256.Sum256(raw)
	return nil
}

// firstDifference compares two manifests by what they encode to, and names the place.
func firstDifference(got, want Manifest) string {
	for _, field := range []struct {
		name      string
		got, want any
	}{
		{"store_uuid", got.StoreUUID, want.StoreUUID},
		{"stream", got.Stream, want.Stream},
		{"stream_id", got.StreamID, want.StreamID},
		{"segment", got.Segment, want.Segment},
		{"generation", got.Generation, want.Generation},
		{"ring_uuid", got.RingUUID, want.RingUUID},
		{"first_lsn", got.FirstLSN, want.FirstLSN},
		{"last_lsn", got.LastLSN, want.LastLSN},
		{"next_lsn", got.NextLSN, want.NextLSN},
		{"first_seq", got.FirstSeq, want.FirstSeq},
		{"last_seq", got.LastSeq, want.LastSeq},
		{"next_seq", got.NextSeq, want.NextSeq},
		{"first_epoch", got.FirstEpoch, want.FirstEpoch},
		{"last_epoch", got.LastEpoch, want.LastEpoch},
		{"epochs", fmt.Sprint(got.Epochs), fmt.Sprint(want.Epochs)},
		{"record_count", got.RecordCount, want.RecordCount},
		{"control_count", got.ControlCount, want.ControlCount},
		{"pad_count", got.PadCount, want.PadCount},
		{"min_ts_ns", got.MinTimestampNS, want.MinTimestampNS},
		{"max_ts_ns", got.MaxTimestampNS, want.MaxTimestampNS},
	} {
		if field.got != field.want {
			return fmt.Sprintf("%s is %v, expected %v", field.name, field.got, field.want)
		}
	}
	return ""
}

// checkBehind: nothing but zeros lies behind the records of a sealed segment that was not cut yet.
func (v *verifier) checkBehind(file File, f found, end int64) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := file.ReadAt(buf, end)
		for i, b := range buf[:n] {
			if b != 0 {
				return fail(f.name, v.lastWalk.chain.LSN, end+int64(i),
					"byte %#02x behind the last record, expected zero", b)
			}
		}
		end += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wrap("read", f.name, err)
		}
	}
}
