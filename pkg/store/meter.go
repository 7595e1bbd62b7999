package store

// Meter measures how many bytes of records of a stream are synced, again and again: the first time it looks at all
// segments, and then at the newest. One goroutine at a time.
type Meter struct {
	store   *Store
	stream  string
	segment uint64 // the first one that could change when it measured last; 0 = it has not
	before  int64  // in the segments before it, the removed ones included
}

// NewMeter gives one of a stream, which need not be there yet.
func (s *Store) NewMeter(stream string) *Meter { return &Meter{store: s, stream: stream} }

// Bytes is what StreamBytes gives, at the cost of a look at one segment. Errors: ErrNotFound.
func (m *Meter) Bytes() (total int64, err error) {
	if m.segment != 0 {
		if total, err := m.newestBytes(); err == nil {
			return total, nil
		}
	}
	m.segment = 0
	dir := m.store.streamDir(m.stream)
	err = m.store.steady(m.stream, func(list listing) (err error) {
		m.segment, m.before, total, err = m.store.listedBytes(dir, list)
		return err
	})
	return total, err
}

// newestBytes goes from the segment that was the newest one to that which is. It remembers no segment that is not
// sealed: a crash may have taken its last mark, which the next appender writes again.
func (m *Meter) newestBytes() (int64, error) {
	dir, total, isSealed := m.store.streamDir(m.stream), m.before, true
	for number := m.segment; ; number++ {
		next, err := dir.look(number + 1)
		if err != nil && !isNotExist(err) {
			return 0, err
		}
		isNewest := err != nil || next.headerErr != nil
		f, err := dir.look(number) // now: its last mark was written before the next one was begun
		if err == nil {
			err = f.headerErr
		}
		if err != nil {
			return 0, err
		}
		bytes, isFinal, err := m.store.syncedBytes(dir, f)
		if err != nil {
			return 0, err
		}
		if total += bytes; isNewest {
			return total, nil
		}
		if isSealed = isSealed && isFinal; isSealed {
			m.segment, m.before = number+1, total
		}
	}
}

// syncedBytes counts those of records in a segment. One that is sealed says it by its manifest, where it was not cut or
// a crash took its last mark.
func (s *Store) syncedBytes(dir streamDir, f found) (count int64, isSealed bool, err error) {
	synced := f.mark.syncedOffset
	if f.size != synced {
		m, _, err := loadManifest(dir, f.number, s.checkSignature)
		if err != nil && !isNotExist(err) {
			return 0, false, err
		}
		if isSealed = err == nil; isSealed {
			synced = m.UsedBytes
		}
	}
	return max(0, synced-segmentDataOffset), isSealed || f.size == synced, nil
}
