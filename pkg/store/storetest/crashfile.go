package storetest

import (
	"io"
	"io/fs"
	"syscall"
)

// crashFile is a descriptor on a CrashFS.
type crashFile struct {
	fs         *CrashFS
	node       *node
	life       int
	isWritable bool
	isLock     bool
	isClosed   bool
}

// begin checks the descriptor and, for what changes the file, counts the operation. The caller unlocks.
func (f *crashFile) begin(isChange bool) error {
	f.fs.mu.Lock()
	switch {
	case f.isClosed:
		return fs.ErrClosed
	case f.life != f.fs.life || f.fs.isCrashed:
		return ErrCrashed
	case isChange && !f.isWritable:
		return syscall.EBADF
	case isChange:
		return f.fs.step()
	}
	return nil
}

func (f *crashFile) ReadAt(p []byte, off int64) (int, error) {
	err := f.begin(false)
	defer f.fs.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return 0, err
	}
	failure := f.fs.writeError
	if f.fs.writeError = nil; failure != nil {
		p = p[:len(p)/2]
	}
	if end := off + int64(len(p)); end > int64(len(f.node.data)) {
		if err := f.fs.reserve(end - int64(len(f.node.data))); err != nil {
			return 0, err
		}
		f.node.resize(end)
	}
	copy(f.node.data[off:], p)
	f.node.soil(off, int64(len(p)))
	if err := f.fs.outcome(); err != nil {
		return len(p), err
	}
	return len(p), failure
}

func (f *crashFile) Truncate(size int64) error {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	f.node.resize(size)
	return f.fs.outcome()
}

func (f *crashFile) Allocate(size int64) error {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if size > int64(len(f.node.data)) {
		if err := f.fs.reserve(size - int64(len(f.node.data))); err != nil {
			return err
		}
		f.node.resize(size)
	}
	return f.fs.outcome()
}

func (f *crashFile) Zero(off, length int64) error {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if length <= 0 || f.fs.isCrashed {
		return f.fs.outcome() // unlike others, it does not even begin when the crash comes
	}
	if end := off + length; end > int64(len(f.node.data)) { // it allocates, as FALLOC_FL_ZERO_RANGE does
		if err := f.fs.reserve(end - int64(len(f.node.data))); err != nil {
			return err
		}
		f.node.resize(end)
	}
	clear(f.node.data[off : off+length])
	f.node.soil(off, length)
	return f.fs.outcome()
}

func (f *crashFile) Sync() error {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	if f.fs.isCrashed {
		return ErrCrashed
	}
	if err := f.fs.syncError; err != nil {
		f.fs.syncError = nil
		f.node.dirty = nil // clean in the page cache, never on the disk
		return err
	}
	if f.fs.Mutant == MutantSkipDataSync {
		return nil
	}
	n := f.node
	if len(n.durable) != len(n.data) {
		resized := make([]byte, len(n.data))
		copy(resized, n.durable)
		n.durable = resized
	}
	for sector := range n.dirty {
		copySector(n.durable, n.data, sector)
	}
	n.dirty = nil
	return nil
}

func (f *crashFile) Size() (int64, error) {
	err := f.begin(false)
	defer f.fs.mu.Unlock()
	return int64(len(f.node.data)), err
}

func (f *crashFile) SetReadOnly() error {
	err := f.begin(true)
	defer f.fs.mu.Unlock()
	if err != nil {
		return err
	}
	f.node.mode = 0o440
	return f.fs.outcome()
}

func (f *crashFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.isLock && f.life == f.fs.life {
		f.node.holder = ""
	}
	f.isClosed = true
	return nil
}

// resize cuts or extends with zeros; what is cut off comes back as zeros.
func (n *node) resize(size int64) {
	old := int64(len(n.data))
	if size <= old {
		n.data = n.data[:size:size]
		n.soil(size, old-size)
		return
	}
	grown := make([]byte, size)
	copy(grown, n.data)
	n.data = grown
	n.soil(old, size-old)
}

func (n *node) soil(off, length int64) {
	if n.dirty == nil {
		n.dirty = map[int64]bool{}
	}
	for sector := off / sectorLen; sector*sectorLen < off+length; sector++ {
		n.dirty[sector] = true
	}
}

// reserve takes space or gives ENOSPC. All visible files count in full.
func (c *CrashFS) reserve(bytes int64) error {
	if c.space >= 0 && used(c.root)+bytes > c.space {
		return syscall.ENOSPC
	}
	return nil
}

func used(n *node) int64 {
	total := int64(len(n.data))
	for _, child := range n.entries {
		total += used(child)
	}
	return total
}

// Bytes gives a copy of a file as processes see it, for tests that look or damage.
func (c *CrashFS) Bytes(name string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return append([]byte(nil), n.data...), nil
}

// Change lets a test change a file behind the store's back, durably.
func (c *CrashFS) Change(name string, change func(data []byte) []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.find(name)
	if err != nil {
		return err
	}
	n.data = change(append([]byte(nil), n.data...))
	n.durable, n.dirty = append([]byte(nil), n.data...), nil
	return nil
}
