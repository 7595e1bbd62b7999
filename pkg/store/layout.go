package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/farlog/farlog/pkg/record"
)

// Names in a store (docs/reference/format.md section 5).
const (
	identityName   = "store.json"
	privateKeyName = "signing.key"
	publicKeyName  = "signing.pub"
	createLockName = "store.lock"
	streamsName    = "streams"
	lockName       = "lock"
	segmentSuffix  = ".seg"
	indexSuffix    = ".idx"
	manifestSuffix = ".json"
	tailSuffix     = ".tail"
	baseSuffix     = ".base"
	tmpSuffix      = ".tmp"
)

// escapeName makes a directory name of a stream name, one to one.
func escapeName(stream string) string {
	var b strings.Builder
	for i := range len(stream) {
		c := stream[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' ||
			c == '.' && i > 0 && i < len(stream)-1
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescapeName is the way back; ok is false for a name that escapeName does not make.
func unescapeName(name string) (stream string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		if i+3 > len(name) {
			return "", false
		}
		c, err := strconv.ParseUint(name[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), b.Len() > 0 && escapeName(b.String()) == name
}

// streamDir is the directory of one stream.
type streamDir struct {
	fsys FS
	path string
}

func (d streamDir) file(number uint64, suffix string) string {
	return path.Join(d.path, fmt.Sprintf("%010d%s", number, suffix))
}

// listing is what a stream's directory holds.
type listing struct {
	segments  []uint64 // ascending
	bases     []uint64 // ascending, each by the first segment behind it
	manifests map[uint64]bool
	indexes   map[uint64]bool
	temporary []string
	tails     []string
}

func (d streamDir) list() (listing, error) {
	names, err := d.fsys.ReadDir(d.path)
	if err != nil {
		return listing{}, wrap("list", d.path, err)
	}
	found := listing{manifests: map[uint64]bool{}, indexes: map[uint64]bool{}}
	for _, name := range names {
		if strings.HasSuffix(name, tmpSuffix) {
			found.temporary = append(found.temporary, name)
			continue
		}
		suffix := path.Ext(name)
		if suffix == tailSuffix {
			found.tails = append(found.tails, name)
			continue
		}
		number, err := strconv.ParseUint(strings.TrimSuffix(name, suffix), 10, 64)
		if err != nil || number == 0 {
			continue
		}
		switch suffix {
		case segmentSuffix:
			found.segments = append(found.segments, number)
		case manifestSuffix:
			found.manifests[number] = true
		case indexSuffix:
			found.indexes[number] = true
		case baseSuffix:
			found.bases = append(found.bases, number)
		}
	}
	return found, nil
}

// behind leaves out the segments before the first one: what a removal has not yet taken away.
func (l listing) behind(first uint64) []uint64 {
	at, _ := slices.BinarySearch(l.segments, first)
	return l.segments[at:]
}

// checkNumbers reports whether the segments are first..n without a hole.
func (d streamDir) checkNumbers(segments []uint64, first uint64) error {
	for i, number := range segments {
		if want := uint64(i) + first; number != want {
			return &CorruptError{Path: d.file(want, segmentSuffix), Err: fmt.Errorf(
				"segment %w: the next one there is %d", ErrMissing, number)}
		}
	}
	return nil
}

// Source names the ring that a stream is drained from.
type Source struct {
	StreamName   string
	StreamID     uint32
	RingUUID     record.UUID
	Salt         uint64
	Align        uint32
	RecordLenMax uint32
}

func (s Source) identity() record.Identity {
	return record.Identity{Salt: s.Salt, Align: s.Align, RecordLenMax: s.RecordLenMax}
}

func (s Source) validate(segmentBytes int64) error {
	if err := validateStreamName(s.StreamName); err != nil {
		return err
	}
	if err := s.identity().Validate(); err != nil {
		return fmt.Errorf("%w: stream %s: %w", ErrInvalid, s.StreamName, err)
	}
	if s.RecordLenMax < record.AlignMin || int64(s.RecordLenMax) > segmentBytes-segmentDataOffset {
		return fmt.Errorf("%w: stream %s: record_len_max %d, expected from %d to %d (the segment size less its header)",
			ErrInvalid, s.StreamName, s.RecordLenMax, record.AlignMin, segmentBytes-segmentDataOffset)
	}
	return nil
}

func validateStreamName(name string) error {
	if len(name) == 0 || len(name) > record.StreamNameLen || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%w: stream name %q: expected 1 to %d bytes without NUL", ErrInvalid, name,
			record.StreamNameLen)
	}
	return nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
