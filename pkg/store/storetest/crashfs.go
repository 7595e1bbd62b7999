// Package storetest gives tests of the store, and of what is built on it, a file system that loses at a crash whatever
// was not synced, and a ring that makes batches.
package storetest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"

	"github.com/farlog/farlog/pkg/store"
)

// ErrCrashed is what every call gives between the moment of the crash and Crash, and what old descriptors give after
// it.
var ErrCrashed = errors.New("power is cut")

const sectorLen = 512

// Mutant breaks the file system in a way that a sound test of a sound store must notice.
type Mutant int

// The mutants.
const (
	MutantNone         Mutant = iota
	MutantSkipDataSync        // File.Sync does nothing
	MutantSkipDirSync         // FS.SyncDir does nothing
)

// CrashFS is a file system in memory. What was written and not synced survives a crash in any subset of 512-byte
// sectors, and directory changes that were not synced survive in any subset; a rename is kept or lost as a whole. It
// implements store.FS and is safe for use by many goroutines; which operation meets the crash is reproducible when one
// goroutine uses it.
type CrashFS struct {
	Mutant Mutant

	mu         sync.Mutex
	rng        *rand.Rand
	root       *node
	life       int // descriptors of an earlier life are dead
	opsLeft    int // operations until the crash; < 0 = none is planned
	isCrashed  bool
	space      int64 // bytes that files may take; < 0 = no limit
	syncError  error // for the next File.Sync
	writeError error // for the next File.WriteAt
}

var _ store.FS = (*CrashFS)(nil)

// node is a file or a directory.
type node struct {
	isDir bool

	data    []byte // as processes see it
	durable []byte // as of the last sync
	dirty   map[int64]bool
	mode    fs.FileMode
	holder  string // of the lock, "" = free

	entries        map[string]*node
	durableEntries map[string]*node
	changes        []change
}

// change is one directory change that is not synced.
type change struct {
	remove string
	add    string
	node   *node
	fate   *fate // of a rename into another directory: both have a half of it; nil: of no such
}

// fate is that of the two halves of a rename: both survive, or none.
type fate struct {
	isDecided, isKept bool
}

// survives draws, of the second half of a rename what was drawn for the first.
func (c *CrashFS) survives(ch change, keep float64) bool {
	if ch.fate == nil {
		return c.rng.Float64() < keep
	}
	if !ch.fate.isDecided {
		ch.fate.isDecided, ch.fate.isKept = true, c.rng.Float64() < keep
	}
	return ch.fate.isKept
}

func newDir() *node {
	return &node{isDir: true, entries: map[string]*node{}, durableEntries: map[string]*node{}}
}

// NewCrashFS makes an empty file system; seed decides what survives.
func NewCrashFS(seed uint64) *CrashFS {
	return &CrashFS{rng: rand.New(rand.NewPCG(seed, 1)), root: newDir(), opsLeft: -1, space: -1}
}

// CrashAfter plans the crash in the course of the operation that comes after this many more that change something.
func (c *CrashFS) CrashAfter(operations int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opsLeft = operations
}

// IsCrashed reports whether the planned crash has happened.
func (c *CrashFS) IsCrashed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isCrashed
}

// LimitSpace sets how many bytes all files together may take; < 0 = no limit.
func (c *CrashFS) LimitSpace(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.space = bytes
}

// FailNextSync makes the next File.Sync return err as Linux does: the pages count as clean afterwards although they are
// not on the disk.
func (c *CrashFS) FailNextSync(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.syncError = err
}

// FailNextWrite makes the next File.WriteAt write the first half and return err.
func (c *CrashFS) FailNextWrite(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeError = err
}

// Crash cuts the power, whether it was planned or not, and comes up with what survived. All descriptors and locks are
// gone.
func (c *CrashFS) Crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := []float64{0, 0.5, 1, c.rng.Float64()}[c.rng.IntN(4)]
	c.survive(c.root, keep)
	c.isCrashed, c.opsLeft, c.syncError, c.writeError = false, -1, nil, nil
	c.life++
}

// Kill ends all processes and leaves the page cache as it is.
func (c *CrashFS) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unlock(c.root)
	c.isCrashed, c.opsLeft, c.syncError, c.writeError = false, -1, nil, nil
	c.life++
}

func (c *CrashFS) unlock(n *node) {
	n.holder = ""
	for _, child := range n.entries {
		c.unlock(child)
	}
}

func (c *CrashFS) survive(n *node, keep float64) {
	n.holder = ""
	if !n.isDir {
		c.surviveFile(n, keep)
		return
	}
	for _, ch := range n.changes {
		if c.survives(ch, keep) {
			ch.apply(n.durableEntries)
		}
	}
	n.changes = nil
	n.entries = map[string]*node{}
	names := make([]string, 0, len(n.durableEntries))
	for name := range n.durableEntries {
		names = append(names, name)
	}
	sort.Strings(names) // so that a seed always means the same
	for _, name := range names {
		n.entries[name] = n.durableEntries[name]
		c.survive(n.durableEntries[name], keep)
	}
}

func (ch change) apply(entries map[string]*node) {
	if ch.remove != "" {
		delete(entries, ch.remove)
	}
	if ch.add != "" {
		entries[ch.add] = ch.node
	}
}

func (c *CrashFS) surviveFile(n *node, keep float64) {
	size := len(n.durable)
	if c.rng.Float64() < keep {
		size = len(n.data)
	}
	survived := make([]byte, size)
	copy(survived, n.durable)
	sectors := make([]int64, 0, len(n.dirty))
	for sector := range n.dirty {
		sectors = append(sectors, sector)
	}
	sort.Slice(sectors, func(i, j int) bool { return sectors[i] < sectors[j] })
	for _, sector := range sectors {
		if c.rng.Float64() < keep {
			copySector(survived, n.data, sector)
		}
	}
	n.data, n.durable, n.dirty = survived, append([]byte(nil), survived...), nil
}

// copySector copies what both files have of a sector; where src is shorter, the rest is zero.
func copySector(dst, src []byte, sector int64) {
	from := sector * sectorLen
	if from >= int64(len(dst)) {
		return
	}
	part := dst[from:min(from+sectorLen, int64(len(dst)))]
	clear(part)
	if from < int64(len(src)) {
		copy(part, src[from:])
	}
}

// step counts an operation that changes something. The one that meets the crash is carried out, not synced, and
// reported as failed.
func (c *CrashFS) step() error {
	if c.isCrashed {
		return ErrCrashed
	}
	if c.opsLeft == 0 {
		c.isCrashed = true
	}
	c.opsLeft--
	return nil
}

func (c *CrashFS) outcome() error {
	if c.isCrashed {
		return ErrCrashed
	}
	return nil
}

// find walks to a node.
func (c *CrashFS) find(name string) (*node, error) {
	n := c.root
	for _, part := range strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			continue
		}
		if !n.isDir {
			return nil, syscall.ENOTDIR
		}
		child := n.entries[part]
		if child == nil {
			return nil, fs.ErrNotExist
		}
		n = child
	}
	return n, nil
}

func (c *CrashFS) parent(name string) (*node, string, error) {
	dir, err := c.find(path.Dir(path.Clean("/" + name)))
	if err == nil && !dir.isDir {
		err = syscall.ENOTDIR
	}
	return dir, path.Base(name), err
}

func (n *node) change(ch change) {
	ch.apply(n.entries)
	n.changes = append(n.changes, ch)
}

func isForWriting(flag int) bool { return flag&(os.O_RDWR|os.O_WRONLY) != 0 }

// OpenFile implements store.FS.
func (c *CrashFS) OpenFile(name string, flag int, perm fs.FileMode) (store.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCrashed {
		return nil, ErrCrashed
	}
	n, err := c.find(name)
	switch {
	case err == nil && !n.isDir && isForWriting(flag) && n.mode&0o200 == 0:
		return nil, syscall.EACCES // as for every user but root
	case err == nil && flag&os.O_TRUNC != 0:
		if err := c.step(); err != nil {
			return nil, err
		}
		n.resize(0)
	case errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0:
		if err := c.step(); err != nil {
			return nil, err
		}
		dir, base, err := c.parent(name)
		if err != nil {
			return nil, err
		}
		n = &node{mode: perm}
		dir.change(change{add: base, node: n})
	case err != nil:
		return nil, err
	}
	if n.isDir {
		return nil, syscall.EISDIR
	}
	return &crashFile{fs: c, node: n, life: c.life, isWritable: isForWriting(flag)}, c.outcome()
}

// Mkdir implements store.FS.
func (c *CrashFS) Mkdir(name string, _ fs.FileMode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	dir, base, err := c.parent(name)
	if err != nil {
		return err
	}
	if dir.entries[base] != nil {
		return fs.ErrExist
	}
	dir.change(change{add: base, node: newDir()})
	return c.outcome()
}

// Rename implements store.FS.
func (c *CrashFS) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	dir, base, err := c.parent(from)
	if err != nil {
		return err
	}
	n := dir.entries[base]
	if n == nil {
		return fs.ErrNotExist
	}
	into, name, err := c.parent(to)
	if err != nil {
		return err
	}
	if into == dir {
		dir.change(change{remove: base, add: name, node: n})
		return c.outcome()
	}
	both := new(fate)
	into.change(change{add: name, node: n, fate: both})
	dir.change(change{remove: base, fate: both})
	return c.outcome()
}

// Remove implements store.FS.
func (c *CrashFS) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	dir, base, err := c.parent(name)
	if err != nil {
		return err
	}
	if dir.entries[base] == nil {
		return fs.ErrNotExist
	}
	dir.change(change{remove: base})
	return c.outcome()
}

// ReadDir implements store.FS.
func (c *CrashFS) ReadDir(name string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCrashed {
		return nil, ErrCrashed
	}
	dir, err := c.find(name)
	if err != nil {
		return nil, err
	}
	if !dir.isDir {
		return nil, syscall.ENOTDIR
	}
	names := make([]string, 0, len(dir.entries))
	for name := range dir.entries {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

// SyncDir implements store.FS.
func (c *CrashFS) SyncDir(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil {
		return err
	}
	dir, err := c.find(name)
	if err != nil {
		return err
	}
	if c.isCrashed {
		return ErrCrashed
	}
	if c.Mutant != MutantSkipDirSync {
		for _, ch := range dir.changes {
			ch.apply(dir.durableEntries)
			if ch.fate != nil {
				ch.fate.isDecided, ch.fate.isKept = true, true
			}
		}
		dir.changes = nil
	}
	return nil
}

// Lock implements store.FS.
func (c *CrashFS) Lock(name, holder string) (io.Closer, error) {
	file, err := c.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := file.(*crashFile)
	if f.node.holder != "" {
		return nil, fmt.Errorf("%w: %s", store.ErrLocked, f.node.holder)
	}
	f.node.holder = holder
	f.isLock = true
	return f, nil
}

// IsAt implements store.FS.
func (c *CrashFS) IsAt(name string, file io.Closer) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, isOurs := file.(*crashFile)
	switch {
	case !isOurs:
		return false, store.ErrInvalid
	case c.isCrashed || f.life != c.life:
		return false, ErrCrashed
	}
	there, err := c.find(name)
	return err == nil && there == f.node, nil
}
