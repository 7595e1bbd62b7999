package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/farlog/farlog/pkg/record"
)

// SalvageRing copies what is sound of a damaged ring into a stream of the store, behind what that has, with GAP
// records in the place of what cannot be read: as Salvage. The ring is only read; nobody may write or drain it
// meanwhile. Behind the durable hint of the ring records are copied up to the first damage, unless how says WithTail:
// a crash of the writer leaves torn records there. Errors: ErrInvalid (the store has less than the ring has released),
// those of OpenStream and of Appender, or of the ring.
func (s *Store) SalvageRing(ctx context.Context, ring *record.Image, how SalvageOptions) (SalvageReport, error) {
	sb, head := ring.Superblock, ring.Head
	v := &salvager{
		ctx: ctx, from: s, into: s, how: how, of: "ring " + sb.RingUUID.String(),
		report: SalvageReport{Stream: sb.StreamName, Gaps: []SalvageGap{}},
		source: Source{
			StreamName: sb.StreamName, StreamID: sb.StreamID, RingUUID: sb.RingUUID, Salt: sb.Salt, Align: sb.Align,
			RecordLenMax: sb.RecordLenMax,
		},
	}
	app, err := s.OpenStream(v.source)
	if err != nil {
		return v.report, err
	}
	v.app = app
	if last := app.Last(); head.HeadLSN > 0 && (!last.OK || last.NextLSN < head.HeadLSN) {
		return v.report, errors.Join(fmt.Errorf("%w: the ring has released lsn %d, and stream %s of store %s ends at "+
			"lsn %d: salvage it into the store that has the rest", ErrInvalid, head.HeadLSN, sb.StreamName, s.dir,
			last.NextLSN), v.end())
	}
	if v.at = (chain{isBegun: true, Cursor: record.Cursor{
		LSN: head.HeadLSN, Seq: head.HeadSeq, Epoch: head.LastEpoch,
	}}); head.LastEpoch == 0 {
		v.at, v.first = chain{}, &record.Cursor{LSN: head.HeadLSN, Seq: head.HeadSeq}
	}
	err = v.walkRing(ring)
	var stop *salvageStop
	if errors.As(err, &stop) {
		v.report.Failure, err = stop.Error(), nil
	}
	return v.report, errors.Join(err, v.end())
}

func (v *salvager) walkRing(ring *record.Image) error {
	walk := ring.Walk()
	for {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		rec, err := walk.Next()
		if err == nil {
			if err := v.copy(rec); err != nil {
				return err
			}
			continue
		}
		isLost := errors.Is(err, record.ErrLost)
		if err != io.EOF && !isLost {
			return err
		}
		at := walk.Tail().LSN
		v.damage = damage{"ring", int64(at % ring.Superblock.Capacity), walk.Reason().Error()}
		if !isLost && !v.how.WithTail {
			return nil
		}
		next, isFound, err := walk.Skip()
		switch {
		case err != nil:
			return err
		case isFound:
			if err := v.fill(next.LSN, next.Seq, next.Epoch, v.isEpochLost(next)); err != nil {
				return err
			}
		case isLost && v.isLastOf(walk, ring.DurableHintLSN):
			return v.fill(ring.DurableHintLSN, v.at.Seq+1, v.at.Epoch, false)
		case isLost:
			return &salvageStop{fmt.Sprintf("lsn %d: %s: nothing is readable from there to lsn %d, up to which "+
				"records were acknowledged: how many that were is not known", at, walk.Reason(), ring.DurableHintLSN)}
		default:
			return nil
		}
	}
}

// isLastOf reports whether what is damaged is the last record below the durable hint, and that alone: its header says
// so.
func (v *salvager) isLastOf(walk *record.Walker, hint uint64) bool {
	h, err := walk.Peek()
	return err == nil && v.at.isBegun && h.LSN == v.at.LSN && h.Seq == v.at.Seq && h.Epoch == v.at.Epoch &&
		!h.Flags.IsPad() && h.LSN+h.Extent(v.source.Align) == hint
}
