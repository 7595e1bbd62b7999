package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
)

const refusedName = "refused"

// KeepRefused keeps bytes of a ring that a drain refuses, from the record at (epoch, lsn) on, beside the streams:
// whoever has to find out where they are from has them. They are durable when it returns; the same ones again take the
// place of the first. It gives the file. Errors: ErrNoSpace, or of the file system.
func (s *Store) KeepRefused(stream string, epoch uint32, lsn uint64, raw []byte) (file string, err error) {
	dir := path.Join(s.dir, refusedName)
	if err := s.fsys.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", wrap("create", dir, err)
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return "", wrap("sync", s.dir, err)
	}
	file = path.Join(dir, fmt.Sprintf("%s-%d-%d", escapeName(stream), epoch, lsn))
	if err := writeFile(s.fsys, file, raw, 0o440); err != nil {
		return "", err
	}
	return file, wrap("sync", dir, s.fsys.SyncDir(dir))
}
