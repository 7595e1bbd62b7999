package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

// checkPlace reports whether what was synced is in the store: the files that are open are those which its directory has
// under their names. Where it was removed, renamed or replaced, writing and syncing go on without an error, in files
// that nobody finds. One who asks the directory behind each sync, before anything is released for it, loses nothing.
// The appender has to be closed then.
func (a *Appender) checkPlace() error {
	err := a.Missing()
	if err == nil {
		err = a.isAt(path.Join(a.dir.path, lockName), a.lock)
	}
	if err == nil && a.active != nil {
		err = a.isAt(a.active.name, a.active.file)
	}
	a.broken = err
	return err
}

// CheckSegments reports whether all segments of the stream are in its directory, and the manifests of those that have
// one, and whether the newest base manifest is sound. What is wrong is then the failure of each Sync, and of Missing:
// the stream has to be opened again, which fails until the file is back. Any goroutine may call it beside the one that
// appends. Errors: ErrMissing, ErrCorrupt, ErrClosed, or of the file system: then nothing is known, and after
// failedChecksMax such answers in a row the stream fails as if something were missing.
func (a *Appender) CheckSegments() error {
	a.removing.Lock()
	defer a.removing.Unlock()
	if a.isClosed {
		return fmt.Errorf("%w: %s", ErrClosed, a.dir.path)
	}
	err := a.checkSegments()
	if err == nil {
		a.failedChecks = 0
		return nil
	}
	a.failedChecks++
	if errors.Is(err, ErrCorrupt) || a.failedChecks >= failedChecksMax { // what is missing is damage, too
		a.missing.Store(&err)
	}
	return err
}

const failedChecksMax = 10

func (a *Appender) checkSegments() error {
	begun, sealed := a.begun.Load(), a.rollover.sealed.Load() // before the look: what comes after it is not expected
	list, err := a.dir.list()
	if isNotExist(err) {
		err = &CorruptError{Path: a.dir.path, Err: fmt.Errorf("directory of the stream %w", ErrMissing)}
	}
	var base *Base
	if err == nil {
		base, err = a.store.begin(a.dir, list)
	}
	if err != nil {
		return err
	}
	there := list.behind(base.firstSegment())
	for number := base.firstSegment(); number <= begun && err == nil; number++ {
		if _, isThere := slices.BinarySearch(there, number); !isThere {
			err = a.expect(number, segmentSuffix, "segment")
		}
		if err == nil && number <= sealed && !list.manifests[number] {
			err = a.expect(number, manifestSuffix, "manifest of the segment")
		}
	}
	return err
}

// Missing is what the last CheckSegments found to be missing; nil: nothing. Any goroutine may call it.
func (a *Appender) Missing() error {
	if found := a.missing.Load(); found != nil {
		return *found
	}
	return nil
}

// expect looks for a file that a listing does not have: a directory that changes meanwhile may be listed without it.
func (a *Appender) expect(number uint64, suffix, what string) error {
	name := a.dir.file(number, suffix)
	file, err := a.dir.fsys.OpenFile(name, os.O_RDONLY, 0)
	if isNotExist(err) {
		return &CorruptError{Path: name, Err: fmt.Errorf("%s %w", what, ErrMissing)}
	}
	if err != nil {
		return wrap("look for", name, err)
	}
	return file.Close()
}

// lastBegun is the last segment with records, where no other goroutine knows the appender.
func (a *Appender) lastBegun() uint64 {
	if a.active != nil {
		return a.active.header.Number
	}
	return a.rollover.nextNumber - 1
}

func (a *Appender) isAt(name string, file io.Closer) error {
	isThere, err := a.dir.fsys.IsAt(name, file)
	if err != nil {
		return wrap("look for", name, err)
	}
	if !isThere {
		return fmt.Errorf("%w: %s was removed, or another file is in its place; put the store's directory back as it "+
			"was, or give the stream to another store", ErrGone, name)
	}
	return nil
}

// checkPlace reports whether the directory still holds the store that was opened in it.
func (s *Store) checkPlace() error {
	there := &Store{dir: s.dir, fsys: s.fsys}
	err := there.loadIdentity()
	switch {
	case isNotExist(err):
		return fmt.Errorf("%w: %s has no %s; put the store's directory back as it was, or give its streams to "+
			"another store", ErrGone, s.dir, identityName)
	case err != nil:
		return err
	case there.uuid != s.uuid || !bytes.Equal(there.key, s.key):
		return fmt.Errorf("%w: %s holds store %s, expected %s; put the store's directory back as it was, or give its "+
			"streams to another store", ErrGone, s.dir, there.uuid, s.uuid)
	}
	return nil
}
