package storetest

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/farlog/farlog/pkg/store"
)

// Fault is one call that fails.
type Fault struct {
	Call   int           // the number of the call, from 0
	Err    syscall.Errno // what it says
	IsDone bool          // it was carried out all the same: the answer was lost
}

// FaultFS passes every call to a CrashFS and lets one of them fail. Sweeps count the calls of a scenario first, and
// then let each fail in turn. It is safe for use by many goroutines; which call is which is reproducible when one
// goroutine uses it.
type FaultFS struct {
	disk *CrashFS

	mu    sync.Mutex
	fault Fault
	calls []FaultCall
}

// FaultCall is one call that was seen.
type FaultCall struct{ Op, Name string }

func (c FaultCall) String() string { return c.Op + " " + c.Name }

// IsRead tells that the call only asks: who does without its answer has not done the work.
func (c FaultCall) IsRead() bool {
	return slices.Contains([]string{"read", "readdir", "size", "lock", "stat"}, c.Op)
}

// Errnos are the ways in which the call is made to fail.
func (c FaultCall) Errnos() []syscall.Errno {
	switch c.Op {
	case "open", "mkdir", "rename":
		return []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EACCES}
	case "remove", "readdir", "lock":
		return []syscall.Errno{syscall.EIO, syscall.EACCES}
	case "write", "allocate", "zero", "sync", "syncdir":
		return []syscall.Errno{syscall.EIO, syscall.ENOSPC}
	}
	return []syscall.Errno{syscall.EIO}
}

// CanBeDone reports whether the call changes something, so that it makes a difference whether it was carried out before
// it failed.
func (c FaultCall) CanBeDone() bool {
	return slices.Contains([]string{
		"mkdir", "rename", "remove", "write", "truncate", "allocate", "zero", "syncdir",
		"setmode",
	}, c.Op)
}

// Faults are all ways in which calls fail, one at a time.
func Faults(calls []FaultCall) []Fault {
	var all []Fault
	for i, call := range calls {
		for _, errno := range call.Errnos() {
			all = append(all, Fault{Call: i, Err: errno})
		}
		if call.CanBeDone() {
			all = append(all, Fault{Call: i, Err: syscall.EIO, IsDone: true})
		}
	}
	return all
}

// NewFaultFS makes a file system on disk in which every call works.
func NewFaultFS(disk *CrashFS) *FaultFS { return &FaultFS{disk: disk, fault: Fault{Call: -1}} }

var _ store.FS = (*FaultFS)(nil)

// Plan forgets the calls up to now and says which one fails; Call < 0: none.
func (f *FaultFS) Plan(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault, f.calls = fault, nil
}

// Calls are those since Plan.
func (f *FaultFS) Calls() []FaultCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Failed is the call that failed since Plan, if one did.
func (f *FaultFS) Failed() (call FaultCall, isMet bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fault.Call < 0 || f.fault.Call >= len(f.calls) {
		return call, false
	}
	return f.calls[f.fault.Call], true
}

// Check tells what is wrong with the error of a scenario in which a call failed: it must hold what the call said and
// name its file.
func (f *FaultFS) Check(err error) error {
	call, isMet := f.Failed()
	switch {
	case !isMet || err == nil:
		return err
	case !strings.Contains(err.Error(), f.fault.Err.Error()):
		return fmt.Errorf("%s failed with %q; the error says %q", call, f.fault.Err.Error(), err.Error())
	case !strings.Contains(err.Error(), strings.TrimSuffix(call.Name, ".tmp")):
		return fmt.Errorf("%s failed; the error does not name it: %q", call, err.Error())
	}
	return nil
}

// call counts one and gives what it fails with, and whether it is carried out.
// the error decides, the flag adds to it
func (f *FaultFS) call(op, name string) (err error, isDone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := len(f.calls)
	f.calls = append(f.calls, FaultCall{op, name})
	if number != f.fault.Call {
		return nil, true
	}
	return f.fault.Err, f.fault.IsDone
}

// change is a call that gives nothing but an error.
func (f *FaultFS) change(op, name string, do func() error) error {
	err, isDone := f.call(op, name)
	if isDone {
		if doErr := do(); doErr != nil {
			return doErr
		}
	}
	return err
}

// OpenFile implements store.FS.
func (f *FaultFS) OpenFile(name string, flag int, perm fs.FileMode) (store.File, error) {
	if err, _ := f.call("open", name); err != nil {
		return nil, err
	}
	file, err := f.disk.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{fs: f, name: name, file: file}, nil
}

// Mkdir implements store.FS.
func (f *FaultFS) Mkdir(name string, perm fs.FileMode) error {
	return f.change("mkdir", name, func() error { return f.disk.Mkdir(name, perm) })
}

// Rename implements store.FS.
func (f *FaultFS) Rename(from, to string) error {
	return f.change("rename", from, func() error { return f.disk.Rename(from, to) })
}

// Remove implements store.FS.
func (f *FaultFS) Remove(name string) error {
	return f.change("remove", name, func() error { return f.disk.Remove(name) })
}

// ReadDir implements store.FS.
func (f *FaultFS) ReadDir(name string) ([]string, error) {
	if err, _ := f.call("readdir", name); err != nil {
		return nil, err
	}
	return f.disk.ReadDir(name)
}

// SyncDir implements store.FS.
func (f *FaultFS) SyncDir(name string) error {
	return f.change("syncdir", name, func() error { return f.disk.SyncDir(name) })
}

// Lock implements store.FS.
func (f *FaultFS) Lock(name, holder string) (io.Closer, error) {
	if err, _ := f.call("lock", name); err != nil {
		return nil, err
	}
	lock, err := f.disk.Lock(name, holder)
	if err != nil {
		return nil, err
	}
	return &faultLock{fs: f, name: name, lock: lock}, nil
}

// IsAt implements store.FS.
func (f *FaultFS) IsAt(name string, file io.Closer) (bool, error) {
	if err, _ := f.call("stat", name); err != nil {
		return false, err
	}
	switch of := file.(type) {
	case *faultFile:
		file = of.file
	case *faultLock:
		file = of.lock
	}
	return f.disk.IsAt(name, file)
}

type faultLock struct {
	fs   *FaultFS
	name string
	lock io.Closer
}

func (l *faultLock) Close() error {
	err, _ := l.fs.call("close", l.name)
	if closeErr := l.lock.Close(); err == nil {
		err = closeErr
	}
	return err
}

type faultFile struct {
	fs   *FaultFS
	name string
	file store.File
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err, _ := f.fs.call("read", f.name); err != nil {
		n, _ := f.file.ReadAt(p[:len(p)/2], off) // the first half is from the page cache
		return n, err
	}
	return f.file.ReadAt(p, off)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	err, isDone := f.fs.call("write", f.name)
	if !isDone {
		p = p[:len(p)/2]
	}
	n, writeErr := f.file.WriteAt(p, off)
	if err == nil {
		err = writeErr
	}
	return n, err
}

// Close is carried out always, as Linux does.
func (f *faultFile) Close() error {
	err, _ := f.fs.call("close", f.name)
	if closeErr := f.file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (f *faultFile) Size() (int64, error) {
	if err, _ := f.fs.call("size", f.name); err != nil {
		return 0, err
	}
	return f.file.Size()
}

func (f *faultFile) Truncate(size int64) error {
	return f.fs.change("truncate", f.name, func() error { return f.file.Truncate(size) })
}

func (f *faultFile) Allocate(size int64) error {
	return f.fs.change("allocate", f.name, func() error { return f.file.Allocate(size) })
}

func (f *faultFile) Zero(off, length int64) error {
	return f.fs.change("zero", f.name, func() error { return f.file.Zero(off, length) })
}

// Sync fails as Linux does: the pages count as clean afterwards although they are not on the disk.
func (f *faultFile) Sync() error {
	if err, _ := f.fs.call("sync", f.name); err != nil {
		f.fs.disk.FailNextSync(err)
	}
	return f.file.Sync()
}

func (f *faultFile) SetReadOnly() error {
	return f.fs.change("setmode", f.name, f.file.SetReadOnly)
}
