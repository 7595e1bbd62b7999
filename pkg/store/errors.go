package store

import (
	"errors"
	"fmt"
	"syscall"
)

// What a caller can act on; use errors.Is. Errors of the file system come wrapped as they are, except a full disk.
var (
	// ErrNoSpace: the file system is full. Nothing was accepted; the same call succeeds when there is space again.
	ErrNoSpace = errors.New("no space left for the store")
	// ErrLocked: another process appends to this stream. The text says which one.
	ErrLocked = errors.New("stream is held by another appender")
	// ErrNotAStore: the directory holds no store.
	ErrNotAStore = errors.New("not a store")
	// ErrNotFound: the store has no such stream, or the stream no such record.
	ErrNotFound = errors.New("not found")
	// ErrRemoved: the record was there, and retention has removed it. The text says by what policy, and where the
	// stream begins.
	ErrRemoved = errors.New("removed by retention")
	// ErrCorrupt: bytes fail their check. It is always a *CorruptError, which names the place.
	ErrCorrupt = errors.New("store is damaged")
	// ErrMissing: a file of the stream is not in its directory any more. It is always a *CorruptError, which names it.
	ErrMissing = errors.New("is missing: put it back from a replica or a backup")
	// ErrOutOfOrder: a batch does not continue the stream. Nothing of it was accepted.
	ErrOutOfOrder = errors.New("batch does not continue the stream")
	// ErrTooLarge: a batch is larger than a segment.
	ErrTooLarge = errors.New("batch is larger than a segment")
	// ErrSigning: what is to be signed could not be. Nothing was accepted; the same call succeeds when the signer
	// answers again.
	ErrSigning = errors.New("cannot sign for the store")
	// ErrInvalid: an argument is out of range.
	ErrInvalid = errors.New("invalid argument")
	// ErrClosed: the appender is closed.
	ErrClosed = errors.New("appender is closed")
	// ErrGone: the store's directory, or a file in it that is being written, was removed, renamed or replaced. What was
	// written since may be where nobody finds it.
	ErrGone = errors.New("store is not in its place any more")
	// ErrBroken: after a failure that could not be undone the appender must be closed and opened again.
	ErrBroken = errors.New("appender is broken: open it again")
)

// CorruptError is damage with its place.
type CorruptError struct {
	Path   string // of the file, as it was opened
	LSN    uint64 // of the record, or where one was expected
	Offset int64  // in the file
	Err    error  // what is wrong
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: lsn %d at offset %d: %v", e.Path, e.LSN, e.Offset, e.Err)
}

// Unwrap makes errors.Is(err, ErrCorrupt) hold.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// wrap names what was being done, and folds a full disk into ErrNoSpace.
func wrap(verb, path string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s %s: %w: %w", verb, path, ErrNoSpace, err)
	}
	return fmt.Errorf("%s %s: %w", verb, path, err)
}
