package access

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/identity"
)

// lookInterval bounds how often the file is looked at: a change is in force that much later at most.
const lookInterval = time.Second

// File is a file of rules that is read again when it changes. One that cannot be read leaves in force what was read before: nobody gains a right by a
// slip, and nobody loses one. So an empty file is refused; "rules: []" says that there are none. All of it may be called from many goroutines.
type File struct {
	path   string
	logger *slog.Logger

	mutex    sync.Mutex
	looked   time.Time
	modified time.Time
	size     int64
	rules    Rules
	failure  string
}

// OpenFile reads the rules; path "" = there are none.
func OpenFile(path string, logger *slog.Logger) (*File, error) {
	f := &File{path: path, logger: logger}
	if path == "" {
		return f, nil
	}
	rules, info, err := readRules(path)
	if err != nil {
		return nil, err
	}
	f.take(rules, info)
	return f, nil
}

// Caller finds out what an identity may do by the rules of now.
func (f *File) Caller(id identity.ID) Caller { return f.load().Caller(id) }

func (f *File) load() Rules {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.path == "" || time.Since(f.looked) < lookInterval {
		return f.rules
	}
	f.looked = time.Now()
	info, err := os.Stat(f.path)
	if err == nil && info.ModTime().Equal(f.modified) && info.Size() == f.size && f.failure == "" {
		return f.rules
	}
	rules, info, err := readRules(f.path)
	if err == nil {
		f.take(rules, info)
		f.logger.Info("access rules were read again", "file", f.path, "rules", len(rules))
	} else if text := err.Error(); text != f.failure {
		f.failure = text
		f.logger.Warn("access rules cannot be read again, going on with those read before", "error", err)
	}
	return f.rules
}

func (f *File) take(rules Rules, info os.FileInfo) {
	f.looked, f.rules, f.modified, f.size, f.failure = time.Now(), rules, info.ModTime(), info.Size(), ""
}

func readRules(path string) (Rules, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("access file %q: %w", path, errors.Unwrap(err))
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("access file %q: %w", path, errors.Unwrap(err))
	}
	rules, err := ParseRules(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("access file %q: %w", path, err)
	}
	return rules, info, nil
}
