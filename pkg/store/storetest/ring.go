package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

// Ring is a writer and its ring as a drain sees them: a log of records from the head on, with PADs at the end of each
// lap, epochs, and power cuts that undo what was not acknowledged.
type Ring struct {
	Source   store.Source
	Capacity uint64
	Records  []Record // from the head on

	rng    *rand.Rand
	cursor record.Cursor
	now    uint64
}

// Record is one record of the ring in its stored form.
type Record struct {
	record.Header
	Raw []byte
}

// NewRing formats a ring and opens its first epoch. The seed decides about its salt, its identity and its records.
func NewRing(stream string, seed uint64) *Ring {
	rng := rand.New(rand.NewPCG(seed, 2))
	r := &Ring{
		rng: rng, Capacity: 32 << 10, now: 1763700000000000000,
		Source: store.Source{StreamName: stream, StreamID: 7, Salt: rng.Uint64() | 1, Align: 64, RecordLenMax: 4096},
	}
	for i := range r.Source.RingUUID {
		r.Source.RingUUID[i] = byte(rng.Uint32())
	}
	r.OpenEpoch()
	return r
}

// OpenEpoch opens the next epoch, as a new writer does.
func (r *Ring) OpenEpoch() {
	r.OpenEpochAt(r.cursor.LSN)
}

// OpenEpochAt undoes everything from lsn on, which must be a record's start or the end of the log, and opens the next
// epoch there.
func (r *Ring) OpenEpochAt(lsn uint64) {
	for i, rec := range r.Records {
		if rec.LSN == lsn {
			r.cursor.LSN, r.cursor.Seq = rec.LSN, rec.Seq
			r.Records = r.Records[:i:i]
			break
		}
	}
	if r.cursor.LSN != lsn {
		panic(fmt.Sprintf("no record begins at lsn %d", lsn))
	}
	epoch := r.cursor.Epoch + 1
	payload := record.EpochPayload{PrevEpoch: r.cursor.Epoch, StartLSN: lsn, RingUUID: r.Source.RingUUID}.Encode()
	r.put(record.Header{Flags: record.FlagEpoch, Epoch: epoch}, nil, payload)
}

// Append writes records with random payloads of up to lenMax bytes.
func (r *Ring) Append(count, lenMax int) {
	for range count {
		payload := make([]byte, r.rng.IntN(lenMax+1))
		for i := range payload {
			payload[i] = byte(r.rng.Uint32())
		}
		h := record.Header{Epoch: r.cursor.Epoch, Class: uint16(r.rng.IntN(4))}
		if r.rng.IntN(20) == 0 {
			h.Flags, h.Class, payload = record.FlagHeartbeat, 0, nil
		}
		r.put(h, fmt.Appendf(nil, "ORD-%d", r.cursor.Seq), payload)
	}
}

// AppendPayload writes one record with this payload.
func (r *Ring) AppendPayload(payload []byte) {
	r.put(record.Header{Epoch: r.cursor.Epoch, Class: 1}, nil, payload)
}

// AppendGap writes a GAP record, in the place of a record that was refused for a cause.
func (r *Ring) AppendGap(cause string) {
	r.AppendGapPayload(record.RefusedGap(cause, record.GapPayloadLen+len(cause)))
}

// AppendGapPayload writes a GAP record with this payload.
func (r *Ring) AppendGapPayload(payload []byte) {
	r.put(record.Header{Epoch: r.cursor.Epoch, Flags: record.FlagGap}, nil, payload)
}

func (r *Ring) put(h record.Header, key, payload []byte) {
	if h.Flags.IsControl() {
		key = nil
	}
	left := r.Capacity - r.cursor.LSN%r.Capacity
	if record.Extent(r.Source.Align, len(key), len(payload)) > left {
		r.emit(record.Header{Flags: record.FlagPad, Epoch: h.Epoch, PayloadLen: uint32(left - record.PadStoredLen)},
			nil, nil)
	}
	r.emit(h, key, payload)
}

func (r *Ring) emit(h record.Header, key, payload []byte) {
	r.now += uint64(r.rng.IntN(1000)) + 1
	h.LSN, h.Seq, h.StreamID, h.TimestampNS, h.ClockErrNS = r.cursor.LSN, r.cursor.Seq, r.Source.StreamID, r.now, 100
	id := record.Identity{Salt: r.Source.Salt, Align: r.Source.Align, RecordLenMax: r.Source.RecordLenMax}
	raw, err := record.AppendTo(nil, h, key, payload, id)
	if err != nil {
		panic(err)
	}
	h, err = record.ParseHeader(raw)
	if err != nil {
		panic(err)
	}
	r.Records = append(r.Records, Record{Header: h, Raw: raw})
	r.cursor.Advance(h, r.Source.Align)
}

// SetClock sets the clock of the writer's host ahead: records are of that time from now on.
func (r *Ring) SetClock(now time.Time) { r.now = uint64(now.UnixNano()) }

// Release drops the records below lsn, as a drain does when they are synced in the store.
func (r *Ring) Release(lsn uint64) {
	for len(r.Records) > 0 && r.Records[0].LSN < lsn {
		r.Records = r.Records[1:]
	}
}

// Batch gives the stored bytes of records.
func Batch(records []Record) []byte {
	var batch []byte
	for _, rec := range records {
		batch = append(batch, rec.Raw...)
	}
	return batch
}

// NextLSN is the lsn of the next record.
func (r *Ring) NextLSN() uint64 { return r.cursor.LSN }
