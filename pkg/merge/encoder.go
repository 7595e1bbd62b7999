package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

const (
	// SegmentBytesDefault is how large a segment of the order is.
	SegmentBytesDefault = store.SegmentBytesDefault
	segmentHeaderBytes  = 4096

	positionsFormat  = "farlog-merge"
	positionsVersion = 2
)

// last is the last entry of a stream: all that is needed to go on behind it.
type last struct {
	store.Place
	seq     uint64
	orderNS uint64
	isLate  bool
}

// info is what an encoder knows of a stream.
type info struct {
	name string
	key  []byte // the name
	last last   // zero = none
}

// positions is the first record of each segment of the order: what is needed to go on behind it, without the segments
// before. There is nothing in it that the records and the decisions do not determine.
type positions struct {
	Format       string           `json:"format"`
	Version      int              `json:"version"`
	SegmentBytes int64            `json:"segment_bytes"`
	NextIndex    uint64           `json:"next_index"`
	OrderNS      uint64           `json:"order_ns"`
	LastStream   string           `json:"last_stream"`
	Streams      []streamPosition `json:"streams"`
}

type streamPosition struct {
	Stream     string `json:"stream"`
	Generation uint64 `json:"generation"`
	Epoch      uint32 `json:"epoch"`
	LSN        uint64 `json:"lsn"`
	Seq        uint64 `json:"seq"`
	OrderNS    uint64 `json:"order_ns"`
	IsLate     bool   `json:"is_late"`
}

// encoder makes the records of the order and nothing else: what writes them and what checks them use it alike.
type encoder struct {
	identity     record.Identity
	segmentBytes int64
	freeBytes    int64         // bytes that are left in the segment
	cursor       record.Cursor // of the next record
	nextIndex    uint64        // of the next entry among all
	orderNS      uint64        // of the last entry
	stream       string        // of the last entry
	streams      map[string]*info
	payload      [entryLen]byte // of the entry that is being added
}

func newEncoder(s *store.Store, segmentBytes int64) *encoder {
	return &encoder{
		identity: identityOf(sourceOf(s, segmentBytes)), segmentBytes: segmentBytes, streams: map[string]*info{},
		cursor: record.Cursor{Epoch: orderEpoch},
	}
}

func identityOf(source store.Source) record.Identity {
	return record.Identity{Salt: source.Salt, Align: source.Align, RecordLenMax: source.RecordLenMax}
}

func (e *encoder) info(stream string) *info {
	known := e.streams[stream]
	if known == nil {
		known = &info{name: stream, key: []byte(stream)}
		e.streams[stream] = known
	}
	return known
}

// isFull reports whether the next entry, of whatever stream, begins a segment.
func (e *encoder) isFull() bool { return e.freeBytes < entryExtentMax }

// begin appends the record that begins a segment to dst.
func (e *encoder) begin(dst []byte) ([]byte, error) {
	payload, err := json.Marshal(e.positions())
	if err != nil {
		return dst, fmt.Errorf("encode positions: %w", err)
	}
	e.freeBytes = e.segmentBytes - segmentHeaderBytes
	if need := int64(record.Extent(orderAlign, 0, len(payload))) + entryExtentMax; need > e.freeBytes {
		return dst, fmt.Errorf("%w: the positions of %d streams take %d bytes, expected at most %d in a segment of "+
			"the order: merge fewer streams into one", store.ErrInvalid, len(e.streams), need, e.freeBytes)
	}
	return e.encodeRecord(dst, record.Header{TimestampNS: e.orderNS, Class: uint16(flagPositions)}, nil, payload)
}

// add appends the record of an entry to dst.
func (e *encoder) add(dst []byte, entry *Entry, of *info) ([]byte, error) {
	h := record.Header{TimestampNS: entry.OrderNS, Class: uint16(entry.Flags)}
	dst, err := e.encodeRecord(dst, h, of.key, entry.payload(&e.payload))
	e.applyEntry(entry, of)
	return dst, err
}

func (e *encoder) encodeRecord(dst []byte, h record.Header, key, payload []byte) ([]byte, error) {
	h.LSN, h.Seq, h.Epoch = e.cursor.LSN, e.cursor.Seq, orderEpoch
	before := len(dst)
	dst, err := record.AppendTo(dst, h, key, payload, e.identity)
	if err != nil {
		return dst, fmt.Errorf("encode order: %w", err)
	}
	e.skip(int64(len(dst) - before))
	return dst, nil
}

// skip moves over a record.
func (e *encoder) skip(stored int64) {
	e.freeBytes -= stored
	e.cursor.LSN += uint64(stored)
	e.cursor.Seq++
}

// applyEntry counts an entry whose record is there.
func (e *encoder) applyEntry(entry *Entry, of *info) {
	e.nextIndex++
	e.orderNS, e.stream = entry.OrderNS, of.name
	of.last = last{entry.Place, entry.Seq, entry.OrderNS, entry.Flags&FlagLate != 0}
}

func isPositions(item *store.Item) bool { return Flags(item.Class)&flagPositions != 0 }

// load takes in a record that is there. The first must be the one that begins its segment.
func (e *encoder) load(item *store.Item) error {
	if !isPositions(item) {
		entry, err := decodeEntry(&item.Record)
		if err != nil {
			return err
		}
		e.applyEntry(&entry, e.info(entry.Stream))
	} else if p, err := decodePositions(item.Payload); err != nil {
		return err
	} else if err := e.resume(p); err != nil {
		return err
	}
	e.cursor.LSN, e.cursor.Seq = item.LSN, item.Seq
	e.skip(int64(len(item.Raw)))
	return nil
}

// resume stands at the begin of a segment, before the record that begins it.
func (e *encoder) resume(p positions) error {
	if p.SegmentBytes != e.segmentBytes {
		return fmt.Errorf("segments of %d bytes, the first one says %d", p.SegmentBytes, e.segmentBytes)
	}
	e.freeBytes = e.segmentBytes - segmentHeaderBytes
	e.nextIndex, e.orderNS, e.stream = p.NextIndex, p.OrderNS, p.LastStream
	for _, s := range p.Streams {
		place := store.Place{Generation: s.Generation, Epoch: s.Epoch, LSN: s.LSN}
		e.info(s.Stream).last = last{place, s.Seq, s.OrderNS, s.IsLate}
	}
	return nil
}

func (e *encoder) positions() positions {
	p := positions{
		Format: positionsFormat, Version: positionsVersion, SegmentBytes: e.segmentBytes, NextIndex: e.nextIndex,
		OrderNS: e.orderNS, LastStream: e.stream, Streams: []streamPosition{},
	}
	for name, of := range e.streams {
		if l := of.last; l.Generation != 0 {
			p.Streams = append(p.Streams, streamPosition{
				name, l.Generation, l.Epoch, l.LSN, l.seq, l.orderNS, l.isLate,
			})
		}
	}
	sort.Slice(p.Streams, func(i, k int) bool { return p.Streams[i].Stream < p.Streams[k].Stream })
	return p
}

func decodePositions(raw []byte) (p positions, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("decode positions: %w", err)
	}
	again, err := json.Marshal(p)
	if err != nil || !bytes.Equal(again, raw) || p.Format != positionsFormat || p.Version != positionsVersion {
		return p, errors.Join(err, fmt.Errorf("positions of format %q, version %d, expected %q, %d, and nothing else "+
			"than what its fields encode to", p.Format, p.Version, positionsFormat, positionsVersion))
	}
	return p, nil
}
