package merge

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

const readSlots = 4096

// Item is a record in the merged order.
type Item struct {
	Entry
	Index  uint64     // in the order, from 0
	Record store.Item // its bytes are good until the next call
}

// OrderTime is what the order goes by.
func (i Item) OrderTime() time.Time { return time.Unix(0, int64(i.OrderNS)).UTC() }

// Reader goes along the merged order, also while another process makes it: then up to what is synced. It takes no lock.
// One goroutine at a time.
type Reader struct {
	store *store.Store
	dir   string

	file   store.File
	header orderHeader
	names  table
	slot   uint32 // of the next entry in the file
	limit  uint32 // slots that are synced
	isFull bool   // the file takes no more
	chunk  []byte // read, not yet decoded
	buf    []byte
	index  uint64
	held   *Entry // found by SeekTime

	streams map[string]*store.Reader
}

// OpenReader stands before the first entry. Errors: store.ErrNotFound: the store has no merged order.
func OpenReader(s *store.Store) (*Reader, error) {
	r := &Reader{store: s, dir: path.Join(s.Dir(), dirName), streams: map[string]*store.Reader{}}
	isThere, err := r.open(1)
	if err == nil && !isThere {
		err = fmt.Errorf("%w: store %s has no merged order: farlog merge makes it, or farlogd drain --merge",
			store.ErrNotFound, s.Dir())
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes all files.
func (r *Reader) Close() error {
	var errs []error
	if r.file != nil {
		errs = append(errs, r.file.Close())
	}
	for _, one := range r.streams {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// open goes to the start of a file; false: it has not begun.
func (r *Reader) open(number uint64) (bool, error) {
	name := fileName(r.dir, number, orderSuffix)
	file, err := r.store.FS().OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", name, err)
	}
	raw := make([]byte, orderDataOff)
	n, err := file.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		file.Close()
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	h, err := decodeOrderHeader(raw[:n])
	if err != nil {
		file.Close()
		if isZero(raw) || n < orderDataOff {
			return false, nil
		}
		return false, &store.CorruptError{Path: name, Err: err}
	}
	if r.file != nil {
		_ = r.file.Close() // only read
	}
	r.file, r.header, r.names, r.slot, r.chunk, r.limit, r.isFull, r.index = file, h, nil, 0, nil, 0, false,
		h.firstIndex
	return true, nil
}

// Next gives the next entry and its record. io.EOF at the present end: calling again later gives what came since.
// Errors: store.ErrCorrupt, or of the file system.
func (r *Reader) Next() (Item, error) {
	entry, err := r.NextEntry()
	if err != nil {
		return Item{}, err
	}
	item := Item{Entry: entry, Index: r.index - 1}
	item.Record, err = r.fetch(entry)
	return item, err
}

// NextEntry is Next without the record.
func (r *Reader) NextEntry() (Entry, error) {
	if r.held != nil {
		entry := *r.held
		r.held = nil
		return entry, nil
	}
	for {
		if err := r.fill(); err != nil {
			return Entry{}, err
		}
		entry, isName, slots, err := r.names.decode(r.chunk, r.slot)
		if err != nil {
			return Entry{}, &store.CorruptError{
				Path:   fileName(r.dir, r.header.number, orderSuffix),
				Offset: orderDataOff + int64(r.slot)*slotLen, Err: err,
			}
		}
		r.slot += uint32(slots)
		r.chunk = r.chunk[slots*slotLen:]
		if isName {
			continue
		}
		r.index++
		return entry, nil
	}
}

// fill reads slots until there are two, a name's, or those left. io.EOF: there are none.
func (r *Reader) fill() error {
	if len(r.chunk) >= 2*slotLen || len(r.chunk) > 0 && r.slot+uint32(len(r.chunk)/slotLen) == r.limit {
		return nil
	}
	for r.slot == r.limit {
		isMore, err := r.look()
		if err == nil && !isMore {
			err = io.EOF
		}
		if err != nil {
			return err
		}
	}
	if r.buf == nil {
		r.buf = make([]byte, readSlots*slotLen)
	}
	want := min(readSlots, r.limit-r.slot) * slotLen
	n, err := r.file.ReadAt(r.buf[:want], orderDataOff+int64(r.slot)*slotLen)
	if n < int(want) {
		return fmt.Errorf("read %s: %w", fileName(r.dir, r.header.number, orderSuffix), err)
	}
	r.chunk = r.buf[:want]
	return nil
}

// look finds how far the file is synced, and goes on to the next when it is full.
func (r *Reader) look() (bool, error) {
	name := fileName(r.dir, r.header.number, orderSuffix)
	if !r.isFull {
		c, err := loadCheckpoint(r.store.FS(), r.dir, r.header.number, r.store.PublicKey())
		if err == nil {
			r.isFull, r.limit = true, c.Slots
			return true, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		raw := make([]byte, orderDataOff)
		if _, err := r.file.ReadAt(raw, 0); err != nil {
			return false, fmt.Errorf("read %s: %w", name, err)
		}
		slots := uint32(decodeMarks(raw).slots)
		isMore := slots > r.limit
		r.limit = max(r.limit, slots)
		return isMore, nil
	}
	return r.open(r.header.number + 1)
}

// fetch gets an entry's record from its stream, where it is the next or not far.
func (r *Reader) fetch(entry Entry) (store.Item, error) {
	reader := r.streams[entry.Stream]
	if reader == nil {
		opened, err := r.store.OpenReader(entry.Stream,
			store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
		if err != nil {
			return store.Item{}, err
		}
		if err := opened.SeekPlace(entry.Place); err != nil {
			opened.Close()
			return store.Item{}, err
		}
		reader = opened
		r.streams[entry.Stream] = reader
	}
	for isAgain := false; ; {
		item, err := reader.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return store.Item{}, err
		}
		if err != nil && !isAgain {
			isAgain = true // the end may be that of what was read ahead when the stream was shorter
			continue
		}
		if err == nil && item.Place().IsBefore(entry.Place) {
			continue
		}
		if err != nil || item.Place() != entry.Place || item.CRC != entry.RecordCRC {
			return store.Item{}, &store.CorruptError{
				Path: fileName(r.dir, r.header.number, orderSuffix),
				LSN:  entry.LSN, Offset: orderDataOff + int64(r.slot-1)*slotLen,
				Err: fmt.Errorf("entry %d means a record of stream %s at %s with CRC %#08x, which the store does not "+
					"have", r.index-1, entry.Stream, entry.Place, entry.RecordCRC),
			}
		}
		return item, nil
	}
}

// SeekTime goes to the first entry at or behind the reader with an order time at or after t; to the present end when
// there is none.
func (r *Reader) SeekTime(t time.Time) error {
	ts := uint64(max(t.UnixNano(), 0))
	for {
		isThere, err := r.isInNextFile(ts)
		if err != nil {
			return err
		}
		if !isThere {
			break
		}
	}
	for {
		entry, err := r.NextEntry()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.OrderNS >= ts {
			r.held = &entry
			return nil
		}
	}
}

// isInNextFile goes to the next file when everything in this one is before ts.
func (r *Reader) isInNextFile(ts uint64) (bool, error) {
	at := r.header.number
	file, err := r.store.FS().OpenFile(fileName(r.dir, at+1, orderSuffix), os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", fileName(r.dir, at+1, orderSuffix), err)
	}
	raw := make([]byte, orderHeaderLen)
	_, err = file.ReadAt(raw, 0)
	file.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s: %w", fileName(r.dir, at+1, orderSuffix), err)
	}
	if h, err := decodeOrderHeader(raw); err != nil || h.prevOrderNS >= ts {
		return false, nil
	}
	return r.open(at + 1)
}
