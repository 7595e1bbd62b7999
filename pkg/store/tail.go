package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
)

// tail is what lies behind the last whole record of the segment that takes the next one: an append that a crash cut
// off, or, behind one bad byte, records whose sync was acknowledged and whose mark was not durable yet. Nobody can tell
// one from the other here, so no byte of it is destroyed: it is copied to a file beside the segment before its place is
// written again.
type tail struct {
	file    File
	number  uint64 // of the segment
	from    int64
	to      int64 // behind the last byte that is not zero; from = there is none
	isSaved bool  // the copy is durable
}

// rewriteUnmarked writes the records since the last mark again and syncs. A process that died after a failed sync
// leaves them in the page cache as if they were on the disk.
func (a *Appender) rewriteUnmarked(file File, w *walked) error {
	from := max(w.mark.syncedOffset, segmentDataOffset)
	buf := make([]byte, min(max(w.end-from, 0), scanChunkLen))
	for off := from; off < w.end; {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), w.end-off)], off)
		if n == 0 {
			return err
		}
		if _, err := file.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return file.Sync()
}

// findTail looks for bytes that are not zero behind the last record of a segment.
func findTail(file File, f found, end int64) (tail, error) {
	last, err := lastNonZero(file, end)
	return tail{file: file, number: f.number, from: end, to: last}, err
}

// lastNonZero gives the offset behind the last byte that is not zero, or from where there is none.
func lastNonZero(file io.ReaderAt, from int64) (int64, error) {
	buf, zeros := make([]byte, scanChunkLen), make([]byte, scanChunkLen)
	last := from
	for off := from; ; {
		n, err := file.ReadAt(buf, off)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			last = off + int64(len(bytes.TrimRight(buf[:n], "\x00")))
		}
		off += int64(n)
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, err
		}
	}
}

// moveTail makes the place behind the last record free: the copy of what is there is durable before a byte of it is
// zeroed. A crash in between finds the tail again. Repeated after an error, it goes on where it was.
func (a *Appender) moveTail() error {
	t := &a.tail
	if t.from == t.to {
		return nil
	}
	if !t.isSaved {
		if err := a.saveTail(); err != nil {
			return err
		}
		t.isSaved = true
	}
	err := t.file.Zero(t.from, t.to-t.from)
	if err == nil {
		// Otherwise a crash could bring parts of it back behind the next records.
		err = t.file.Sync()
	}
	if err != nil {
		return wrap("zero the tail of", a.dir.file(t.number, segmentSuffix), err)
	}
	a.tail = tail{}
	return nil
}

// saveTail copies the tail to a file of its own. One that holds the same bytes is that of an attempt before; one that
// holds others is of another crash and stays.
func (a *Appender) saveTail() error {
	raw := make([]byte, a.tail.to-a.tail.from)
	if n, err := a.tail.file.ReadAt(raw, a.tail.from); n < len(raw) {
		return wrap("read the tail of", a.dir.file(a.tail.number, segmentSuffix), err)
	}
	for i := 1; ; i++ {
		name := path.Join(a.dir.path, tailName(a.tail.number, a.tail.from, i))
		before, err := readFile(a.dir.fsys, name, math.MaxInt64)
		switch {
		case isNotExist(err):
			if err := writeFile(a.dir.fsys, name, raw, 0o440); err != nil {
				return err
			}
			return wrap("sync", a.dir.path, a.dir.fsys.SyncDir(a.dir.path))
		case err != nil:
			return wrap("read", name, err)
		case bytes.Equal(before, raw):
			return wrap("sync", a.dir.path, a.dir.fsys.SyncDir(a.dir.path))
		}
	}
}

// tailName names the file that keeps a tail: the segment, the offset in it where the bytes were, and a count of those
// from there.
func tailName(number uint64, from int64, count int) string {
	return fmt.Sprintf("%010d-%010d-%d%s", number, from, count, tailSuffix)
}

// noteTail reports bytes behind the last record of the segment that is still written. Where an appender has written a
// record there meanwhile, they are none.
func (v *verifier) noteTail(f found) error {
	w := v.lastWalk
	file, err := v.dir.fsys.OpenFile(f.name, os.O_RDONLY, 0)
	if err != nil {
		return wrap("open", f.name, err)
	}
	defer file.Close()
	last, err := lastNonZero(file, w.end)
	if err != nil {
		return wrap("read", f.name, err)
	}
	_, err = newScanner(file, f.header.identity(), w.end).next()
	var failed *readError
	if errors.As(err, &failed) {
		return wrap("read", f.name, err)
	}
	if last > w.end && err != nil {
		v.report.Tail = &Tail{
			Segment: path.Base(f.name), LSN: w.chain.LSN, Offset: w.end, Bytes: last - w.end,
			Reason: w.stop.Error(),
		}
	}
	return nil
}
