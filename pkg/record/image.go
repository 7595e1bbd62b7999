package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrLost tells that acknowledged records are gone: the log ends below the durable hint (docs/reference/format.md
// section 4, step 3).
var ErrLost = errors.New("acknowledged records are gone from the ring")

// Image is a region with one ring, read without changing it: a file that was copied from a region, or the region's own
// file.
type Image struct {
	Superblock     Superblock
	Head           HeadSlot
	CreditLSN      uint64
	TailHintLSN    uint64
	DurableHintLSN uint64
	EpochMin       uint32

	src        io.ReaderAt
	dataOffset int64
}

// OpenImage reads the metadata of a ring from a region of size bytes: the valid superblock with the highest generation,
// the valid head slot with the highest head_lsn. Errors: ErrSuperblock, ErrHeadSlot, ErrShort (the region is smaller
// than its ring says), and those of src.
func OpenImage(src io.ReaderAt, size int64) (*Image, error) {
	meta := make([]byte, DataOffset)
	if size < DataOffset {
		return nil, fmt.Errorf("%w: region of %d bytes, expected at least %d", ErrShort, size, DataOffset)
	}
	if n, err := src.ReadAt(meta, 0); n < len(meta) {
		return nil, fmt.Errorf("read region metadata: %w", err)
	}
	im := &Image{src: src, dataOffset: DataOffset}
	var err error
	if im.Superblock, err = newestSuperblock(meta); err != nil {
		return nil, err
	}
	if im.Superblock.BlockLen != 0 {
		im.dataOffset = BlocksDataOffset
	}
	if size < im.dataOffset || uint64(size-im.dataOffset) < im.Superblock.Capacity {
		return nil, fmt.Errorf("%w: region of %d bytes, its superblock says %d", ErrShort, size,
			im.Superblock.Capacity+uint64(im.dataOffset))
	}
	if im.Superblock.BlockLen != 0 {
		err = im.readBlocks()
	} else {
		err = im.readWords(meta)
	}
	if err != nil {
		return nil, err
	}
	if im.Head.HeadLSN%uint64(im.Superblock.Align) != 0 {
		return nil, fmt.Errorf("%w: head_lsn %d, expected a multiple of %d", ErrHeadSlot, im.Head.HeadLSN,
			im.Superblock.Align)
	}
	return im, nil
}

// readWords takes head, credit, hints and fence of a ring in memory.
func (im *Image) readWords(meta []byte) (err error) {
	im.Head, err = newestHead(meta[HeadSlotAOffset:], meta[HeadSlotBOffset:], im.Superblock.Salt)
	im.CreditLSN = binary.LittleEndian.Uint64(meta[CreditOffset:])
	im.TailHintLSN = binary.LittleEndian.Uint64(meta[TailHintOffset:])
	im.DurableHintLSN = binary.LittleEndian.Uint64(meta[DurableHintOffset:])
	im.EpochMin = uint32(binary.LittleEndian.Uint64(meta[FenceOffset:]))
	return err
}

// readBlocks takes the same of a ring on blocks.
func (im *Image) readBlocks() error {
	meta := make([]byte, BlocksDataOffset)
	if n, err := im.src.ReadAt(meta, 0); n < len(meta) {
		return fmt.Errorf("read region metadata: %w", err)
	}
	var err error
	im.Head, err = newestHead(meta[BlocksHeadSlotAOffset:], meta[BlocksHeadSlotBOffset:], im.Superblock.Salt)
	im.CreditLSN = decodeBlockWords(meta[BlocksCreditOffset:])[0]
	hints := decodeBlockWords(meta[BlocksHintsOffset:])
	im.TailHintLSN, im.DurableHintLSN = hints[0], hints[1]
	im.EpochMin = uint32(max(decodeBlockWords(meta[BlocksFenceAOffset:])[0],
		decodeBlockWords(meta[BlocksFenceBOffset:])[0]))
	return err
}

func newestSuperblock(meta []byte) (Superblock, error) {
	a, errA := DecodeSuperblock(meta[SuperblockAOffset:])
	b, errB := DecodeSuperblock(meta[SuperblockBOffset:])
	switch {
	case errA != nil && errB != nil:
		return Superblock{}, fmt.Errorf("superblock A: %w; superblock B: %w", errA, errB)
	case errA != nil || (errB == nil && b.Generation > a.Generation):
		return b, nil
	}
	return a, nil
}

func newestHead(slotA, slotB []byte, salt uint64) (HeadSlot, error) {
	a, errA := DecodeHeadSlot(slotA, salt)
	b, errB := DecodeHeadSlot(slotB, salt)
	switch {
	case errA != nil && errB != nil:
		return HeadSlot{}, fmt.Errorf("head slot A: %w; head slot B: %w", errA, errB)
	case errA != nil || (errB == nil && b.HeadLSN > a.HeadLSN):
		return b, nil
	}
	return a, nil
}

// Walker goes along the undrained records of an image, oldest first.
type Walker struct {
	im     *Image
	cursor Cursor
	start  uint64
	buf    []byte
	chunk  []byte // unread part of buf, beginning at cursor.LSN
	reason error
	newest Superblock // cuts the log, when it is of several members
}

// Walk begins at the head.
func (im *Image) Walk() *Walker {
	return &Walker{im: im, start: im.Head.HeadLSN, cursor: Cursor{
		LSN: im.Head.HeadLSN, Seq: im.Head.HeadSeq, Epoch: im.Head.LastEpoch, EpochMax: im.Superblock.WriterEpoch,
	}}
}

// WalkFrom begins where the caller's own log of this ring ends, at or behind the head.
func (im *Image) WalkFrom(c Cursor) *Walker {
	w := im.Walk()
	w.cursor.LSN, w.cursor.Seq, w.cursor.Epoch = c.LSN, c.Seq, c.Epoch
	return w
}

// Next gives the next valid record, whose bytes stay good until the call after. io.EOF at the tail; ErrLost when the
// tail lies below the durable hint; otherwise the error of a failed read. Memory: one buffer, at most record_len_max or
// 256 KiB.
func (w *Walker) Next() (Record, error) {
	if w.reason != nil {
		return Record{}, w.end()
	}
	rec, err := w.decode()
	if err == nil {
		w.cursor.Advance(rec.Header, w.im.Superblock.Align)
		w.chunk = w.chunk[min(uint64(len(w.chunk)), rec.Extent(w.im.Superblock.Align)):]
		return rec, nil
	}
	var read *readError
	if errors.As(err, &read) {
		return Record{}, err
	}
	w.reason = err
	return Record{}, w.end()
}

// Tail is where the walk stands: after Next gave io.EOF or ErrLost, the ring's tail.
func (w *Walker) Tail() Cursor { return w.cursor }

// Reason tells, after the end of the walk, why there is no record at the tail. ErrNothing is the ordinary one.
func (w *Walker) Reason() error { return w.reason }

func (w *Walker) end() error {
	if w.cursor.LSN < w.im.DurableHintLSN {
		return fmt.Errorf("%w: the log ends at lsn %d (%w), records up to lsn %d were acknowledged",
			ErrLost, w.cursor.LSN, w.reason, w.im.DurableHintLSN)
	}
	return io.EOF
}

// Skip goes over damage: from where the walk has ended to the next record that lies where its lsn says, and that may
// follow: its seq and its epoch are no lower, no newer epoch began before it, and what is missing between has room.
// Next gives that record; its header is found. isFound is false when there is none in the ring; then the walk stays
// where it was.
func (w *Walker) Skip() (found Header, isFound bool, err error) {
	from, reason := w.cursor, w.reason
	align := uint64(w.im.Superblock.Align)
	for lsn := from.LSN + align; lsn-w.start < w.im.Superblock.Capacity; lsn += align {
		w.cursor.LSN, w.chunk = lsn, w.chunk[min(align, uint64(len(w.chunk))):]
		if err := w.fill(HeaderLen, w.im.Superblock.Capacity-lsn%w.im.Superblock.Capacity); err != nil {
			return Header{}, false, err
		}
		header, err := ParseHeader(w.chunk)
		if err != nil || header.LSN != lsn || header.Epoch < from.Epoch || header.Seq < from.Seq ||
			header.Epoch < w.im.Superblock.WriterEpoch && lsn >= w.im.Superblock.EpochStartLSN ||
			(lsn-from.LSN)/Extent(uint32(align), 0, 0) < header.Seq-from.Seq {
			continue
		}
		w.cursor.Seq, w.cursor.Epoch = header.Seq, header.Epoch
		_, err = w.decode()
		var read *readError
		if errors.As(err, &read) {
			return Header{}, false, err
		}
		if err == nil {
			w.reason = nil
			return header, true, nil
		}
	}
	w.cursor, w.chunk, w.reason = from, nil, reason
	return Header{}, false, nil
}

// Peek gives the header where the walk stands, whatever else is wrong with the record.
func (w *Walker) Peek() (Header, error) {
	capacity := w.im.Superblock.Capacity
	if err := w.fill(HeaderLen, capacity-w.cursor.LSN%capacity); err != nil {
		return Header{}, err
	}
	return ParseHeader(w.chunk)
}

// Bytes gives the first ones where the walk stands, at most count, and none behind the end of the ring.
func (w *Walker) Bytes(count uint64) ([]byte, error) {
	capacity := w.im.Superblock.Capacity
	left := capacity - w.cursor.LSN%capacity
	count = min(count, left)
	if err := w.fill(count, left); err != nil {
		return nil, err
	}
	return w.chunk[:count], nil
}

type readError struct{ err error }

func (e *readError) Error() string { return "read ring: " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// decode checks the record at the cursor: bytes, place in the ring, place in the log.
func (w *Walker) decode() (Record, error) {
	capacity := w.im.Superblock.Capacity
	switch {
	case w.cursor.LSN-w.start >= capacity:
		return Record{}, fmt.Errorf("%w: the ring is full", ErrNothing)
	case w.cursor.EpochMax == 0:
		return Record{}, fmt.Errorf("%w: the ring was never written to", ErrNothing)
	}
	left := capacity - w.cursor.LSN%capacity
	if err := w.fill(HeaderLen, left); err != nil {
		return Record{}, err
	}
	header, err := ParseHeader(w.chunk)
	if err != nil {
		return Record{}, err
	}
	if err := w.cursor.Check(header); err != nil {
		return Record{}, err
	}
	if header.Epoch < w.newest.WriterEpoch && header.LSN >= w.newest.EpochStartLSN {
		return Record{}, fmt.Errorf("%w at lsn %d by epoch %d, and this record is of epoch %d", ErrCut,
			w.newest.EpochStartLSN, w.newest.WriterEpoch, header.Epoch)
	}
	id := w.im.Superblock.Identity()
	extent := header.Extent(id.Align)
	if extent > left || (header.Flags.IsPad() && extent != left && extent != w.leftInBlock()) {
		return Record{}, fmt.Errorf("%w: extent %d, %d bytes before the end of the ring", ErrLength, extent, left)
	}
	if err := header.checkLength(id); err != nil {
		return Record{}, err
	}
	if err := w.fill(header.StoredLen(id.Align), left); err != nil {
		return Record{}, err
	}
	return Decode(w.chunk, id)
}

// leftInBlock counts the bytes from the cursor to the end of its LBA, with which a commit on blocks ends; 0 where an
// LBA begins, and in memory.
func (w *Walker) leftInBlock() uint64 {
	if w.im.Superblock.BlockLen == 0 {
		return 0
	}
	return -w.cursor.LSN & uint64(w.im.Superblock.BlockLen-1)
}

const walkChunkLen = 256 << 10

// fill makes the chunk hold at least need bytes from the cursor on; left = bytes before the end of the ring.
func (w *Walker) fill(need, left uint64) error {
	if uint64(len(w.chunk)) >= need {
		return nil
	}
	if need > left {
		return fmt.Errorf("%w: %d bytes before the end of the ring", ErrLength, left)
	}
	want := min(max(need, walkChunkLen), left)
	if uint64(len(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.chunk = w.buf[:want]
	off := w.im.dataOffset + int64(w.cursor.LSN%w.im.Superblock.Capacity)
	if n, err := w.im.src.ReadAt(w.chunk, off); n < len(w.chunk) {
		w.chunk = nil
		return &readError{err: fmt.Errorf("%d bytes at offset %d: %w", want, off, err)}
	}
	return nil
}
