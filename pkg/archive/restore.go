package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farlog/farlog/pkg/store"
)

// RestoreOptions choose what is restored.
type RestoreOptions struct {
	Stream   string // "" = all
	Progress func(name string, bytes int64)
}

// Restore makes a store of an archive in a directory that is missing or empty, or in which a Restore of the same
// archive was interrupted: then it resumes. The directory is no store until all is there, synced. The signing key is
// not in an archive: who appends to the store has to have it. Errors: ErrInvalid, those of NewView and of
// the file system.
func Restore(ctx context.Context, b *Bucket, dir string, options RestoreOptions) (*store.Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("restore into %s: %w", dir, err)
	}
	view, err := NewView(ctx, b)
	if err != nil {
		return nil, err
	}
	r := &restorer{ctx: ctx, view: view, dir: dir, options: options}
	names, err := r.names()
	if err != nil {
		return nil, err
	}
	if err := r.checkDir(names); err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := r.file(name); err != nil {
			return nil, fmt.Errorf("restore %s: %w", name, err)
		}
	}
	return store.Open(dir, store.Options{})
}

type restorer struct {
	ctx     context.Context
	view    *View
	dir     string
	options RestoreOptions
}

// names are the files in the order in which they are written: the identity last, which makes a store of the directory.
func (r *restorer) names() ([]string, error) {
	names := []string{}
	isAny := false
	for _, name := range slices.Sorted(maps.Keys(r.view.files)) {
		stream, _, _, isOfStream := store.FileName(name)
		if isOfStream && r.options.Stream != "" && stream != r.options.Stream || name == store.IdentityFile {
			continue
		}
		isAny = isAny || isOfStream
		names = append(names, name)
	}
	if r.options.Stream != "" && !isAny {
		return nil, fmt.Errorf("%w: %s has no stream %q", store.ErrNotFound, r.view.bucket.Location, r.options.Stream)
	}
	return append(names, store.IdentityFile), nil
}

// checkDir refuses a directory with anything but what an interrupted restore of the same files has left.
func (r *restorer) checkDir(names []string) error {
	expected := map[string]bool{}
	for _, name := range names[:len(names)-1] {
		expected[name], expected[name+".tmp"] = true, true
	}
	expected[store.IdentityFile+".tmp"] = true
	err := fs.WalkDir(os.DirFS(r.dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return nil
		}
		if err != nil || entry.IsDir() || expected[name] {
			return err
		}
		return fmt.Errorf(
			"%w: restore into %s: it holds %q: expected a directory that is missing, empty, or left by a "+
				"restore of the same archive",
			ErrInvalid,
			r.dir,
			name,
		)
	})
	if err != nil {
		return err
	}
	return os.MkdirAll(path.Join(r.dir, "streams"), 0o750)
}

// file copies one file, and syncs it and the directories down to it. One that is there with the same SHA-256 is kept.
func (r *restorer) file(name string) error {
	version := r.view.files[name]
	full := path.Join(r.dir, name)
	if isThere, err := r.isThere(version, full); err != nil || isThere {
		return err
	}
	if err := os.MkdirAll(path.Dir(full), 0o750); err != nil {
		return err
	}
	if err := r.copy(version, full+".tmp"); err != nil {
		return err
	}
	mode := fs.FileMode(0o640)
	if strings.Contains(name, "/") {
		mode = 0o440 // of a stream: it does not change any more
	}
	if err := os.Chmod(full+".tmp", mode); err != nil {
		return err
	}
	if err := os.Rename(full+".tmp", full); err != nil {
		return err
	}
	if err := r.sync(path.Dir(full)); err != nil {
		return err
	}
	if r.options.Progress != nil {
		r.options.Progress(name, version.Size)
	}
	return nil
}

// isThere reports whether a file that a restore before has left is what the archive has.
func (r *restorer) isThere(version Version, full string) (bool, error) {
	file, err := os.Open(full)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() != version.Size {
		return false, err
	}
	there, err := newObject(full, file, version.Size, nil)
	if err != nil {
		return false, err
	}
	want, err := r.view.bucket.hash(r.ctx, version)
	return err == nil && there.sha256 == want, err
}

// sync syncs a directory of the store, those above it, and the one that the store's own directory is in.
func (r *restorer) sync(dir string) error {
	for ; dir != r.dir; dir = path.Dir(dir) {
		if err := store.OS.SyncDir(dir); err != nil {
			return err
		}
	}
	return errors.Join(store.OS.SyncDir(r.dir), store.OS.SyncDir(path.Dir(r.dir)))
}

func (r *restorer) copy(version Version, to string) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	//lint:ignore G302 the group of a store reads it
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, min(version.Size, readBytes))
	for off := int64(0); off < version.Size; off += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), version.Size-off)]
		if err := r.view.bucket.readAt(r.ctx, version.Key, version.ID, buf, off); err != nil {
			return err
		}
		if _, err := file.WriteAt(buf, off); err != nil {
			return err
		}
	}
	return errors.Join(file.Sync(), file.Close())
}
