package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

const besideName = "rebuild"

// ErrShort says that an order made again would end before the one that is there.
var ErrShort = errors.New("the order that is there goes further")

// Until says how far an order is made again.
type Until int

// UntilNow takes what can go out without waiting, as Now; UntilEnd everything, each stream ends where it is, as Finish;
// UntilAsFar waits for what comes until it goes as far as the order that is there.
const (
	UntilNow Until = iota
	UntilEnd
	UntilAsFar
)

// Rebuild makes the order again, from the records and what was decided, for one that is damaged: beside it, and in its
// place when it goes at least as far. What had been given out of the order comes again in the same one, as long as
// every stream is there. Its segments have the same records then, and each is put over the one before as a whole: a
// crash at any point leaves an order that was whole as it is, to the last entry. Errors: ErrShort, ctx.Err() (nothing
// was changed), store.ErrRemoved (not every record is there any more), and those of Open.
func Rebuild(ctx context.Context, s *store.Store, options Options, until Until) (Progress, error) {
	options, err := options.withDefaults()
	if err != nil {
		return Progress{}, err
	}
	if err := checkWhole(s); err != nil {
		return Progress{}, err
	}
	dir := path.Join(s.Dir(), dirName)
	a := rebuild{store: s, dir: dir, beside: path.Join(dir, besideName)}
	lock, err := lockDir(s, a.dir)
	if err != nil {
		return Progress{}, err
	}
	defer lock.Close()
	defer a.clear()
	if err := a.begin(); err != nil {
		return Progress{}, err
	}
	if there, err := openOrder(s, a.dir, options.SegmentBytes); err == nil {
		options.SegmentBytes = there.segmentBytes // the same segments; one that is damaged may not tell
	} else if !errors.Is(err, store.ErrCorrupt) {
		return Progress{}, err
	}
	progress, err := a.merge(ctx, options, until)
	if err != nil {
		return progress, err
	}
	there, err := a.bytes(a.dir)
	if err != nil {
		return progress, err
	}
	made, err := a.bytes(a.beside)
	if err != nil {
		return progress, err
	}
	if made < there {
		return progress, fmt.Errorf(
			"%w: %s has %d bytes, built again it would have %d, and wait for %q",
			ErrShort,
			a.dir,
			there,
			made,
			progress.WaitsFor,
		)
	}
	return progress, a.swap()
}

// again is an order that is being made beside another one.
type rebuild struct {
	store       *store.Store
	dir, beside string
}

// lockDir makes the directory of an order when it is missing, and locks it.
func lockDir(s *store.Store, dir string) (io.Closer, error) {
	fsys := s.FS()
	if err := fsys.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make %s: %w", dir, err)
	}
	if err := fsys.SyncDir(path.Dir(dir)); err != nil {
		return nil, fmt.Errorf("sync %s: %w", path.Dir(dir), err)
	}
	lock, err := fsys.Lock(path.Join(dir, "lock"), fmt.Sprintf("the merge of process %d", os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("merge into %s: lock %s: %w", dir, path.Join(dir, "lock"), err)
	}
	return lock, nil
}

// begin takes what an attempt before left away, and copies the decisions: those that are made now stand behind them.
func (a rebuild) begin() error {
	a.clear()
	fsys := a.store.FS()
	if err := fsys.Mkdir(a.beside, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", a.beside, err)
	}
	err := store.CopyFile(fsys, path.Join(a.dir, decisionsName), path.Join(a.beside, decisionsName))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (a rebuild) merge(ctx context.Context, options Options, until Until) (Progress, error) {
	m, err := openIn(a.store, options, a.beside)
	if err != nil {
		return Progress{}, err
	}
	switch until {
	case UntilEnd:
		err = m.Finish(ctx)
	case UntilAsFar:
		err = a.follow(ctx, m)
	default:
		err = m.Now(ctx)
	}
	progress := m.Progress()
	return progress, errors.Join(err, m.Close())
}

// follow merges what comes, until the order that is there is caught up with.
func (a rebuild) follow(ctx context.Context, m *Merger) error {
	there, err := a.bytes(a.dir)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		isMoved, err := m.Step()
		if err != nil {
			return err
		}
		if isMoved {
			continue
		}
		if made, err := a.bytes(a.beside); err != nil || made >= there {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	return ctx.Err()
}

// swap puts each file over the one before. The decisions come first: an order never goes with fewer than it was made
// by. A segment comes before its index and its manifest, which are of no use without it.
func (a rebuild) swap() error {
	fsys, from, to := a.store.FS(), path.Join(a.beside, orderStream), path.Join(a.dir, orderStream)
	if err := replace(fsys, path.Join(a.beside, decisionsName), path.Join(a.dir, decisionsName)); err != nil {
		return err
	}
	if err := fsys.Mkdir(to, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", to, err)
	}
	names, err := fsys.ReadDir(from)
	if err != nil {
		return fmt.Errorf("list %s: %w", from, err)
	}
	isThere, count := map[string]bool{}, uint64(0)
	for _, name := range names {
		isThere[name] = true
	}
	for ; isThere[fmt.Sprintf("%010d.seg", count+1)]; count++ {
		for _, suffix := range []string{".seg", ".idx", ".json"} {
			name := fmt.Sprintf("%010d%s", count+1, suffix)
			if !isThere[name] {
				continue
			}
			if err := replace(fsys, path.Join(from, name), path.Join(to, name)); err != nil {
				return err
			}
		}
	}
	return a.store.Derived(a.dir, store.SegmentBytesMin).RemoveSegments(orderStream, count)
}

// replace renames a file over another one, durably.
func replace(fsys store.FS, from, to string) error {
	if err := fsys.Rename(from, to); err != nil {
		return fmt.Errorf("rename %s: %w", from, err)
	}
	if err := fsys.SyncDir(path.Dir(to)); err != nil {
		return fmt.Errorf("sync %s: %w", path.Dir(to), err)
	}
	return nil
}

// clear takes away what lies beside; whatever stays is taken away the next time.
func (a rebuild) clear() {
	fsys := a.store.FS()
	for _, dir := range []string{path.Join(a.beside, orderStream), a.beside} {
		names, err := fsys.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			_ = fsys.Remove(path.Join(dir, name))
		}
		_ = fsys.Remove(dir)
	}
}

// bytes counts those of records that were synced, in all segments that tell.
func (a rebuild) bytes(dir string) (int64, error) {
	return a.store.Derived(dir, store.SegmentBytesMin).SyncedBytes(sourceOf(a.store, store.SegmentBytesMin))
}
