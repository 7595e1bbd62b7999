package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/farlog/farlog/pkg/record"
)

// SalvageRing copies what is sound of a damaged ring into a stream of the store, behind what that has, with GAP
// records in the place of what cannot be read: as Salvage. The ring is only read; nobody may write or drain it
// meanwhile. Behind the durable hint of the ring records are copied up to the first damage, unless how says WithTail:
// a crash of the writer leaves torn records there. Where it is not proved that the log ends there, the report has a
// Failure. Errors: ErrInvalid (the store has less than the ring has released),
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
	walk := v.beginRing(ring, app.Last())
	err = v.walkRing(ring, walk)
	var stop *salvageStop
	if errors.As(err, &stop) {
		v.report.Failure, err = stop.Error(), nil
	}
	return v.report, errors.Join(err, v.end())
}

// beginRing begins at the head, or where the store ends: what is damaged below that is in the store. An epoch that
// began below the end of the store has other records there than the store.
func (v *salvager) beginRing(ring *record.Image, last Checkpoint) *record.Walker {
	sb, head := ring.Superblock, ring.Head
	isOnward := sb.WriterEpoch == last.Epoch ||
		sb.WriterEpoch == last.Epoch+1 && sb.EpochStartLSN >= last.NextLSN
	switch {
	case last.OK && isOnward && last.NextLSN > head.HeadLSN:
		v.at = chain{isBegun: true, Cursor: record.Cursor{LSN: last.NextLSN, Seq: last.NextSeq, Epoch: last.Epoch}}
		return ring.WalkFrom(v.at.Cursor)
	case head.LastEpoch == 0:
		v.first = &record.Cursor{LSN: head.HeadLSN, Seq: head.HeadSeq}
	default:
		v.at = chain{isBegun: true, Cursor: record.Cursor{
			LSN: head.HeadLSN, Seq: head.HeadSeq, Epoch: head.LastEpoch,
		}}
	}
	return ring.Walk()
}

func (v *salvager) walkRing(ring *record.Image, walk *record.Walker) error {
	known := max(ring.DurableHintLSN, ring.Superblock.EpochStartLSN) // below it all was acknowledged
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
		if err != io.EOF && !errors.Is(err, record.ErrLost) {
			return err
		}
		at := walk.Tail().LSN
		isLost := at < known
		v.damage = damage{"ring", int64(at % ring.Superblock.Capacity), walk.Reason().Error()}
		if !isLost && !v.how.WithTail {
			return v.endRing(ring, walk)
		}
		isLast := isLost && v.isLastOf(walk, known)
		reason := walk.Reason()
		next, isFound, err := walk.Skip()
		switch {
		case err != nil:
			return err
		case isFound:
			if err := v.fill(next.LSN, next.Seq, next.Epoch, v.isEpochLost(next)); err != nil {
				return err
			}
		case isLast:
			if err := v.fill(known, v.at.Seq+1, v.at.Epoch, false); err != nil {
				return err
			}
			walk = ring.WalkFrom(v.at.Cursor)
		case isLost:
			return &salvageStop{fmt.Sprintf("lsn %d: %s: nothing is readable from there to lsn %d, up to which "+
				"records were acknowledged: how many that were is not known", at, reason, known)}
		default:
			return v.endRing(ring, walk)
		}
	}
}

// endRing proves that the log ends where the walk did: nothing was written there since the ring was formatted, or since
// the lap before. What else is there may be an acknowledged record: the durable hint comes later than the
// acknowledgement.
func (v *salvager) endRing(ring *record.Image, walk *record.Walker) error {
	at, reason := walk.Tail().LSN, walk.Reason()
	isUnwritten := errors.Is(reason, record.ErrNothing)
	if !isUnwritten {
		var err error
		if isUnwritten, err = v.isFormerLap(ring, walk); err != nil {
			return err
		}
	}
	behind, err := v.countBehind(walk)
	switch {
	case err != nil:
		return err
	case behind > 0:
		return &salvageStop{fmt.Sprintf("lsn %d: %s: %d whole records lie behind, and may have been acknowledged: "+
			"copy them with --with-tail, or do not format the ring", at, reason, behind)}
	case !isUnwritten:
		return &salvageStop{fmt.Sprintf("lsn %d: %s: whether a record that was acknowledged was there is not known: "+
			"do not format the ring before its writer has been asked", at, reason)}
	}
	return nil
}

// countBehind counts the whole records that may follow behind the end of the walk.
func (v *salvager) countBehind(walk *record.Walker) (count int, err error) {
	for {
		_, isFound, err := walk.Skip()
		if err != nil || !isFound {
			return count, err
		}
		for err == nil {
			if _, err = walk.Next(); err == nil {
				count++
			}
		}
		if err != io.EOF && !errors.Is(err, record.ErrLost) {
			return count, err
		}
		if err := v.ctx.Err(); err != nil {
			return count, err
		}
	}
}

// isFormerLap reports whether the bytes where the walk ended are those of a record of a lap before, as the store has
// it.
func (v *salvager) isFormerLap(ring *record.Image, walk *record.Walker) (bool, error) {
	raw, err := walk.Bytes(record.AlignMin)
	if err != nil {
		return false, err
	}
	raw = bytes.Clone(raw)
	capacity, lsn := ring.Superblock.Capacity, walk.Tail().LSN
	if lsn < capacity {
		return false, nil
	}
	reader, err := v.into.OpenReader(v.report.Stream, ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return false, err
	}
	defer reader.Close()
	for lsn >= capacity {
		lsn -= capacity
		item, err := itemOver(reader, lsn, uint64(v.source.RecordLenMax), v.source.Align)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrRemoved) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		from := lsn - item.LSN
		if from >= uint64(len(item.Raw)) {
			continue // within a PAD, which leaves there what the lap before it wrote
		}
		return bytes.HasPrefix(item.Raw[from:], raw), nil
	}
	return false, nil
}

// itemOver gives the record of the newest generation that has lsn in its extent.
func itemOver(reader *Reader, lsn, recordLenMax uint64, align uint32) (Item, error) {
	err := reader.SeekLSN(lsn - min(lsn, recordLenMax))
	for err == nil {
		var item Item
		item, err = reader.Next()
		switch {
		case err == io.EOF || err == nil && item.LSN > lsn:
			return item, fmt.Errorf("%w: lsn %d", ErrNotFound, lsn)
		case err == nil && lsn < item.LSN+item.Extent(align):
			return item, nil
		}
	}
	return Item{}, err
}

// isLastOf reports whether what is damaged is the last record below what is known, and that alone: its header says so.
func (v *salvager) isLastOf(walk *record.Walker, known uint64) bool {
	h, err := walk.Peek()
	return err == nil && v.at.isBegun && h.LSN == v.at.LSN && h.Seq == v.at.Seq && h.Epoch == v.at.Epoch &&
		!h.Flags.IsPad() && h.LSN+h.Extent(v.source.Align) == known
}
