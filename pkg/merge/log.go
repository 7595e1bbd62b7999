package merge

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/store"
)

// log writes the order. One process at a time: it holds the lock of the directory.
type log struct {
	store     *store.Store
	fsys      store.FS
	dir       string
	lock      io.Closer
	decisions *decisions

	*encoder
	file    store.File
	written uint32 // slots in the file
	mark    mark
	fresh   []byte // slots behind those
}

// openLog takes the lock, and finds the end of what is there.
func openLog(s *store.Store, dir string, slotsMax uint32) (*log, error) {
	l := &log{store: s, fsys: s.FS(), dir: dir}
	var err error
	if l.lock, err = takeDir(s, dir); err != nil {
		return nil, err
	}
	if err := l.recover(slotsMax); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *log) recover(slotsMax uint32) error {
	var err error
	if l.decisions, err = openDecisions(l.fsys, l.dir, false); err != nil {
		return err
	}
	found, err := listFiles(l.fsys, l.dir)
	if err != nil {
		return err
	}
	if err := found.check(l.dir); err != nil {
		return err
	}
	for _, name := range found.temporary {
		if err := l.fsys.Remove(path.Join(l.dir, name)); err != nil {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync %s: %w", l.dir, err)
	}
	if err := l.checkDecisions(found); err != nil {
		return err
	}
	l.encoder = newEncoder(slotsMax)
	if found.checkpoints > 0 {
		c, err := loadCheckpoint(l.fsys, l.dir, found.checkpoints, l.store.PublicKey())
		if err != nil {
			return err
		}
		if l.encoder, err = c.resume(); err != nil {
			return &store.CorruptError{Path: fileName(l.dir, found.checkpoints, checkpointSuffix), Err: err}
		}
	}
	return l.openFile()
}

// checkDecisions: as many as a mark says were synced must be whole. Only then what is behind them is taken for what a
// crash left.
func (l *log) checkDecisions(found files) error {
	for number := found.orders; number > 0 && number+1 >= found.orders; number-- { // the newest may have no mark yet
		name := fileName(l.dir, number, orderSuffix)
		file, err := l.fsys.OpenFile(name, os.O_RDONLY, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		raw := make([]byte, orderDataOff)
		_, err = file.ReadAt(raw, 0)
		file.Close()
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if m := decodeMarks(raw); m.decisions > l.decisions.count {
			return &store.CorruptError{
				Path: l.decisions.name, Offset: int64(l.decisions.count) * 2 * slotLen,
				Err: fmt.Errorf("%d decisions are whole, %d were synced", l.decisions.count, m.decisions),
			}
		}
	}
	return l.decisions.settle()
}

// files is what the directory holds: both are numbered from 1 without a hole.
type files struct {
	orders, checkpoints uint64
	temporary           []string
	hole                string
}

func listFiles(fsys store.FS, dir string) (files, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return files{}, fmt.Errorf("list %s: %w", dir, err)
	}
	var found files
	for _, name := range names { // sorted
		suffix := path.Ext(name)
		number, err := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
		count := &found.orders
		switch {
		case suffix == tmpSuffix:
			found.temporary = append(found.temporary, name)
			continue
		case err != nil || suffix != orderSuffix && suffix != checkpointSuffix:
			continue
		case suffix == checkpointSuffix:
			count = &found.checkpoints
		}
		*count++
		if number != *count {
			found.hole = fileName("", *count, suffix)
		}
	}
	return found, nil
}

func (f files) check(dir string) error {
	switch {
	case f.hole != "":
		return &store.CorruptError{
			Path: path.Join(dir, f.hole),
			Err:  errors.New("file is missing: a later one is there"),
		}
	case f.orders < f.checkpoints:
		return &store.CorruptError{
			Path: fileName(dir, f.orders+1, orderSuffix),
			Err:  errors.New("file is missing: its checkpoint is there"),
		}
	case f.orders > f.checkpoints+1:
		return &store.CorruptError{
			Path: fileName(dir, f.checkpoints+1, checkpointSuffix),
			Err:  errors.New("checkpoint is missing: the next file is there"),
		}
	}
	return nil
}

// openFile opens the file that the encoder stands in, or makes it, and takes in what it holds.
func (l *log) openFile() error {
	name := fileName(l.dir, l.header.number, orderSuffix)
	file, err := l.fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	l.file, l.written, l.mark = file, 0, mark{}
	raw := make([]byte, orderDataOff)
	n, err := file.ReadAt(raw, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	h, err := decodeOrderHeader(raw[:n])
	switch {
	case err != nil && (size > orderDataOff || decodeMarks(raw).turn > 0):
		return &store.CorruptError{Path: name, Err: err}
	case err != nil: // it was being made
		return l.beginFile(name)
	case l.header.number == 1: // its size is what it was made with
		l.begin(h)
	case h != l.header:
		return &store.CorruptError{Path: name, Err: fmt.Errorf("it does not continue file %d", l.header.number-1)}
	}
	l.mark = decodeMarks(raw)
	return l.scan(name, size)
}

func (l *log) beginFile(name string) error {
	front := make([]byte, orderDataOff)
	copy(front, l.header.encode())
	_, err := l.file.WriteAt(front, 0)
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		err = l.fsys.SyncDir(l.dir)
	}
	if err != nil {
		return fmt.Errorf("begin %s: %w", name, err)
	}
	return nil
}

// scan takes in the slots of the file up to the first that is none. Below the mark there must be no such slot; what is
// beyond was not relied upon.
func (l *log) scan(name string, size int64) error {
	raw := make([]byte, max(0, size-orderDataOff))
	if n, err := l.file.ReadAt(raw, orderDataOff); n < len(raw) {
		return fmt.Errorf("read %s: %w", name, err)
	}
	used, err := l.takeSlots(raw)
	l.written = l.slots
	if uint64(l.slots) < l.mark.slots {
		return &store.CorruptError{
			Path: name, Offset: int64(orderDataOff + used),
			Err: fmt.Errorf("slot %d: %w; %d slots were synced", l.slots, err, l.mark.slots),
		}
	}
	l.hash(raw[:used])
	if err := l.file.Truncate(int64(orderDataOff + used)); err != nil {
		return fmt.Errorf("cut %s: %w", name, err)
	}
	// Written again: a process that died after a failed sync leaves them in the page cache as if they were on the disk.
	from := int(l.mark.slots) * slotLen
	if _, err := l.file.WriteAt(raw[from:used], orderDataOff+int64(from)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return l.sync()
}

// takeSlots takes whole slots into the encoder, and tells why it stopped.
func (e *encoder) takeSlots(raw []byte) (used int, err error) {
	var names table
	for {
		entry, isName, slots, err := names.decode(raw[used:], e.slots)
		if err != nil {
			return used, err
		}
		if isName {
			e.learn(e.info(names[len(names)-1]))
		} else {
			e.take(&entry, e.info(entry.Stream))
		}
		e.slots += uint32(slots)
		used += slots * slotLen
	}
}

// add puts an entry behind the last one. It is there for readers once flush has returned.
func (l *log) add(entry *Entry, of *info) error {
	if l.isFull(of) {
		if err := l.nextFile(); err != nil {
			return err
		}
	}
	l.fresh = l.encoder.add(l.fresh, entry, of)
	return nil
}

// flush makes durable, in this order: what was decided, what was ordered by it, and the mark up to which readers may
// look.
func (l *log) flush() error {
	if err := l.decisions.flush(); err != nil {
		return err
	}
	if len(l.fresh) == 0 {
		return l.sync()
	}
	if _, err := l.file.WriteAt(l.fresh, orderDataOff+int64(l.written)*slotLen); err != nil {
		return fmt.Errorf("write %s: %w", fileName(l.dir, l.header.number, orderSuffix), err)
	}
	l.hash(l.fresh)
	l.written += uint32(len(l.fresh) / slotLen)
	l.fresh = l.fresh[:0]
	return l.sync()
}

func (l *log) sync() error {
	name := fileName(l.dir, l.header.number, orderSuffix)
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", name, err)
	}
	if uint64(l.written) == l.mark.slots && l.decisions.count == l.mark.decisions {
		return nil
	}
	m := mark{uint64(l.written), l.mark.turn + 1, l.decisions.count}
	if _, err := l.file.WriteAt(m.encode(), m.offset()); err != nil {
		return fmt.Errorf("mark %s: %w", name, err)
	}
	l.mark = m
	return nil
}

// nextFile signs the full file and begins the next.
func (l *log) nextFile() error {
	if err := l.flush(); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil { // the last mark
		return fmt.Errorf("sync %s: %w", fileName(l.dir, l.header.number, orderSuffix), err)
	}
	raw, err := encodeCheckpoint(l.checkpoint(), l.store.Sign)
	if err != nil {
		return err
	}
	if err := writeWhole(l.fsys, fileName(l.dir, l.header.number, checkpointSuffix), raw); err != nil {
		return err
	}
	if err := l.fsys.SyncDir(l.dir); err != nil {
		return fmt.Errorf("sync %s: %w", l.dir, err)
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", fileName(l.dir, l.header.number, orderSuffix), err)
	}
	l.file = nil
	l.next()
	return l.openFile()
}

// close gives everything back; what was not flushed is ordered again by the next one.
func (l *log) close() error {
	var errs []error
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", fileName(l.dir, l.header.number, orderSuffix), err))
		}
	}
	if l.decisions != nil {
		errs = append(errs, l.decisions.close())
	}
	if err := l.lock.Close(); err != nil {
		errs = append(errs, fmt.Errorf("close %s: %w", path.Join(l.dir, "lock"), err))
	}
	return errors.Join(errs...)
}
