package merge

import (
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/record"
	"github.com/farlog/farlog/pkg/store"
)

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
	at    order
	order *store.Reader
	index uint64     // of the next entry
	held  *Entry     // found by SeekTime
	last  store.Item // where the entry given last stands in the order

	streams map[string]*store.Reader
}

// OpenReader stands before the first entry. Errors: store.ErrNotFound: the store has no merged order.
func OpenReader(s *store.Store) (*Reader, error) {
	dir := path.Join(s.Dir(), dirName)
	at := order{s.Derived(dir, store.SegmentBytesMin), dir, store.SegmentBytesMin}
	r := &Reader{store: s, at: at, streams: map[string]*store.Reader{}}
	var err error
	r.order, err = at.read()
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%w: store %s has no merged order: farlog merge makes it, or farlogd drain --merge",
			store.ErrNotFound, s.Dir())
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes all files.
func (r *Reader) Close() error {
	errs := []error{r.order.Close()}
	for _, one := range r.streams {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Next gives the next entry and its record. It passes over entries whose records were removed before their stream was
// opened here. io.EOF at the present end: calling again later gives what came since.
// Errors: store.ErrCorrupt, or of the file system.
func (r *Reader) Next() (Item, error) {
	for {
		entry, err := r.NextEntry()
		if err != nil {
			return Item{}, err
		}
		reader, err := r.openStream(entry)
		if err != nil {
			return Item{}, err
		}
		if reader.Base().HasRemoved(entry.Place) {
			continue
		}
		item := Item{Entry: entry, Index: r.index - 1}
		item.Record, err = r.fetch(reader, entry)
		return item, err
	}
}

// NextEntry is Next without the record.
func (r *Reader) NextEntry() (Entry, error) {
	if r.held != nil {
		entry := *r.held
		r.held = nil
		return entry, nil
	}
	for {
		item, err := r.order.Next()
		if err != nil {
			return Entry{}, err
		}
		if isPositions(&item) {
			continue
		}
		entry, err := decodeEntry(&item.Record)
		if err != nil {
			return Entry{}, r.at.damaged(&item, err)
		}
		r.last, r.index = item, item.Seq-item.Segment+1 // each segment begins with a record that is no entry
		return entry, nil
	}
}

// openStream gives the reader of an entry's stream. One that is opened stands at the entry's record, or, when that was
// removed, where the stream begins.
func (r *Reader) openStream(entry Entry) (*store.Reader, error) {
	reader := r.streams[entry.Stream]
	if reader != nil {
		return reader, nil
	}
	reader, err := r.store.OpenReader(entry.Stream,
		store.ReaderOptions{IncludeControl: true, IncludeSuperseded: true})
	if err != nil {
		return nil, err
	}
	if !reader.Base().HasRemoved(entry.Place) {
		if err := reader.SeekPlace(entry.Place); err != nil {
			_ = reader.Close()
			return nil, err
		}
	}
	r.streams[entry.Stream] = reader
	return reader, nil
}

// fetch gets an entry's record from its stream, where it is the next or not far.
func (r *Reader) fetch(reader *store.Reader, entry Entry) (store.Item, error) {
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
			return store.Item{}, r.at.damaged(&r.last,
				fmt.Errorf("entry %d means a record of stream %s at %s with CRC "+
					"%#08x, which the store does not have", r.index-1, entry.Stream, entry.Place, entry.RecordCRC))
		}
		return item, nil
	}
}

// SeekTime goes to the first entry with an order time at or after t; to the present end when there is none.
func (r *Reader) SeekTime(t time.Time) error {
	r.held = nil
	if err := r.order.SeekTime(t); err != nil {
		return err
	}
	for {
		entry, err := r.NextEntry()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry.OrderNS >= record.TimestampOf(t) {
			r.held = &entry
			return nil
		}
	}
}
