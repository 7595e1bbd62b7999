package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/farlog/farlog/pkg/retry"
	"github.com/farlog/farlog/pkg/store"
)

// View is an archive as a store's file system: pkg/store reads it as it reads a directory. It has the files that are
// committed, each in the version that its manifest names, as they were when the view was made; what was put and not
// committed is not there. It can only be read. Any goroutine.
type View struct {
	ctx    context.Context
	bucket *Bucket
	files  map[string]Version         // by name in the store
	dirs   map[string]map[string]bool // names in a directory
	lists  map[string][]Version
	gone   map[string]error // segments that a manifest names and the bucket has not, or of which it is not known
	unread map[string]error // manifests whose metadata cannot be read
}

// viewDir is the directory of the store in a view.
const viewDir = "archive"

// NewView lists an archive. ctx bounds all that is read from it later. Errors: ErrNotAnArchive, ErrNotFound, those of
// calls.
func NewView(ctx context.Context, b *Bucket) (*View, error) {
	v := &View{
		ctx: ctx, bucket: b, files: map[string]Version{}, dirs: map[string]map[string]bool{},
		lists: map[string][]Version{}, gone: map[string]error{}, unread: map[string]error{},
	}
	if _, err := b.identity(ctx); errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w: %s has no %s: expected the prefix of an archive", ErrNotAnArchive, b.Location,
			store.IdentityFile)
	} else if err != nil {
		return nil, err
	}
	err := b.list(ctx, b.under(), func(one Version) error {
		if name, _ := b.name(one.Key); !strings.HasPrefix(name, probePrefix) {
			v.lists[name] = append(v.lists[name], one)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range []string{store.IdentityFile, store.PublicKeyFile} {
		v.add(name, v.oldest(name))
	}
	var manifests []string
	for name := range v.lists {
		_, _, suffix, isOurs := store.FileName(name)
		switch {
		case isOurs && suffix == ".base", store.IsKeyFile(name):
			v.add(name, v.oldest(name))
		case isOurs && suffix == ".json" && v.oldest(name) != nil:
			manifests = append(manifests, name)
		}
	}
	return v, v.addCommitted(ctx, manifests)
}

// headsAtOnce is how many manifests' metadata are asked for at the same time.
const headsAtOnce = 16

// addCommitted adds manifests, and what they name. A manifest whose metadata cannot be read holds up no other one. It
// is an error when none can be read, or nothing answers any more.
func (v *View) addCommitted(ctx context.Context, manifests []string) error {
	heads, failures := make([]Version, len(manifests)), make([]error, len(manifests))
	var silent, read atomic.Int32 // calls in a row without a usable answer; manifests that were read
	running, inTime := errgroup.WithContext(ctx)
	running.SetLimit(headsAtOnce)
	for i, name := range manifests {
		if inTime.Err() != nil {
			break // Wait has the error
		}
		running.Go(func() (err error) {
			heads[i], err = v.headPatiently(inTime, *v.oldest(name))
			failures[i] = err
			switch {
			case err == nil:
				read.Add(1)
				silent.Store(0)
			case isUncertain(err) && silent.Add(1) >= silentMax:
				return err
			}
			return nil
		})
	}
	err := cmp.Or(running.Wait(), ctx.Err())
	if err == nil && read.Load() == 0 {
		err = errors.Join(failures[:min(1, len(failures))]...)
	}
	if err != nil {
		return err
	}
	for i, name := range manifests {
		if failures[i] != nil {
			v.unread[name] = fmt.Errorf("manifest %s: %w", name, failures[i])
		}
		v.addSegment(name, heads[i])
	}
	return nil
}

// headPatiently asks again when the storage answers that it cannot for now: it may have been asked too much at once.
func (v *View) headPatiently(ctx context.Context, one Version) (Version, error) {
	delays := retry.New(retryShortest, retryLongest)
	for try := 1; ; try++ {
		full, err := v.bucket.head(ctx, one.Key, one.ID)
		if !errors.Is(err, ErrUnavailable) || try == triesMax || delays.Wait(ctx) != nil {
			return full, err
		}
	}
}

// ListMissing makes a segment that a manifest names and the bucket has not be listed, and be an error when it is
// opened: for readers, to which a stream would seem to end before it.
func (v *View) ListMissing() {
	for name := range v.gone {
		v.list(name)
	}
}

// Dir is the directory of the store.
func (v *View) Dir() string { return viewDir }

// Store opens the archive as a store. Errors: those of store.Open.
func (v *View) Store() (*store.Store, error) { return store.Open(viewDir, store.Options{FS: v}) }

// oldest is the version of a file that counts: what was put later under the same key changes nothing.
func (v *View) oldest(name string) *Version {
	for i, one := range v.lists[name] {
		if !one.IsMarker {
			return &v.lists[name][i]
		}
	}
	return nil
}

// addSegment adds a manifest, whose metadata is known, and what it names.
func (v *View) addSegment(name string, full Version) {
	manifest := v.oldest(name)
	manifest.Metadata, manifest.Mode, manifest.RetainUntil = full.Metadata, full.Mode, full.RetainUntil
	v.add(name, manifest)
	stream, number, _, _ := store.FileName(name)
	segment, index := store.SegmentFile(stream, number), store.IndexFile(stream, number)
	if err := v.unread[name]; err != nil {
		v.addSole(segment)
		v.addSole(index)
		if _, isThere := v.files[segment]; !isThere {
			v.gone[segment] = fmt.Errorf("%s: which version counts is not known: %w", v.bucket.key(segment), err)
		}
		return
	}
	id := full.Metadata[metaSegmentVersion]
	if v.version(segment, id) == nil {
		v.gone[segment] = fmt.Errorf("%w: %s version %q, which %s names", ErrNotFound, v.bucket.key(segment), id, name)
	}
	v.add(segment, v.version(segment, id))
	v.add(index, v.version(index, full.Metadata[metaIndexVersion]))
}

// addSole adds a file that has one version and no other: it is the one that counts, whatever names it.
func (v *View) addSole(name string) {
	list := slices.DeleteFunc(slices.Clone(v.lists[name]), func(one Version) bool { return one.IsMarker })
	if len(list) == 1 {
		v.add(name, &list[0])
	}
}

// Unread says of which manifests the metadata cannot be read. What they commit is read as far as that is beyond doubt.
func (v *View) Unread() error {
	var list []error
	for _, name := range slices.Sorted(maps.Keys(v.unread)) {
		list = append(list, v.unread[name])
	}
	return errors.Join(list...)
}

// version finds the one with this identity; nil: it is not there.
func (v *View) version(name, id string) *Version {
	for i, one := range v.lists[name] {
		if one.ID == id && !one.IsMarker {
			return &v.lists[name][i]
		}
	}
	return nil
}

func (v *View) add(name string, version *Version) {
	if version == nil {
		return
	}
	v.files[name] = *version
	v.list(name)
}

// list adds a name to the directories above it.
func (v *View) list(name string) {
	for child := name; child != "."; child = path.Dir(child) {
		dir := path.Dir(child)
		if v.dirs[dir] == nil {
			v.dirs[dir] = map[string]bool{}
		}
		v.dirs[dir][path.Base(child)] = true
	}
}

// inside is a name in the store; "." is its directory.
func inside(name string) string {
	return path.Clean("./" + strings.TrimPrefix(strings.TrimPrefix(path.Clean(name), viewDir), "/"))
}

var errReadOnly = fmt.Errorf("an archive can only be read: %w", os.ErrPermission)

// OpenFile opens a file to read it.
func (v *View) OpenFile(name string, flag int, _ fs.FileMode) (store.File, error) {
	if flag != os.O_RDONLY {
		return nil, errReadOnly
	}
	if err := v.gone[inside(name)]; err != nil && v.dirs[path.Dir(inside(name))][path.Base(name)] {
		return nil, err
	}
	version, isThere := v.files[inside(name)]
	if !isThere {
		return nil, fs.ErrNotExist
	}
	return &viewFile{view: v, version: version}, nil
}

// ReadDir gives the names in a directory.
func (v *View) ReadDir(name string) ([]string, error) {
	names, isThere := v.dirs[inside(name)]
	if !isThere && inside(name) != "streams" {
		return nil, fs.ErrNotExist
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Mkdir and the next ones refuse.
func (v *View) Mkdir(string, fs.FileMode) error { return errReadOnly }

// Rename refuses.
func (v *View) Rename(string, string) error { return errReadOnly }

// Remove refuses.
func (v *View) Remove(string) error { return errReadOnly }

// SyncDir refuses.
func (v *View) SyncDir(string) error { return errReadOnly }

// Lock refuses.
func (v *View) Lock(string, string) (io.Closer, error) { return nil, errReadOnly }

// IsAt compares names: nothing changes in a view.
func (v *View) IsAt(name string, opened io.Closer) (bool, error) {
	file, isFile := opened.(*viewFile)
	return isFile && file.version.Key == v.bucket.key(inside(name)), nil
}

// viewFile reads a version in windows that grow while it is read from front to back.
type viewFile struct {
	view    *View
	version Version

	mutex  sync.Mutex
	window []byte
	at     int64 // of the window
}

const (
	windowFirst = 64 << 10
	windowMost  = readBytes
)

func (f *viewFile) ReadAt(raw []byte, off int64) (int, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	done := 0
	for done < len(raw) {
		at := off + int64(done)
		if at >= f.version.Size {
			return done, io.EOF
		}
		if at < f.at || at >= f.at+int64(len(f.window)) {
			if err := f.load(at, len(raw)-done); err != nil {
				return done, err
			}
		}
		done += copy(raw[done:], f.window[at-f.at:])
	}
	return done, nil
}

// load fetches from a place on: twice as much as before when it goes on where that ended.
func (f *viewFile) load(at int64, want int) error {
	size := int64(windowFirst)
	if len(f.window) > 0 && at == f.at+int64(len(f.window)) {
		size = 2 * int64(len(f.window))
	}
	size = min(max(size, int64(want)), windowMost, f.version.Size-at)
	window := make([]byte, size)
	if err := f.view.bucket.readAt(f.view.ctx, f.version.Key, f.version.ID, window, at); err != nil {
		f.window = nil
		return err
	}
	f.window, f.at = window, at
	return nil
}

func (f *viewFile) Size() (int64, error)               { return f.version.Size, nil }
func (f *viewFile) Close() error                       { return nil }
func (f *viewFile) WriteAt([]byte, int64) (int, error) { return 0, errReadOnly }
func (f *viewFile) Truncate(int64) error               { return errReadOnly }
func (f *viewFile) Allocate(int64) error               { return errReadOnly }
func (f *viewFile) Zero(int64, int64) error            { return errReadOnly }
func (f *viewFile) Sync() error                        { return errReadOnly }
func (f *viewFile) SetReadOnly() error                 { return errReadOnly }
