package store

import "time"

// History is the sealed segments of a stream that could be removed, oldest first: each has a segment with a synced
// record behind it.
type History struct {
	First   uint64    // the number of the oldest
	Sizes   []int64   // bytes of records, by segment from the oldest on
	Behind  int64     // bytes of records in the segments that cannot be removed
	Newest  time.Time // of the newest record that segments' headers and the last manifest name; zero: there is none
	dir     streamDir
	store   *Store
	numbers []uint64
}

// History looks at the sealed segments of a stream. Errors: ErrNotFound, ErrCorrupt, or of the file system.
func (s *Store) History(stream string) (h *History, err error) {
	err = s.steady(stream, func(list listing) (err error) {
		h, err = s.history(s.streamDir(stream), list)
		return err
	})
	return h, err
}

func (s *Store) history(d streamDir, list listing) (*History, error) {
	base, err := s.begin(d, list)
	if err != nil {
		return nil, err
	}
	h := &History{First: base.firstSegment(), dir: d, store: s, numbers: list.behind(base.firstSegment())}
	if err := d.checkNumbers(h.numbers, h.First); err != nil {
		return nil, err
	}
	sizes := make([]int64, len(h.numbers))
	end := 0 // behind the last segment that another one with a synced record continues
	for i, number := range h.numbers {
		f, err := d.look(number)
		if err != nil {
			return nil, err
		}
		isHeld := list.manifests[number] || f.headerErr == nil && f.mark.syncedOffset > segmentDataOffset
		if isHeld && i > 0 && list.manifests[number-1] {
			end = i
		}
		used := f.mark.syncedOffset
		if list.manifests[number] {
			used = f.size // it is cut to its records, or will be
		}
		sizes[i] = max(0, used-segmentDataOffset)
		if f.headerErr == nil {
			h.see(f.header.FirstTS)
		}
	}
	for _, size := range sizes[end:] {
		h.Behind += size
	}
	h.numbers, h.Sizes = h.numbers[:end], sizes[:end]
	if end == 0 {
		return h, nil
	}
	m, err := h.Manifest(end - 1)
	h.see(m.MaxTimestampNS)
	return h, err
}

// see takes the time of a record for the newest, if it is.
func (h *History) see(timestampNS uint64) {
	if seen := time.Unix(0, int64(min(timestampNS, 1<<63-1))); timestampNS > 0 && seen.After(h.Newest) {
		h.Newest = seen
	}
}

// Manifest reads that of the i-th segment, from 0.
func (h *History) Manifest(i int) (Manifest, error) {
	m, _, err := loadManifest(h.dir, h.numbers[i], h.store.checkSignature)
	return m, err
}

// LastSealed is the place of the last record that a stream has in a sealed segment, or had before it was removed.
// Place{}: there is none. Errors: ErrNotFound, ErrCorrupt, or of the file system.
func (s *Store) LastSealed(stream string) (place Place, err error) {
	err = s.steady(stream, func(list listing) error {
		d := s.streamDir(stream)
		base, err := s.begin(d, list)
		if err != nil {
			return err
		}
		if base != nil {
			place = base.last()
		}
		newest := uint64(0)
		for number := range list.manifests {
			newest = max(newest, number)
		}
		if newest < base.firstSegment() {
			return nil
		}
		m, _, err := loadManifest(d, newest, s.checkSignature)
		place = m.Last()
		return err
	})
	return place, err
}

// Last is the place of the segment's last record.
func (m Manifest) Last() Place { return Place{m.Generation, m.LastEpoch, m.LastLSN} }
