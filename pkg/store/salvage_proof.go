package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/farlog/farlog/pkg/record"
)

// unproved is why some of what was copied, or left out, may not be what the store held. It does not stop the salvage.
func (v *salvager) unproved(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if v.report.Failure != "" {
		text = strings.Join([]string{v.report.Failure, text}, "; ")
	}
	v.report.Failure = text
}

// sumRecord adds a record to the hash of its segment. Fill that was altered is zero again, in the hash as in the copy.
func (v *salvager) sumRecord(rec record.Record, isFillSound bool) {
	raw := rec.Raw
	if !isFillSound {
		raw = append([]byte(nil), raw...)
		from, to := rec.FillBounds(len(raw))
		clear(raw[from:to])
	}
	_, _ = v.sum.Write(raw)
	v.summed++
}

// prove compares what was copied of a segment with what its manifest, or the header of the next segment, says that it
// held. For the segment that is still written nothing says it; where nothing was copied there is nothing to prove.
func (v *salvager) prove(segments []found, i int) {
	if v.summed == 0 {
		return
	}
	f := segments[i]
	got := hex.EncodeToString(v.sum.Sum(nil))
	wants, causes := v.wants(segments, i)
	for _, want := range wants {
		if want == got {
			return
		}
		causes = append(causes, fmt.Sprintf("sha256 of what was copied is %s, expected %s", got, want))
	}
	if len(causes) == 0 && f.headerErr == nil {
		if err := v.from.checkHeader(f, v.report.Stream); err != nil {
			causes = append(causes, err.Error())
		}
	}
	if len(causes) > 0 {
		v.unproved("segment %d: not proved: %s", f.number, strings.Join(causes, ", "))
	}
}

// wants are the hashes that signed statements have of a segment.
func (v *salvager) wants(segments []found, i int) (wants, causes []string) {
	f := segments[i]
	if f.isSealed {
		if m, _, err := v.from.ReadManifest(v.report.Stream, f.number); err != nil {
			causes = append(causes, err.Error())
		} else {
			wants = append(wants, m.SHA256)
		}
	}
	if len(wants) > 0 || i == len(segments)-1 {
		return wants, causes
	}
	next := segments[i+1]
	switch {
	case next.number != f.number+1 || next.headerErr != nil || !next.header.isSigned():
		causes = append(causes, "no manifest, and no header of the next segment, says what it held")
	case v.from.checkHeader(next, v.report.Stream) != nil:
		causes = append(causes, v.from.checkHeader(next, v.report.Stream).Error())
	case next.header.PrevSHA256 != [sha256.Size]byte{}:
		wants = append(wants, hex.EncodeToString(next.header.PrevSHA256[:]))
	}
	return wants, causes
}

// checkHeader reports whether a header is what this store wrote for the segment.
func (s *Store) checkHeader(f found, stream string) error {
	h := f.header
	if h.StoreUUID != s.uuid || h.Number != f.number || h.StreamName != stream {
		return fmt.Errorf("header of %s is of segment %d of stream %q of store %s, expected %d of %q of %s",
			path.Base(f.name), h.Number, h.StreamName, h.StoreUUID, f.number, stream, s.uuid)
	}
	return h.checkSigned(s.checkSignature)
}

// missing accounts for segments that are not there, up to the one before to. The next header of the same ring says by
// itself what is missing.
func (v *salvager) missing(from, to uint64, next *found) error {
	for number := from; number < to; number++ {
		if next != nil && v.at.isBegun && next.header.isRing(v.source) {
			return nil
		}
		v.damage = damage{path.Base(v.dir.file(number, segmentSuffix)), 0, "segment is missing"}
		m, _, err := v.from.ReadManifest(v.report.Stream, number)
		switch {
		case err != nil:
			v.unproved("segment %d is missing, and how many records it had is not known: %s", number, err)
		case !v.at.isBegun || m.RingUUID != v.source.RingUUID.String():
			v.unproved("segment %d is missing, with %d records from lsn %d to %d of ring %s", number, m.RecordCount,
				m.FirstLSN, m.NextLSN, m.RingUUID)
		default:
			if err := v.fill(m.NextLSN, m.NextSeq, m.LastEpoch, m.LastEpoch > v.at.Epoch); err != nil {
				return err
			}
		}
	}
	return nil
}
