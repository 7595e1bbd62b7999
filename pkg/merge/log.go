package merge

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/farlog/farlog/pkg/store"
)

const (
	dirName    = "merged"
	writeBytes = 1 << 20 // of entries that are written at once
)

// log writes the order: a stream in a directory of its own, and the decisions beside it. One process at a time: it
// holds the lock of the directory.
type log struct {
	lock      io.Closer
	dir       string
	decisions *decisions
	app       *store.Appender

	*encoder
	fresh []byte // records of one segment that are not written yet
}

// openLog takes the lock, and finds the end of what is there.
func openLog(s *store.Store, dir string, segmentBytes int64) (*log, error) {
	l := &log{dir: dir}
	var err error
	if l.lock, err = lockDir(s, dir); err != nil {
		return nil, err
	}
	if err := l.recover(s, segmentBytes); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *log) recover(s *store.Store, segmentBytes int64) (err error) {
	if l.decisions, err = openDecisions(s.FS(), l.dir, false); err != nil {
		return err
	}
	order, err := openOrder(s, l.dir, segmentBytes)
	if err != nil {
		return err
	}
	if l.app, err = order.store.OpenStream(sourceOf(order.store, order.segmentBytes)); err != nil {
		return err
	}
	l.encoder, err = order.end()
	if at := l.app.Last(); err == nil && at.OK && at.NextLSN != l.cursor.LSN {
		err = &store.CorruptError{Path: path.Join(l.dir, orderStream), LSN: l.cursor.LSN, Err: fmt.Errorf(
			"order is read up to here, and goes on up to lsn %d", at.NextLSN)}
	}
	return err
}

// order is the stream of an order that is there, or is begun.
type order struct {
	store        *store.Store // whose streams are in dir
	dir          string
	segmentBytes int64
}

// openOrder takes the size of the segments from the order that is there; one that is new has segmentBytes.
func openOrder(s *store.Store, dir string, segmentBytes int64) (order, error) {
	o := order{s.Derived(dir, segmentBytes), dir, segmentBytes}
	reader, err := o.store.OpenReader(orderStream, readAll)
	if errors.Is(err, store.ErrNotFound) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	defer reader.Close()
	first, err := reader.Next()
	if errors.Is(err, io.EOF) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	p, err := decodePositions(first.Payload)
	if err != nil {
		return o, o.damaged(&first, err)
	}
	return order{s.Derived(dir, p.SegmentBytes), dir, p.SegmentBytes}, nil
}

// readAll is for all records of the order, which has neither control records nor epochs that end others.
var readAll = store.ReaderOptions{IncludeSuperseded: true, IsOpenFast: true}

func (o order) damaged(item *store.Item, err error) error {
	name := path.Join(o.dir, orderStream, fmt.Sprintf("%010d.seg", item.Segment))
	return &store.CorruptError{Path: name, LSN: item.LSN, Offset: item.Offset, Err: err}
}

// read opens what is synced of the order.
func (o order) read() (*store.Reader, error) {
	options := readAll
	options.SyncedOnly = true
	return o.store.OpenReader(orderStream, options)
}

// end stands behind the last entry: it reads the last segment.
func (o order) end() (*encoder, error) {
	e := newEncoder(o.store, o.segmentBytes)
	reader, err := o.read()
	if errors.Is(err, store.ErrNotFound) {
		return e, nil
	}
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if err := reader.SeekLastSegment(); err != nil {
		return nil, err
	}
	for isFirst := true; ; isFirst = false {
		item, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return e, nil
		}
		if err != nil {
			return nil, err
		}
		if isFirst && !isPositions(&item) {
			return nil, o.damaged(&item, errors.New("segment does not begin with the positions of the streams"))
		}
		if err := e.load(&item); err != nil {
			return nil, o.damaged(&item, err)
		}
	}
}

// add puts an entry behind the last one. It is there for readers once flush has returned.
func (l *log) add(entry *Entry, of *info) (err error) {
	if l.isFull() {
		if err := l.write(); err != nil {
			return err
		}
		if l.fresh, err = l.begin(l.fresh); err != nil {
			return err
		}
	}
	if l.fresh, err = l.encoder.add(l.fresh, entry, of); err != nil || len(l.fresh) < writeBytes {
		return err
	}
	return l.write()
}

// write appends what is fresh, behind the decisions that it was ordered by.
func (l *log) write() error {
	if err := l.decisions.flush(); err != nil || len(l.fresh) == 0 {
		return err
	}
	_, _, err := l.app.Append(l.fresh)
	l.fresh = l.fresh[:0]
	return err
}

// flush makes durable, in this order: what was decided, what was ordered by it, and the mark up to which readers may
// look.
func (l *log) flush() error {
	if err := l.write(); err != nil {
		return err
	}
	return l.app.Sync()
}

// close gives everything back; what was not flushed is ordered again by the next one.
func (l *log) close() error {
	var errs []error
	if l.app != nil {
		errs = append(errs, l.app.Close())
	}
	if l.decisions != nil {
		errs = append(errs, l.decisions.close())
	}
	if err := l.lock.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close %s: %w", path.Join(l.dir, "lock"), err))
	}
	return errors.Join(errs...)
}
