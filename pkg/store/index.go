package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/farlog/farlog/pkg/record"
)

// Layout of an index file (docs/reference/format.md section 5).
const (
	indexMagic      = "FARLOGIX"
	indexHeaderLen  = 56
	indexEntryLen   = 40
	indexMarkLen    = 24
	indexBlockBytes = 64 << 10
	indexBytesMax   = 1 << 30
)

// indexEntry describes the records from offset up to the next entry.
type indexEntry struct {
	lsn, seq     uint64
	minTS, maxTS uint64
	offset       int64
}

// EpochMark is where an epoch begins in the log.
type EpochMark struct {
	Epoch    uint32 `json:"epoch"`
	StartLSN uint64 `json:"start_lsn"`
	StartSeq uint64 `json:"start_seq"`
}

// summary is what is known of a segment's records: made while they are appended or walked, the stuff of index and
// manifest. Copying the struct keeps a state to go back to: slices are only ever appended to.
type summary struct {
	recordCount, controlCount, padCount uint64
	firstLSN, lastLSN                   uint64
	firstSeq, lastSeq                   uint64
	firstEpoch, lastEpoch               uint32
	minTS, maxTS                        uint64
	marks                               []EpochMark
	closed                              []indexEntry
	open                                indexEntry
	isAny                               bool
}

// add counts one record. isEpochStart: its epoch is higher than that of the record before.
func (s *summary) add(h *record.Header, offset int64, isEpochStart bool) {
	if !s.isAny || isEpochStart || offset-s.open.offset >= indexBlockBytes {
		s.openEntry(h, offset)
	}
	if !s.isAny {
		s.isAny = true
		s.firstLSN, s.firstSeq, s.firstEpoch = h.LSN, h.Seq, h.Epoch
		s.minTS, s.maxTS = h.TimestampNS, h.TimestampNS
	}
	s.open.minTS, s.open.maxTS = min(s.open.minTS, h.TimestampNS), max(s.open.maxTS, h.TimestampNS)
	s.minTS, s.maxTS = min(s.minTS, h.TimestampNS), max(s.maxTS, h.TimestampNS)
	s.lastLSN, s.lastSeq, s.lastEpoch = h.LSN, h.Seq, h.Epoch
	if isEpochStart {
		s.marks = append(s.marks, EpochMark{Epoch: h.Epoch, StartLSN: h.LSN, StartSeq: h.Seq})
	}
	switch {
	case h.Flags.IsPad():
		s.padCount++
	case h.Flags.IsControl():
		s.controlCount++
	default:
		s.recordCount++
	}
}

func (s *summary) openEntry(h *record.Header, offset int64) {
	if s.isAny {
		s.closed = append(s.closed, s.open)
	}
	s.open = indexEntry{lsn: h.LSN, seq: h.Seq, minTS: h.TimestampNS, maxTS: h.TimestampNS, offset: offset}
}

func (s *summary) entries() []indexEntry {
	if !s.isAny {
		return nil
	}
	return append(s.closed[:len(s.closed):len(s.closed)], s.open)
}

// index is the content of an index file.
type index struct {
	entries []indexEntry
	marks   []EpochMark
}

func (x index) encode(h segmentHeader, usedBytes int64) []byte {
	raw := make([]byte, indexHeaderLen, indexHeaderLen+len(x.entries)*indexEntryLen+len(x.marks)*indexMarkLen+4)
	copy(raw, indexMagic)
	binary.LittleEndian.PutUint32(raw[8:], segmentVersion)
	binary.LittleEndian.PutUint32(raw[12:], uint32(len(x.entries)))
	copy(raw[16:32], h.RingUUID[:])
	binary.LittleEndian.PutUint64(raw[32:], h.Number)
	binary.LittleEndian.PutUint64(raw[40:], uint64(usedBytes))
	binary.LittleEndian.PutUint32(raw[48:], uint32(len(x.marks)))
	for _, e := range x.entries {
		for _, word := range []uint64{e.lsn, e.seq, e.minTS, e.maxTS, uint64(e.offset)} {
			raw = binary.LittleEndian.AppendUint64(raw, word)
		}
	}
	for _, m := range x.marks {
		for _, word := range []uint64{uint64(m.Epoch), m.StartLSN, m.StartSeq} {
			raw = binary.LittleEndian.AppendUint64(raw, word)
		}
	}
	return binary.LittleEndian.AppendUint32(raw, record.CRC32C(0, raw))
}

var errIndexDoubtful = errors.New("index is doubtful")

// decodeIndex believes an index only when it is whole and of this segment.
func decodeIndex(raw []byte, h segmentHeader, usedBytes int64) (index, error) {
	if len(raw) < indexHeaderLen+4 || string(raw[:8]) != indexMagic ||
		binary.LittleEndian.Uint32(raw[8:]) != segmentVersion {
		return index{}, fmt.Errorf("%w: no index header", errIndexDoubtful)
	}
	body, crc := raw[:len(raw)-4], binary.LittleEndian.Uint32(raw[len(raw)-4:])
	entryCount, markCount := int(binary.LittleEndian.Uint32(raw[12:])), int(binary.LittleEndian.Uint32(raw[48:]))
	switch {
	case record.CRC32C(0, body) != crc:
		return index{}, fmt.Errorf("%w: CRC does not match", errIndexDoubtful)
	case record.UUID(raw[16:32]) != h.RingUUID || binary.LittleEndian.Uint64(raw[32:]) != h.Number ||
		binary.LittleEndian.Uint64(raw[40:]) != uint64(usedBytes):
		return index{}, fmt.Errorf("%w: it is of another segment", errIndexDoubtful)
	case len(body) != indexHeaderLen+entryCount*indexEntryLen+markCount*indexMarkLen:
		return index{}, fmt.Errorf("%w: %d bytes for %d entries and %d epochs", errIndexDoubtful, len(raw), entryCount,
			markCount)
	}
	x := index{entries: make([]indexEntry, entryCount), marks: make([]EpochMark, markCount)}
	word := func(off int) uint64 { return binary.LittleEndian.Uint64(body[off:]) }
	off := indexHeaderLen
	for i := range x.entries {
		x.entries[i] = indexEntry{word(off), word(off + 8), word(off + 16), word(off + 24), int64(word(off + 32))}
		if at := x.entries[i].offset; at < segmentDataOffset || at >= usedBytes {
			return index{}, fmt.Errorf("%w: entry %d at offset %d", errIndexDoubtful, i, at)
		}
		off += indexEntryLen
	}
	for i := range x.marks {
		x.marks[i] = EpochMark{uint32(word(off)), word(off + 8), word(off + 16)}
		off += indexMarkLen
	}
	return x, nil
}

// offsetOfLSN is where to begin looking for a record: the last entry at or below lsn. Entries begin with each epoch, so
// that after a rewind the last one is the one that counts.
func (x index) offsetOfLSN(lsn uint64) int64 {
	for i := len(x.entries) - 1; i >= 0; i-- {
		if x.entries[i].lsn <= lsn {
			return x.entries[i].offset
		}
	}
	return segmentDataOffset
}

// offsetOfTime is where to begin looking for the first record at or after ts; ok is false when none is that late.
func (x index) offsetOfTime(ts uint64) (offset int64, ok bool) {
	for _, e := range x.entries {
		if e.maxTS >= ts {
			return e.offset, true
		}
	}
	return 0, false
}

// loadIndex reads a sealed segment's index, or makes it again from the records when it is missing or doubtful.
func loadIndex(dir streamDir, h segmentHeader, usedBytes int64) (index, error) {
	raw, err := readFile(dir.fsys, dir.file(h.Number, indexSuffix), indexBytesMax)
	if err == nil {
		if x, decodeErr := decodeIndex(raw, h, usedBytes); decodeErr == nil {
			return x, nil
		}
	}
	return rebuildIndex(dir, h.Number)
}

// rebuildIndex walks the valid records of a segment.
func rebuildIndex(dir streamDir, number uint64) (index, error) {
	name := dir.file(number, segmentSuffix)
	file, err := dir.fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return index{}, wrap("open", name, err)
	}
	defer file.Close()
	result, err := walkSegment(file, name, nil)
	if err != nil {
		return index{}, err
	}
	return index{entries: result.sum.entries(), marks: result.sum.marks}, nil
}
