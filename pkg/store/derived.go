package store

import (
	"errors"
	"io"
	"math"
	"os"
	"path"
	"sync/atomic"
	"time"
)

// Derived gives a store of the same identity and key whose streams lie in dir: for what is made of the records of this
// one and can be made again. The same records appended to it in the same batches give the same bytes: its segments are
// prepared and sealed by the caller of Append, and do not say when.
func (s *Store) Derived(dir string, segmentBytes int64) *Store {
	derived := *s
	derived.streams, derived.synced = dir, new(atomic.Pointer[func(string)])
	derived.options.SegmentBytes, derived.options.IsSynchronous, derived.options.isDerived = segmentBytes, true, true
	derived.options.Now = func() time.Time { return time.Unix(0, 0) }
	return &derived
}

// SeekLastSegment goes to the first record of the last segment that has one.
func (r *Reader) SeekLastSegment() error {
	for at := len(r.segments) - 1; at >= 0; at-- {
		r.from, r.last = filter{}, recordPlace{}
		if err := r.open(at, segmentDataOffset, true); err != nil {
			return err
		}
		_, err := r.scan.next()
		var failed *readError
		if errors.As(err, &failed) {
			return wrap("read", r.segments[at].name, err)
		}
		if err == nil || at == 0 {
			return nil
		}
	}
	return nil
}

// SyncedBytes counts the bytes of records that the marks in a stream's segments say were synced, also where a header or
// a record is damaged. 0: there is no such stream.
func (s *Store) SyncedBytes(source Source) (count int64, err error) {
	dir := s.streamDir(source.StreamName)
	list, err := dir.list()
	if err != nil && !isNotExist(err) {
		return 0, err
	}
	for _, number := range list.segments {
		name := dir.file(number, segmentSuffix)
		raw, err := readHead(dir.fsys, name)
		if err != nil {
			return 0, wrap("read", name, err)
		}
		synced := int64(segmentDataOffset)
		for _, off := range []int{markAOffset, markBOffset} {
			if m, ok := decodeMark(raw[off:off+markLen], source.Salt); ok {
				synced = max(synced, m.syncedOffset)
			}
		}
		count += synced - segmentDataOffset
	}
	return count, nil
}

// CopyFile makes a durable copy of a file; the caller syncs the directory.
func CopyFile(fsys FS, from, to string) error {
	raw, err := readFile(fsys, from, math.MaxInt64)
	if err != nil {
		return wrap("read", from, err)
	}
	return writeFile(fsys, to, raw, 0o640)
}

// RemoveSegments takes the segments of a stream behind the first ones away, with what belongs to them, from the end: no
// crash leaves a hole. Nobody may append meanwhile.
func (s *Store) RemoveSegments(stream string, keep uint64) error {
	dir := s.streamDir(stream)
	list, err := dir.list()
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for i := len(list.segments) - 1; i >= 0 && list.segments[i] > keep; i-- {
		for _, suffix := range []string{manifestSuffix, indexSuffix, segmentSuffix} {
			name := dir.file(list.segments[i], suffix)
			if err := dir.fsys.Remove(name); err != nil && !isNotExist(err) {
				return wrap("remove", name, err)
			}
		}
	}
	for _, name := range list.tails {
		if err := dir.fsys.Remove(path.Join(dir.path, name)); err != nil {
			return wrap("remove", name, err)
		}
	}
	return wrap("sync", dir.path, dir.fsys.SyncDir(dir.path))
}

// readHead reads what lies before the records of a segment; zeros where there is less of it.
func readHead(fsys FS, name string) ([]byte, error) {
	raw := make([]byte, segmentDataOffset)
	file, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.ReadAt(raw, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return raw, nil
}
