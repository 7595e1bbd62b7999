package drain

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/farlog/farlog/pkg/farlog"
	"github.com/farlog/farlog/pkg/record"
)

// forgedShown is how long a stream shows that records of it were refused.
const forgedShown = 10 * time.Minute

// forged is a record whose checksum is right and which no writer of farlog makes: whoever has a writer's key made it,
// in his own ring.
type forged struct {
	record.Header
	at    int // in the batch
	len   int
	cause string
}

// origin is what a forged record may name falsely.
type origin struct {
	streamID uint32
	ringUUID record.UUID // zero: of several rings, each of which may have been replaced

	encryption record.Encryption
}

func (d *drainer) origin() origin {
	o := origin{streamID: d.source.StreamID, encryption: d.encryption}
	if !d.hasMembers() {
		o.ringUUID = d.source.RingUUID
	}
	return o
}

// refuseForged takes forged records out of a batch. A GAP record with the cause takes the place of each in the store,
// of the same place and length: the stream goes on behind it. Their bytes are kept beside the streams, durable before
// the store has the GAP, so that nothing is lost that is not forged after all.
func (d *drainer) refuseForged(ctx context.Context, batch farlog.Batch) (farlog.Batch, error) {
	found := d.findForged(batch.Bytes)
	if len(found) == 0 {
		return batch, nil
	}
	var raw []byte
	for _, one := range found {
		raw = append(raw, batch.Bytes[one.at:one.at+one.len]...)
	}
	file := ""
	err := d.retry(ctx, func() (err error) {
		file, err = d.config.Store.KeepRefused(d.source.StreamName, found[0].Epoch, found[0].LSN, raw)
		return err
	})
	if err != nil {
		return batch, fmt.Errorf("keep refused records from lsn %d on: %w", found[0].LSN, err)
	}
	for _, one := range found {
		if err := d.replaceForged(batch.Bytes, one); err != nil {
			return batch, fmt.Errorf("replace refused record at lsn %d: %w", one.LSN, err)
		}
	}
	batch.LastTimestamp = time.Now()
	d.tellForged(found, file)
	return batch, nil
}

// findForged walks a batch whose records the reader has checked. Those that the store has already are left alone: it
// drops them.
func (d *drainer) findForged(batch []byte) (found []forged) {
	epoch, nextLSN := d.progress.LastEpoch, d.progress.StoredLSN
	from := d.origin()
	for at := 0; at < len(batch); {
		header, err := record.ParseHeader(batch[at:])
		if err != nil {
			return found // the reader checked it: cannot be, and the store refuses it
		}
		length := int(header.StoredLen(d.source.Align))
		if header.Epoch > epoch || header.Epoch == epoch && header.LSN >= nextLSN {
			payload := batch[min(at+record.HeaderLen+int(header.KeyLen), at+length):min(at+length, len(batch))]
			if cause := from.whyForged(header, payload, d.begunEpoch); cause != "" {
				found = append(found, forged{header, at, length, cause})
			}
			epoch, nextLSN = header.Epoch, header.LSN+1
			if !header.Flags.IsPad() {
				d.begunEpoch = header.Epoch
			}
		}
		at += length
	}
	return found
}

// whyForged says what no writer writes; "" = nothing. begunEpoch is the last one of which a record was seen that is no
// PAD: its EPOCH record is behind us. A PAD may carry an epoch before that begins.
func (o origin) whyForged(h record.Header, payload []byte, begunEpoch uint32) string {
	reserved := h.Flags &^ (record.FlagPad | record.FlagEpoch | record.FlagHeartbeat | record.FlagSeal |
		record.FlagGap | record.FlagEncrypted)
	switch {
	case h.StreamID != o.streamID:
		return fmt.Sprintf("stream id %d, expected %d", h.StreamID, o.streamID)
	case reserved != 0:
		return fmt.Sprintf("reserved flags %#x, expected none", uint16(reserved))
	case bits.OnesCount16(uint16(h.Flags)) > 1:
		return fmt.Sprintf("flags %s, expected one at most", h.Flags)
	case h.IsEncrypted() && o.encryption == record.EncryptionNone:
		return "an encrypted record in a stream that is not encrypted, whose readers have no key"
	case h.Flags == 0 && o.encryption != record.EncryptionNone:
		return fmt.Sprintf("a record that everybody can read in a stream that is encrypted, by %s", o.encryption)
	case h.TimestampNS >= 1<<63:
		return fmt.Sprintf("time stamp %d, expected less than 2^63 ns", h.TimestampNS)
	case h.Flags&record.FlagEpoch != 0:
		return o.whyForgedEpoch(h, payload, begunEpoch)
	}
	return ""
}

func (o origin) whyForgedEpoch(h record.Header, payload []byte, begunEpoch uint32) string {
	if h.Epoch == begunEpoch {
		return fmt.Sprintf("a second EPOCH record of epoch %d, expected one", h.Epoch)
	}
	p, err := record.DecodeEpochPayload(payload)
	switch {
	case err != nil || h.PayloadLen < record.EpochPayloadLen:
		return fmt.Sprintf("EPOCH payload of %d bytes, expected %d", h.PayloadLen, record.EpochPayloadLen)
	case p.PrevEpoch >= h.Epoch:
		return fmt.Sprintf("EPOCH record of epoch %d after epoch %d, expected a lower one", h.Epoch, p.PrevEpoch)
	case p.StartLSN > h.LSN:
		return fmt.Sprintf("EPOCH record of an epoch from lsn %d on, expected at most %d", p.StartLSN, h.LSN)
	case o.ringUUID != (record.UUID{}) && p.RingUUID != o.ringUUID:
		return fmt.Sprintf("EPOCH record of ring %s, expected %s", p.RingUUID, o.ringUUID)
	}
	return ""
}

// replaceForged puts a GAP record in the place of a forged one, and a PAD in that of a PAD. Where an epoch began it
// still begins.
func (d *drainer) replaceForged(batch []byte, one forged) error {
	id := record.Identity{Salt: d.source.Salt, Align: d.source.Align}
	header := record.Header{
		Flags: record.FlagGap, LSN: one.LSN, Epoch: one.Epoch, Seq: one.Seq, StreamID: d.source.StreamID,
		TimestampNS: uint64(time.Now().UnixNano()), ClockErrNS: record.ClockErrUnknown,
	}
	var payload []byte
	if one.Flags.IsPad() {
		header.Flags, header.PayloadLen = record.FlagPad, one.PayloadLen
	} else {
		header.Flags |= one.Flags & record.FlagEpoch
		payload = record.RefusedGap(one.cause, one.len-record.OverheadLen)
	}
	raw, err := record.AppendTo(nil, header, nil, payload, id)
	if err == nil && len(raw) != one.len {
		err = fmt.Errorf("it has %d bytes, expected %d", len(raw), one.len)
	}
	if err == nil {
		copy(batch[one.at:], raw)
	}
	return err
}

// tellForged logs what was refused, and keeps it for whoever asks.
func (d *drainer) tellForged(found []forged, file string) {
	last, now := found[len(found)-1], time.Now()
	d.progress.Forged += uint64(len(found))
	d.forgedText = fmt.Sprintf("%d forged records were refused, the last at lsn %d: %s; GAP records are in their "+
		"place, and their bytes in %s: find out who has the writer's key", d.progress.Forged, last.LSN, last.cause,
		file)
	d.forgedAt = now
	if suppressed, isAllowed := d.forgedLog.Allow("", now); isAllowed {
		d.config.Logger.Error("forged records refused", "stream", d.source.StreamName, "ring", d.config.RingURI,
			"records", len(found), "first_lsn", found[0].LSN, "cause", found[0].cause, "kept_in", file, "not_logged",
			suppressed)
	}
}

// forgedNow is what the stream shows of refused records; "" = nothing lately.
func (d *drainer) forgedNow() string {
	if d.forgedText != "" && time.Since(d.forgedAt) > forgedShown {
		d.forgedText = ""
	}
	return d.forgedText
}
