package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/store"
)

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// identity is what store.json of an archive says.
type identity struct {
	StoreUUID string `json:"store_uuid"`
}

// identity reads whose archive the prefix is. Errors: ErrNotFound (there is nothing), ErrNotAnArchive (there is
// something else).
func (b *Bucket) identity(ctx context.Context) (identity, error) {
	var id identity
	found, err := b.versions(ctx, b.key(store.IdentityFile))
	if err != nil {
		return id, err
	}
	for _, v := range found {
		if v.IsMarker {
			continue
		}
		raw, err := b.read(ctx, v, 1<<16)
		if err != nil {
			return id, err
		}
		if err := json.Unmarshal(raw, &id); err != nil || id.StoreUUID == "" {
			return id, fmt.Errorf(
				"%w: %s/%s is no identity of a store",
				ErrNotAnArchive,
				b.Location,
				store.IdentityFile,
			)
		}
		return id, nil
	}
	other := ""
	stop := errors.New("one is enough")
	err = b.list(ctx, b.under(), func(v Version) error {
		name, _ := b.name(v.Key)
		if strings.HasPrefix(name, probePrefix) || name == store.PublicKeyFile || store.IsKeyFile(name) {
			return nil
		}
		other = v.Key
		return stop
	})
	if err != nil && !errors.Is(err, stop) {
		return id, err
	}
	if other != "" {
		return id, fmt.Errorf("%w: %s has no %s, and holds %s: expected an archive, or a prefix with nothing",
			ErrNotAnArchive, b.Location, store.IdentityFile, other)
	}
	return id, fmt.Errorf("%w: %s has no %s", ErrNotFound, b.Location, store.IdentityFile)
}

// under is what all keys of the archive begin with.
func (b *Bucket) under() string { return strings.TrimSuffix(b.key("."), ".") }

// committed is what of a stream the archive has.
type committed struct {
	first, last uint64 // segments; 0 = none
	manifest    string // SHA-256 of the newest manifest's file
	bases       map[uint64]bool
	lockedUntil time.Time // the earliest end of a lock of those that were asked for; zero = none was
}

// next is the segment that is to be archived next of those that the store has.
func (c committed) next(first uint64) uint64 {
	if c.last == 0 {
		return first
	}
	return c.last + 1
}

// committed lists the manifests that the archive has of a stream, and reads the newest. It asks for the locks of that,
// and of the segments from a number on.
func (w *Writer) committed(ctx context.Context, stream string, from uint64) (c committed, err error) {
	c.bases = map[uint64]bool{}
	manifests := map[uint64]Version{}
	dir := strings.TrimSuffix(store.SegmentFile(stream, 1), "0000000001.seg")
	err = w.bucket.list(ctx, w.bucket.key(dir), func(v Version) error {
		name, _ := w.bucket.name(v.Key)
		_, number, suffix, isOurs := store.FileName(name)
		if !isOurs || v.IsMarker {
			return nil
		}
		switch suffix {
		case ".json":
			if _, isThere := manifests[number]; !isThere {
				manifests[number] = v
			}
		case ".base":
			c.bases[number] = true
		}
		return nil
	})
	if err != nil || len(manifests) == 0 {
		return c, err
	}
	for number := range manifests {
		if c.first == 0 || number < c.first {
			c.first = number
		}
		c.last = max(c.last, number)
	}
	for number := c.first; number <= c.last; number++ {
		if _, isThere := manifests[number]; !isThere {
			return c, fmt.Errorf(
				"%w: stream %s: the archive has segment %d and %d, and no manifest of segment %d: farlog "+
					"archive verify says more",
				ErrNotAnArchive,
				stream,
				c.first,
				c.last,
				number,
			)
		}
	}
	raw, err := w.bucket.read(ctx, manifests[c.last], smallMax)
	if err != nil {
		return c, err
	}
	if _, err := w.store.DecodeManifest(manifests[c.last].Key, raw); err != nil {
		return c, err
	}
	digest := sha256.Sum256(raw)
	c.manifest = hex.EncodeToString(digest[:])
	for number := min(max(from, c.first), c.last); number <= c.last; number++ {
		until, err := w.bucket.checkCommit(ctx, manifests[number], stream, number)
		if err != nil {
			return c, err
		}
		c.lock(until)
	}
	return c, nil
}

// lock counts the end of one more lock.
func (c *committed) lock(until time.Time) {
	if c.lockedUntil.IsZero() || until.Before(c.lockedUntil) {
		c.lockedUntil = until
	}
}

// checkCommit reports whether a manifest is kept as it says, and the segment that it names; until is when the first of
// their locks ends.
func (b *Bucket) checkCommit(ctx context.Context, manifest Version, stream string, number uint64) (until time.Time,
	err error,
) {
	m, err := b.head(ctx, manifest.Key, manifest.ID)
	if err != nil {
		return until, err
	}
	if err := m.checkKept(m.Metadata); err != nil {
		return until, err
	}
	segment, err := b.head(ctx, b.key(store.SegmentFile(stream, number)), m.Metadata[metaSegmentVersion])
	if err != nil {
		return until, err
	}
	if until = m.RetainUntil; segment.RetainUntil.Before(until) {
		until = segment.RetainUntil
	}
	return until, segment.checkKept(m.Metadata)
}

// checkKept reports whether a version is locked as long as its segment's manifest says. Errors: ErrNotKept,
// ErrNotAnArchive.
func (v Version) checkKept(commit map[string]string) error {
	until, err := time.Parse(time.RFC3339, commit[metaRetainUntil])
	if err != nil || commit[metaSegmentVersion] == "" {
		return fmt.Errorf("%w: the manifest that commits %s says version %q and %q as the end of its retention",
			ErrNotAnArchive, v.Key, commit[metaSegmentVersion], commit[metaRetainUntil])
	}
	if v.Mode != string(minio.Compliance) || v.RetainUntil.Before(until) {
		return fmt.Errorf(
			"%w: object %s version %s is locked with %q until %s, expected COMPLIANCE until %s",
			ErrNotKept,
			v.Key,
			v.ID,
			v.Mode,
			v.RetainUntil.UTC().Format(time.RFC3339),
			until.Format(time.RFC3339),
		)
	}
	return nil
}
