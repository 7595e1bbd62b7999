package consume

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/farlog/farlog/pkg/replace"
	"github.com/farlog/farlog/pkg/store"
)

// Position is where a named consumer of a stream has got to, in a file of its own. One process at a time uses a name.
type Position struct {
	name  string
	lock  io.Closer
	saved store.Position
}

// OpenPosition takes the position of a consumer with this name of this stream, kept in dir. Errors: store.ErrLocked
// (the name is in use), store.ErrInvalid.
func OpenPosition(dir, name, stream string) (*Position, error) {
	if name == "" || name != path.Base(name) || name[0] == '.' {
		return nil, fmt.Errorf("%w: name of a consumer %q: expected letters, digits and dashes", store.ErrInvalid, name)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("directory of positions %q: %w", dir, err)
	}
	p := &Position{name: path.Join(dir, name+".json")}
	var err error
	if p.lock, err = store.OS.Lock(p.name+".lock", fmt.Sprintf("consumer %s of process %d", name,
		os.Getpid())); err != nil {
		return nil, fmt.Errorf("consumer %q: %w", name, err)
	}
	raw, err := os.ReadFile(p.name)
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		p.saved, err = store.ParsePosition(raw)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: position %q: %w; remove it to start over", store.ErrInvalid, p.name, err)
	case p.saved.Stream != stream:
		err = fmt.Errorf("%w: consumer %q is of stream %q, not %q: give another name", store.ErrInvalid, name,
			p.saved.Stream, stream)
	}
	if err != nil {
		return nil, errors.Join(err, p.lock.Close())
	}
	return p, nil
}

// Close gives the name back.
func (p *Position) Close() error { return p.lock.Close() }

func (p *Position) isThere() bool { return p.saved.Format != "" }

// save replaces the file, durably.
func (p *Position) save(now store.Position) error {
	now.Format, now.Version = p.saved.Format, p.saved.Version
	if now == p.saved && p.isThere() {
		return nil
	}
	raw, err := now.Encode()
	if err != nil {
		return err
	}
	if err := replace.File(p.name, raw, 0o640); err != nil {
		return fmt.Errorf("position %q: %w", p.name, err)
	}
	p.saved, err = store.ParsePosition(raw)
	return err
}
