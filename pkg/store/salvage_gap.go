package store

import (
	"errors"
	"fmt"

	"github.com/farlog/farlog/pkg/record"
)

// resync looks for the next record behind damage, or at it, puts GAP records in the place of what is missing before it,
// and leaves the scanner there. isFound is false when none is left in the segment.
func (v *salvager) resync(f found, scan *scanner) (isFound bool, err error) {
	for from := scan.off; ; {
		rec, err := scan.next()
		var failed *readError
		switch {
		case errors.As(err, &failed):
			return false, wrap("read", f.name, err)
		case err == nil && v.mayFollow(rec.Header, scan.off-from):
			if v.at.isBegun && rec.LSN < v.at.LSN {
				return true, nil
			}
			return true, v.fill(rec.LSN, rec.Seq, rec.Epoch, v.isEpochLost(rec.Header))
		case err == nil && v.isBehindLostRewind(rec.Header, scan.off-from):
			return false, v.lostRewind(rec.LSN, rec.Seq, rec.Epoch)
		case err != nil && len(scan.chunk) == 0:
			return false, nil // the end of the file
		}
		if scan.off += record.AlignMin; scan.off%(1<<20) == 0 && v.ctx.Err() != nil {
			return false, v.ctx.Err()
		}
		if scan.chunk = scan.chunk[min(record.AlignMin, len(scan.chunk)):]; len(scan.chunk) < record.HeaderLen {
			scan.forget()
		}
	}
}

// isEpochLost reports whether the record that began the epoch of the next one is among what is missing.
func (v *salvager) isEpochLost(next record.Header) bool {
	return v.at.isBegun && next.Epoch > v.at.Epoch && next.Flags&(record.FlagEpoch|record.FlagPad) == 0
}

// isBehindLostRewind reports whether a whole record is of an epoch that went back to a place which cannot be found any
// more: what was copied behind that place does not count.
func (v *salvager) isBehindLostRewind(h record.Header, distance int64) bool {
	return v.at.isBegun && h.Epoch > v.at.Epoch && h.LSN < v.at.LSN+uint64(distance)
}

func (v *salvager) lostRewind(lsn, seq uint64, epoch uint32) error {
	return &salvageStop{fmt.Sprintf("%s, offset %d: %s: behind it is lsn %d, seq %d of epoch %d, and the log before "+
		"ends at lsn %d, seq %d of epoch %d: the record with which the newer epoch went back is lost, and which of "+
		"the older records it replaced is not known", v.damage.segment, v.damage.offset, v.damage.cause, lsn, seq,
		epoch, v.at.LSN, v.at.Seq, v.at.Epoch)}
}

// mayFollow reports whether a record can be the next one behind damage that begins some bytes before it in the file.
// What a payload holds of other records is not.
func (v *salvager) mayFollow(h record.Header, distance int64) bool {
	at := v.at
	if !at.isBegun {
		if v.first == nil {
			return h.Epoch > 0
		}
		at.LSN, at.Seq, at.Epoch = v.first.LSN, v.first.Seq, h.Epoch
	}
	switch {
	case h.Epoch == 0 || h.Epoch < at.Epoch:
		return false
	case at.isBegun && h.LSN < at.LSN: // the log goes back to a record that was copied
		_, err := at.check(&h)
		return err == nil
	case h.LSN < at.LSN || h.Seq < at.Seq || h.LSN-at.LSN < uint64(distance):
		return false
	}
	count := h.Seq - at.Seq
	if h.Epoch > at.Epoch && h.Flags&(record.FlagEpoch|record.FlagPad) == 0 && count == 0 {
		return false
	}
	return (h.LSN-at.LSN)/v.gapLen() >= count
}

// gapLen is the least extent of a record.
func (v *salvager) gapLen() uint64 { return record.Extent(v.source.Align, 0, 0) }

// fill puts a GAP record in the place of each record that is missing up to lsn and seq, and PADs where the records were
// longer. The first one says why; the last one begins the epoch when its own record is missing.
func (v *salvager) fill(lsn, seq uint64, epoch uint32, isEpochLost bool) error {
	isFirst := !v.at.isBegun && v.first != nil && lsn > v.first.LSN
	if isFirst {
		v.at = chain{isBegun: true, Cursor: record.Cursor{LSN: v.first.LSN, Seq: v.first.Seq, Epoch: epoch}}
		isFirst = v.first.LSN == 0 // an epoch begins there
	}
	if v.at.isBegun && lsn < v.at.LSN && epoch > v.at.Epoch {
		return v.lostRewind(lsn, seq, epoch)
	}
	if !v.at.isBegun || lsn <= v.at.LSN {
		v.damage = damage{}
		return nil
	}
	count, left := seq-v.at.Seq, lsn-v.at.LSN
	if seq < v.at.Seq || left/v.gapLen() < count || isEpochLost && count == 0 {
		return &salvageStop{fmt.Sprintf("%s, offset %d: %s: the log goes on at lsn %d, seq %d, epoch %d, which cannot "+
			"follow lsn %d, seq %d, epoch %d", v.damage.segment, v.damage.offset, v.damage.cause, lsn, seq, epoch,
			v.at.LSN, v.at.Seq, v.at.Epoch)}
	}
	v.report.Gaps = append(v.report.Gaps, SalvageGap{
		Segment: v.damage.segment, Offset: v.damage.offset, LSN: v.at.LSN, NextLSN: lsn, Records: count,
		Cause: v.damage.cause,
	})
	text := fmt.Sprintf("%s, offset %d: %s; lsn %d to %d of %s, salvaged by %s: %s", v.damage.segment,
		v.damage.offset, v.damage.cause, v.at.LSN, lsn, v.of, v.how.By, v.how.Why)
	spare := left - count*v.gapLen()
	for ; count > 0; count-- {
		h := record.Header{Flags: record.FlagGap, Epoch: v.at.Epoch}
		if count == 1 && isEpochLost {
			h.Epoch, h.Flags = epoch, record.FlagGap|record.FlagEpoch
		}
		if isFirst {
			h.Flags, isFirst = record.FlagGap|record.FlagEpoch, false
		}
		extent := v.gapLen()
		if text != "" {
			want := record.Extent(v.source.Align, 0, record.GapPayloadLen+len(text)) - extent
			extra := min(spare, want, uint64(v.source.RecordLenMax)-extent)
			extent, spare = extent+extra, spare-extra
		}
		if err := v.put(h, record.RefusedGap(text, int(extent)-record.OverheadLen)); err != nil {
			return err
		}
		text = ""
	}
	for spare > 0 {
		extent := min(spare, uint64(v.source.RecordLenMax)/uint64(v.source.Align)*uint64(v.source.Align))
		h := record.Header{Flags: record.FlagPad, Epoch: v.at.Epoch, PayloadLen: uint32(extent - record.PadStoredLen)}
		if err := v.put(h, nil); err != nil {
			return err
		}
		spare -= extent
	}
	v.damage = damage{}
	return nil
}

// put makes a record at the end of what was copied.
func (v *salvager) put(h record.Header, payload []byte) error {
	h.LSN, h.Seq, h.StreamID, h.TimestampNS = v.at.LSN, v.at.Seq, v.source.StreamID, v.lastTS
	h.ClockErrNS = record.ClockErrUnknown
	raw, err := record.AppendTo(nil, h, nil, payload, v.source.identity())
	if err != nil {
		return fmt.Errorf("make a GAP record at lsn %d: %w", h.LSN, err)
	}
	if h, err = record.ParseHeader(raw); err != nil {
		return fmt.Errorf("make a GAP record at lsn %d: %w", h.LSN, err)
	}
	return v.add(h, raw)
}
