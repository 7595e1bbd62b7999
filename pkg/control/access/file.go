package access

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/identity"
	"github.com/farlog/farlog/pkg/safefile"
)

// lookInterval bounds how often the file is looked at: a change is in force that much later at most.
const lookInterval = time.Second

// File is a file of rules that is read again when it changes. One that cannot be read leaves in force what was read
// before: nobody gains a right by a slip, and nobody loses one. So an empty file is refused; "rules: []" says that
// there are none. All of it may be called from many goroutines.
type File struct {
	path   string
	logger *slog.Logger

	mutex    sync.Mutex
	looked   time.Time
	modified time.Time
	size     int64
	rules    Rules
	failure  string
	digest   string                 // of what was read last
	tell     func(identity.Reading) // nil = nobody is told
}

// OpenFile reads the rules; path "" = there are none.
func OpenFile(path string, logger *slog.Logger) (*File, error) {
	f := &File{path: path, logger: logger}
	if path == "" {
		return f, nil
	}
	rules, info, digest, err := readRules(path)
	if err != nil {
		return nil, err
	}
	f.useRules(rules, info, digest)
	return f, nil
}

// Watch tells of the rules in force at once, and then of each other content of the file that is read, taken or refused.
// It is looked at when somebody asks what he may. Before it is used by others; tell is called by whoever asks, and must
// not wait nor ask in turn.
func (f *File) Watch(tell func(identity.Reading)) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.tell = tell
	if f.path != "" {
		f.reportRead(nil)
	}
}

func (f *File) reportRead(refused error) {
	if f.tell == nil {
		return
	}
	reading := identity.Reading{Kind: identity.FileAccess, File: f.path, SHA256: f.digest, Err: refused}
	if refused == nil {
		reading.Text = fmt.Sprintf("%d rules", len(f.rules))
	}
	f.tell(reading)
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
	rules, info, digest, err := readRules(f.path)
	if err == nil {
		f.useRules(rules, info, digest)
		f.reportRead(nil)
		f.logger.Info("access rules reloaded", "file", f.path, "rules", len(rules))
	} else if text := err.Error(); text != f.failure || digest != f.digest {
		f.failure, f.digest = text, digest
		f.reportRead(err)
		f.logger.Warn("access rules cannot be reloaded, keeping the present ones", "error", err)
	}
	return f.rules
}

func (f *File) useRules(rules Rules, info os.FileInfo, digest string) {
	f.looked, f.rules, f.modified, f.size, f.failure, f.digest = time.Now(), rules, info.ModTime(), info.Size(), "",
		digest
}

// readRules gives the digest of what is there also when that is refused.
func readRules(path string) (rules Rules, info os.FileInfo, digest string, err error) {
	raw, info, err := safefile.Read(path)
	if err != nil {
		return nil, nil, "", fmt.Errorf("access file %q: %w", path, errors.Unwrap(err))
	}
	digest = identity.DigestOf(raw)
	if rules, err = ParseRules(raw); err != nil {
		return nil, nil, digest, fmt.Errorf("access file %q: %w", path, err)
	}
	return rules, info, digest, nil
}
