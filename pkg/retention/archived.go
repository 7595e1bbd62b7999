package retention

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/farlog/farlog/pkg/replace"
	"github.com/farlog/farlog/pkg/store"
)

const (
	archivedFormat  = "farlog-archived"
	archivedVersion = 1
)

// confirmedAgeMax is how old the newest look at an archive may be: what it said before that is nobody's word any more.
const confirmedAgeMax = 24 * time.Hour

// Archived is how far a stream of a store is archived: farlog-archive writes it into the store, after the manifest of
// the segment was committed in the archive and read back.
type Archived struct {
	Format         string `json:"format"`
	Version        int    `json:"version"`
	StoreUUID      string `json:"store_uuid"`
	Stream         string `json:"stream"`
	Segment        uint64 `json:"segment"`         // the newest; all before it are archived too
	ManifestSHA256 string `json:"manifest_sha256"` // of the file of its manifest
	Archive        string `json:"archive"`         // where, such as s3://bucket/prefix
	ConfirmedAt    string `json:"confirmed_at"`    // when the archive was looked at last
	LockedUntil    string `json:"locked_until"`    // the earliest end of a lock of the segments that the store has too
}

// Save keeps it in the store, durably.
func (a Archived) Save(s *store.Store) error {
	a.Format, a.Version, a.StoreUUID = archivedFormat, archivedVersion, s.UUID().String()
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode archived: %w", err)
	}
	return replace.File(filepath.Join(s.Dir(), store.ArchivedFile(a.Stream)), append(raw, '\n'), 0o640)
}

// LoadArchived reads how far a stream is archived; Segment is 0 when it is not. Errors: store.ErrInvalid, or of the
// file system.
func LoadArchived(s *store.Store, stream string) (Archived, error) {
	var a Archived
	name := filepath.Join(s.Dir(), store.ArchivedFile(stream))
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, fmt.Errorf("read how far stream %s is archived: %w", stream, err)
	}
	switch err := json.Unmarshal(raw, &a); {
	case err != nil:
		return a, fmt.Errorf("%w: %s: %w", store.ErrInvalid, name, err)
	case a.Format != archivedFormat || a.Version != archivedVersion:
		return a, fmt.Errorf(
			"%w: %s has format %q version %d, expected %q version %d",
			store.ErrInvalid,
			name,
			a.Format,
			a.Version,
			archivedFormat,
			archivedVersion,
		)
	case a.StoreUUID != s.UUID().String() || a.Stream != stream || a.Archive == "":
		return a, fmt.Errorf("%w: %s is of stream %q of store %s in %q, expected %q of %s", store.ErrInvalid, name,
			a.Stream, a.StoreUUID, a.Archive, stream, s.UUID())
	}
	return a, nil
}

// check reports whether the archive has what the store has: the manifest of the newest archived segment, which commits
// to all before it; and whether it was looked at of late, and is locked.
func (a Archived) check(s *store.Store, now time.Time) error {
	if err := a.checkTimes(filepath.Join(s.Dir(), store.ArchivedFile(a.Stream)), now); err != nil {
		return err
	}
	_, raw, err := s.ReadManifest(a.Stream, a.Segment)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(raw)
	if hex.EncodeToString(digest[:]) != a.ManifestSHA256 {
		return fmt.Errorf(
			"the archive %s has a manifest of segment %d with SHA-256 %s, the store one with %x",
			a.Archive,
			a.Segment,
			a.ManifestSHA256,
			digest,
		)
	}
	return nil
}

func (a Archived) checkTimes(name string, now time.Time) error {
	confirmed, err := time.Parse(time.RFC3339, a.ConfirmedAt)
	if err != nil || now.Sub(confirmed) > confirmedAgeMax || confirmed.After(now) {
		return fmt.Errorf("%s has confirmed_at %q, expected a time of the %s before %s: nothing is removed; run "+
			"farlog archive run, which looks at the archive again, and check the clock of its host", name,
			a.ConfirmedAt, confirmedAgeMax, now.UTC().Format(time.RFC3339))
	}
	locked, err := time.Parse(time.RFC3339, a.LockedUntil)
	if err != nil || !locked.After(now) {
		return fmt.Errorf("%s has locked_until %q, expected a time after %s: nothing is removed; archive the store "+
			"under another prefix with a longer --retain, or set the rule with --without-archive", name,
			a.LockedUntil, now.UTC().Format(time.RFC3339))
	}
	return nil
}

// behind says why a segment is kept.
func (a Archived) behind(segment uint64) string {
	if a.Segment == 0 {
		return fmt.Sprintf("segment %d is not archived: no segment of the stream is", segment)
	}
	return fmt.Sprintf("segment %d is not archived: %s has the segments up to %d", segment, a.Archive, a.Segment)
}
