package merge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

const besideName = "anew"

// ErrShort says that an order made anew would end before the one that is there.
var ErrShort = errors.New("the order that is there goes further")

// Until says how far an order is made anew.
type Until int

// UntilNow takes what can go out without waiting, as Now; UntilEnd everything, each stream ends where it is, as Finish;
// UntilAsFar waits for what comes until it goes as far as the order that is there.
const (
	UntilNow Until = iota
	UntilEnd
	UntilAsFar
)

// Anew makes the order again, from the records and what was decided, for one that is damaged: beside it, and in its
// place when it goes at least as far. What had been given out of the order comes again in the same one, as long as
// every stream is there. Its files have the same slots then, and each is put over the one before as a whole: a crash at
// any point leaves an order that was whole as it is, to the last entry. Errors: ErrShort, ctx.Err() (nothing was
// changed), and those of Open.
func Anew(ctx context.Context, s *store.Store, options Options, until Until) (Progress, error) {
	a := anew{fsys: s.FS(), dir: path.Join(s.Dir(), dirName), beside: path.Join(s.Dir(), dirName, besideName)}
	lock, err := takeDir(s, a.dir)
	if err != nil {
		return Progress{}, err
	}
	defer lock.Close()
	defer a.clear()
	if err := a.begin(); err != nil {
		return Progress{}, err
	}
	slotsMax, err := a.slotsMax(a.dir)
	if err != nil {
		return Progress{}, err
	}
	if slotsMax != 0 {
		options.FileSlots = slotsMax // the same files
	}
	progress, err := a.merge(ctx, s, options, until)
	if err != nil {
		return progress, err
	}
	there, err := a.slots(a.dir)
	if err != nil {
		return progress, err
	}
	made, err := a.slots(a.beside)
	if err != nil {
		return progress, err
	}
	if made < there {
		return progress, fmt.Errorf("%w: %s has %d slots, made anew it would have %d, and wait for %q", ErrShort, a.dir,
			there, made, progress.WaitsFor)
	}
	return progress, a.swap()
}

// anew is an order that is being made beside another one.
type anew struct {
	fsys        store.FS
	dir, beside string
}

// takeDir makes the directory of an order when it is missing, and locks it.
func takeDir(s *store.Store, dir string) (io.Closer, error) {
	fsys := s.FS()
	if err := fsys.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
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
func (a anew) begin() error {
	a.clear()
	if err := a.fsys.Mkdir(a.beside, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make %s: %w", a.beside, err)
	}
	raw, err := readWhole(a.fsys, path.Join(a.dir, decisionsName), math.MaxInt64)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path.Join(a.dir, decisionsName), err)
	}
	return writeWhole(a.fsys, path.Join(a.beside, decisionsName), raw)
}

func (a anew) merge(ctx context.Context, s *store.Store, options Options, until Until) (Progress, error) {
	m, err := openIn(s, options, a.beside)
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
func (a anew) follow(ctx context.Context, m *Merger) error {
	there, err := a.slots(a.dir)
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
		if made, err := a.slots(a.beside); err != nil || made >= there {
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
// by.
func (a anew) swap() error {
	if err := a.fsys.Rename(path.Join(a.beside, decisionsName), path.Join(a.dir, decisionsName)); err != nil {
		return fmt.Errorf("rename decisions: %w", err)
	}
	if err := a.fsys.SyncDir(a.dir); err != nil {
		return fmt.Errorf("sync %s: %w", a.dir, err)
	}
	found, err := listFiles(a.fsys, a.beside)
	if err != nil {
		return err
	}
	for number := uint64(1); number <= found.orders; number++ {
		for _, suffix := range []string{orderSuffix, checkpointSuffix} {
			if suffix == checkpointSuffix && number > found.checkpoints {
				continue
			}
			if err := a.fsys.Rename(fileName(a.beside, number, suffix), fileName(a.dir, number, suffix)); err != nil {
				return fmt.Errorf("rename %s: %w", fileName(a.beside, number, suffix), err)
			}
			if err := a.fsys.SyncDir(a.dir); err != nil {
				return fmt.Errorf("sync %s: %w", a.dir, err)
			}
		}
	}
	return removeOrder(a.fsys, a.dir, found) // what a damaged order had more files of
}

// clear takes away what lies beside; whatever stays is taken away the next time.
func (a anew) clear() {
	names, err := a.fsys.ReadDir(a.beside)
	if err != nil {
		return
	}
	for _, name := range names {
		_ = a.fsys.Remove(path.Join(a.beside, name))
	}
	_ = a.fsys.Remove(a.beside)
}

// front gives the beginning of a file of an order; zeros where there is no such file, or less of it. A file that cannot
// be read could tell anything: whoever wants to go on without it moves it away.
func (a anew) front(dir string, number uint64) ([]byte, error) {
	raw, name := make([]byte, orderDataOff), fileName(dir, number, orderSuffix)
	file, err := a.fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return raw, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer file.Close()
	if _, err := file.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return raw, nil
}

// slots counts those that were synced, in all files that tell.
func (a anew) slots(dir string) (count uint64, err error) {
	found, err := listFiles(a.fsys, dir)
	if err != nil {
		return 0, err
	}
	for number := uint64(1); number <= found.orders; number++ {
		raw, err := a.front(dir, number)
		if err != nil {
			return 0, err
		}
		count += decodeMarks(raw).slots
	}
	return count, nil
}

// slotsMax is that of the order's files; 0 = they do not tell.
func (a anew) slotsMax(dir string) (uint32, error) {
	raw, err := a.front(dir, 1)
	if err != nil {
		return 0, err
	}
	h, err := decodeOrderHeader(raw)
	if err != nil {
		return 0, nil //nolint:nilerr // it is damaged, which is why the order is made again
	}
	return h.slotsMax, nil
}
