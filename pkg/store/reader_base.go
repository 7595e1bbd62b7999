package store

// loadSegments lists the segments from the stream's base on. A removal beside it may take segments away between two
// looks: then there is a newer base, and it is done again.
func (r *Reader) loadSegments(list listing) (err error) {
	r.segments = nil
	if r.base, err = r.store.begin(r.dir, list); err != nil {
		return err
	}
	there := list.behind(r.base.firstSegment())
	if err := r.dir.checkNumbers(there, r.base.firstSegment()); err != nil {
		return err
	}
	fronts, errs := make([]found, len(there)), make([]error, len(there))
	_ = inParallel(len(there), func(i int) error { // none fails: behind the first that has not begun nothing counts
		fronts[i], errs[i] = r.dir.look(there[i])
		return nil
	})
	for i := range there {
		isBegun, err := r.add(fronts[i], errs[i])
		if err != nil {
			return err
		}
		if !isBegun {
			break
		}
	}
	if r.base == nil {
		return nil
	}
	if len(r.segments) > 0 {
		if err := r.base.checkFit(r.segments[0].header); err != nil {
			return &CorruptError{Path: r.segments[0].name, LSN: r.base.NextLSN, Err: err}
		}
	}
	return r.base.checkThere(r.dir, len(r.segments))
}

// lookFor adds a segment when it has begun.
func (r *Reader) lookFor(number uint64) (isBegun bool, err error) { return r.add(r.dir.look(number)) }

// add adds a segment that was looked at, when it has begun.
func (r *Reader) add(f found, err error) (isBegun bool, _ error) {
	switch {
	case isNotExist(err):
		return false, r.checkNotRemoved()
	case err != nil:
		return false, err
	case f.headerErr != nil && f.isBlank:
		return false, nil
	case f.headerErr != nil:
		return false, &CorruptError{Path: f.name, Err: f.headerErr}
	}
	r.segments = append(r.segments, readable{found: f, lowLSN: f.header.FirstLSN})
	return true, nil
}

// Base is what the stream begins behind, as it was when the reader was opened; nil: nothing was removed.
func (r *Reader) Base() *Base { return r.base }

// checkRemoved reports that a segment was removed since the reader was opened. nil: no base says so.
func (r *Reader) checkRemoved(number uint64) error {
	list, err := r.dir.list()
	if err != nil {
		return err
	}
	base, err := r.store.begin(r.dir, list)
	if err != nil {
		return err
	}
	if number < base.firstSegment() {
		return base.removedError(r.stream)
	}
	return nil
}

// checkNotRemoved is asked where the next segment is not there. A reader that stands in a segment which was removed
// would wait for ever: what comes next was removed as well.
func (r *Reader) checkNotRemoved() error {
	if len(r.segments) == 0 || r.file == nil {
		return r.checkRemoved(r.base.firstSegment())
	}
	at := r.segments[r.at]
	isThere, err := r.dir.fsys.IsAt(at.name, r.file)
	if err != nil {
		return wrap("look for", at.name, err)
	}
	if isThere {
		return nil
	}
	return r.checkRemoved(at.number + 1)
}

// checkSought: no record at or behind a place was removed. Generation 0 is the beginning, wherever that is.
func (r *Reader) checkSought(p Place) error {
	if r.base.HasRemoved(p) {
		return r.base.removedError(r.stream)
	}
	return nil
}
