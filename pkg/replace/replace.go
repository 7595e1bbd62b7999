// Package replace stores small files of state so that a crash leaves the old one or the new one, and that the new one
// stays.
package replace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// File replaces the file at path, or makes it, with exactly this mode. When it returns without an error, content and
// name are on the disk: the file is synced before it is renamed, its directory after that. On an error the old file is
// in place, unless only the sync of the directory failed. Safe beside other processes that replace the same file: one
// of them wins.
func File(path string, content []byte, mode os.FileMode) error {
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %q: %w", path, errors.Unwrap(err))
	}
	_, err = part.Write(content)
	err = errors.Join(err, part.Chmod(mode), part.Sync(), part.Close())
	if err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %q: %w", path, err), os.Remove(part.Name()))
	}
	return Dir(filepath.Dir(path))
}

// Dir makes the names in a directory durable.
func Dir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync directory %q: %w", path, errors.Unwrap(err))
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync directory %q: %w", path, err)
	}
	return nil
}
