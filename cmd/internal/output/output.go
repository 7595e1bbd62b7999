// Package output is the standard output of a program, which may be a file on a full disk. Commands print a line at a
// time and do not ask each time whether it was written: the program asks in the end, and fails.
package output

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// Writer remembers the first failure of what it writes to.
type Writer struct {
	to io.Writer

	mutex sync.Mutex
	err   error
}

// New gives one that writes to a file, or to what a test has.
func New(to io.Writer) *Writer { return &Writer{to: to} }

// Write writes as what is behind it does.
func (w *Writer) Write(raw []byte) (int, error) {
	n, err := w.to.Write(raw)
	if err != nil {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if w.err == nil {
			w.err = fmt.Errorf("standard output: %w: what was printed is not complete", err)
		}
	}
	return n, err
}

// Err is what could not be written; nil: nothing.
func (w *Writer) Err() error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.err
}

// File is the file behind a writer, of which a terminal can be asked.
func File(w io.Writer) (file *os.File, isFile bool) {
	if own, isOwn := w.(*Writer); isOwn {
		w = own.to
	}
	file, isFile = w.(*os.File)
	return file, isFile
}
