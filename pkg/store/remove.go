package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Removal says what is removed from the front of a stream, and why.
type Removal struct {
	Before     uint64 // the first segment that stays
	Policy     string // what allows it, in words
	By         string // who; "" = this process
	ArchivedAt string // where the removed segments are; "" = nowhere
}

// RemoveBefore removes the sealed segments before one that stays. First it makes a base manifest durable, then it takes
// the files away: after a crash in between the stream begins where the base says, and the next appender takes away what
// is left (docs/reference/format-store-base.md). Any goroutine may call it beside the one that appends. Errors:
// ErrInvalid (a segment is not sealed, or nothing synced is behind it), ErrCorrupt, ErrClosed, ErrNoSpace, or of the
// file system; then the stream begins where it did, or at the new place, and doing it again goes on.
func (a *Appender) RemoveBefore(removal Removal) (*Base, error) {
	a.removing.Lock()
	defer a.removing.Unlock()
	if a.isClosed {
		return nil, fmt.Errorf("%w: %s", ErrClosed, a.dir.path)
	}
	base, err := a.store.removeBefore(a.source.StreamName, removal)
	if base != nil {
		a.begins.Store(base)
	}
	return base, err
}

// Base is what the stream begins behind; nil: nothing was removed. Any goroutine may call it.
func (a *Appender) Base() *Base { return a.begins.Load() }

// RemoveBefore is that of a stream that nobody appends to: it holds the stream's lock meanwhile. Errors: ErrLocked, and
// those of Appender.RemoveBefore.
func (s *Store) RemoveBefore(stream string, removal Removal) (*Base, error) {
	name := path.Join(s.streamDir(stream).path, lockName)
	lock, err := s.fsys.Lock(name, holderText())
	if err != nil {
		return nil, fmt.Errorf("remove segments of stream %s: lock %s: %w", stream, name, err)
	}
	base, err := s.removeBefore(stream, removal)
	if closeErr := lock.Close(); err == nil {
		err = wrap("unlock", name, closeErr)
	}
	return base, err
}

func (s *Store) removeBefore(stream string, removal Removal) (*Base, error) {
	d := s.streamDir(stream)
	list, err := d.list()
	if err != nil {
		return nil, err
	}
	base, err := s.begin(d, list)
	if err != nil {
		return nil, err
	}
	if removal.Before > base.firstSegment() {
		var newest uint64
		if base, err = s.nextBase(d, stream, list, base, removal, s.checkAndNote(&newest)); err != nil {
			return nil, err
		}
		raw, err := encodeBase(*base, func(statement []byte) ([]byte, error) {
			signature, _, err := s.signAtLeast(statement, newest)
			return signature, err
		})
		if err != nil {
			return nil, err
		}
		if err := writeFile(s.fsys, d.file(base.Segment, baseSuffix), raw, 0o440); err != nil {
			return nil, err
		}
		base.digest = sha256.Sum256(raw)
	}
	// Before anything is taken away the base is durable, also one whose sync has failed before.
	if err := s.fsys.SyncDir(d.path); err != nil {
		return nil, wrap("sync", d.path, err)
	}
	return base, d.sweep(list, base.firstSegment())
}

// nextBase checks that the segments are sealed, continue one another and are continued, and says where they end. check
// sees all signatures.
func (s *Store) nextBase(d streamDir, stream string, list listing, before *Base, removal Removal, check checker) (
	*Base, error,
) {
	there := list.behind(before.firstSegment())
	if err := d.checkNumbers(there, before.firstSegment()); err != nil {
		return nil, err
	}
	next := Base{
		Format: baseFormat, Version: baseVersion, StoreUUID: s.uuid.String(), Stream: stream, Segment: removal.Before,
		Policy: removal.Policy, RemovedBy: removal.By, ArchivedAt: removal.ArchivedAt,
		RemovedAt:      s.options.Now().UTC().Format(time.RFC3339Nano),
		PreviousSHA256: hex.EncodeToString(make([]byte, sha256.Size)), FormerRings: []string{},
	}
	if next.RemovedBy == "" {
		next.RemovedBy = holderText()
	}
	var manifest [sha256.Size]byte
	if before != nil {
		_, raw, err := d.loadBase(s, stream, before.Segment, check)
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(raw)
		next.PreviousSHA256 = hex.EncodeToString(digest[:])
		next.FormerRings = slices.Clone(before.FormerRings)
		next.RemovedSegments, next.RemovedRecords = before.RemovedSegments, before.RemovedRecords
		next.RemovedBytes, next.MaxTimestampNS = before.RemovedBytes, before.MaxTimestampNS
		_, manifest = before.digests()
	}
	for number := before.firstSegment(); number < removal.Before; number++ {
		m, raw, err := loadManifest(d, number, check)
		if isNotExist(err) {
			return nil, fmt.Errorf("%w: remove the segments of stream %s before %d: segment %d is not sealed",
				ErrInvalid, stream, removal.Before, number)
		}
		if err != nil {
			return nil, err
		}
		if m.Stream != stream || m.Segment != number || m.PreviousSHA256 != hex.EncodeToString(manifest[:]) {
			return nil, &CorruptError{Path: d.file(number, manifestSuffix), LSN: m.FirstLSN, Err: fmt.Errorf(
				"manifest is of segment %d of stream %q and follows one with SHA-256 %s, expected %d of %q and %x",
				m.Segment, m.Stream, m.PreviousSHA256, number, stream, manifest)}
		}
		manifest = sha256.Sum256(raw)
		next.take(m, manifest)
	}
	return &next, d.checkBehind(&next, list)
}

// take counts a segment as removed.
func (b *Base) take(m Manifest, manifest [sha256.Size]byte) {
	b.StreamID, b.Generation, b.RingUUID = m.StreamID, m.Generation, m.RingUUID
	b.LastEpoch, b.LastLSN, b.NextLSN, b.LastSeq, b.NextSeq = m.LastEpoch, m.LastLSN, m.NextLSN, m.LastSeq, m.NextSeq
	b.SegmentSHA256, b.ManifestSHA256 = m.SHA256, hex.EncodeToString(manifest[:])
	b.RemovedSegments++
	b.RemovedRecords += m.RecordCount
	b.RemovedBytes += m.UsedBytes - segmentDataOffset
	b.MaxTimestampNS = max(b.MaxTimestampNS, m.MaxTimestampNS)
	if !slices.Contains(b.FormerRings, m.RingUUID) {
		b.FormerRings = append(b.FormerRings, m.RingUUID)
	}
}

// checkBehind reports whether the segment that stays continues what is removed, and holds a synced record: then no
// recovery takes it away.
func (d streamDir) checkBehind(b *Base, list listing) error {
	f, err := d.look(b.Segment)
	switch {
	case isNotExist(err):
		return fmt.Errorf("%w: remove the segments of stream %s before %d: there is no segment %d", ErrInvalid,
			b.Stream, b.Segment, b.Segment)
	case err != nil:
		return err
	case f.headerErr != nil && !f.isBlank:
		return &CorruptError{Path: f.name, Err: f.headerErr}
	case f.headerErr != nil || !list.manifests[b.Segment] && f.mark.syncedOffset <= segmentDataOffset:
		return fmt.Errorf("%w: remove the segments of stream %s before %d: segment %d holds no synced record",
			ErrInvalid, b.Stream, b.Segment, b.Segment)
	}
	if err := b.checkFit(f.header); err != nil {
		return &CorruptError{Path: f.name, LSN: f.header.FirstLSN, Err: err}
	}
	return nil
}

// sweep takes away what belongs to the segments before the first one. The base is durable.
func (d streamDir) sweep(list listing, first uint64) error {
	var names []string
	for _, number := range list.segments {
		if number < first {
			names = append(names, path.Base(d.file(number, segmentSuffix)))
		}
	}
	for number := range list.manifests {
		if number < first {
			names = append(names, path.Base(d.file(number, manifestSuffix)))
		}
	}
	for number := range list.indexes {
		if number < first {
			names = append(names, path.Base(d.file(number, indexSuffix)))
		}
	}
	for _, name := range list.tails {
		text, _, _ := strings.Cut(name, "-")
		if number, err := strconv.ParseUint(text, 10, 64); err == nil && number < first {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		if err := d.fsys.Remove(path.Join(d.path, name)); err != nil && !isNotExist(err) {
			errs = append(errs, wrap("remove", path.Join(d.path, name), err))
		}
	}
	return errors.Join(append(errs, wrap("sync", d.path, d.fsys.SyncDir(d.path)))...)
}
