package store

import (
	"bytes"
	"fmt"
	"io"
	"path"
)

// checkPlace reports whether what was synced is in the store: the files that are open are those which its directory has
// under their names. Where it was removed, renamed or replaced, writing and syncing go on without an error, in files
// that nobody finds. One who asks the directory behind each sync, before anything is released for it, loses nothing.
// The appender has to be closed then.
func (a *Appender) checkPlace() error {
	err := a.isAt(path.Join(a.dir.path, lockName), a.lock)
	if err == nil && a.active != nil {
		err = a.isAt(a.active.name, a.active.file)
	}
	a.broken = err
	return err
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
	err := there.load()
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
