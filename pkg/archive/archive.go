// Package archive keeps the sealed segments of a store in S3-compatible storage under Object Lock, and reads them back.
//
// Under its prefix an archive has the files of a store under the names that they have in the store's directory, so that
// any tool that copies objects makes a store of it. Each object is locked in COMPLIANCE mode, and read back. A segment
// counts when its manifest is there, which is put last and names the versions of the segment and of its index
// (docs/reference/format-archive.md). A Bucket is the only way to the storage; a View is the archive as a file system
// that pkg/store reads.
package archive

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farlog/farlog/pkg/store"
)

// Names of what the manifest's object says of the segment, in lower case as HTTP has them.
const (
	metaSegmentVersion = "farlog-segment-version"
	metaSegmentSHA256  = "farlog-segment-sha256"
	metaIndexVersion   = "farlog-index-version"
	metaRetainUntil    = "farlog-retain-until"
)

// smallMax is the size of what is read at once: manifests, base manifests, identities.
const smallMax = 64 << 20

// identityAhead is how much longer than a segment of now the identity of a store is locked: so often the locks are
// extended.
const identityAhead = 48 * time.Hour

// Writer puts the files of one store into its archive. One goroutine a stream.
type Writer struct {
	store  *store.Store
	bucket *Bucket
	keep   Period
	now    func() time.Time
	// wrote is told of each object that is in the bucket.
	wrote func(stream string, v Version)
	// notProved is what a probe of this Writer came to, unless it proved the lock; nil = there was none.
	notProved error

	mutex         sync.Mutex
	identityFiles int       // of the store that the archive has
	identityUntil time.Time // until when they are locked
}

// NewWriter makes a Writer; Claim comes first.
func NewWriter(s *store.Store, b *Bucket, keep Period) *Writer {
	return &Writer{store: s, bucket: b, keep: keep, now: time.Now, wrote: func(string, Version) {}}
}

// Claim makes the prefix the archive of this store. The first time it proves that the bucket keeps what is locked
// (Probe), or that a probe did so in the last day, with credentials that may delete. Errors: those of Check and Probe,
// ErrRefused, ErrNotProved, ErrOtherStore, ErrNotAnArchive.
func (w *Writer) Claim(ctx context.Context) error {
	if err := w.bucket.Check(ctx, w.keep); err != nil {
		return err
	}
	identity, err := w.bucket.identity(ctx)
	switch {
	case errors.Is(err, ErrNotFound):
		if err := w.prove(ctx); err != nil {
			return err
		}
	case err != nil:
		return err
	case identity.StoreUUID != w.store.UUID().String():
		return fmt.Errorf("%w: %s is the archive of store %s, this is %s (%s): give this store another prefix",
			ErrOtherStore, w.bucket.Location, identity.StoreUUID, w.store.UUID(), w.store.Dir())
	}
	return w.putIdentity(ctx, w.keep.After(w.now()))
}

// putIdentity puts what every segment is read with: the store's identity, last, and its keys. They are locked longer
// than any segment: when one is to be locked beyond them, or the store has another key, they are put again, which
// extends their locks; those of the orders, which are to be kept as long, are extended with them.
func (w *Writer) putIdentity(ctx context.Context, until time.Time) error {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	names := append(append([]string{store.PublicKeyFile}, w.store.KeyFiles()...), store.IdentityFile)
	if len(names) == w.identityFiles && !until.After(w.identityUntil) {
		return nil
	}
	further := maxTime(w.keep.After(w.now().Add(identityAhead)), until.Add(identityAhead))
	journal, err := w.bucket.listJournal(ctx)
	if err != nil {
		return err
	}
	for _, v := range journal {
		if err := w.bucket.extend(ctx, v, further, further); err != nil {
			return err
		}
	}
	for _, name := range names {
		if _, err := w.putFile(ctx, name, further); err != nil {
			return err
		}
	}
	w.identityFiles, w.identityUntil = len(names), further
	return nil
}

// putFile puts a small file of the store.
func (w *Writer) putFile(ctx context.Context, name string, until time.Time) (Version, error) {
	file, err := w.store.OpenFile(name)
	if err != nil {
		return Version{}, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return Version{}, fmt.Errorf("read size of %s: %w", name, err)
	}
	o, err := newObject(w.bucket.key(name), file, size, nil)
	if err != nil {
		return Version{}, err
	}
	return w.bucket.put(ctx, o, until)
}

// putSegment puts a sealed segment, its index, and then its manifest, which commits it. previous is the SHA-256 of the
// manifest before, as the archive has it; "" when the archive begins here. All are locked at least until a time. Damage
// of the local segment is an error: what does not fit its manifest is not archived. Errors: store.ErrCorrupt,
// ErrConflict, and those of put.
func (w *Writer) putSegment(ctx context.Context, stream string, m store.Manifest, previous string,
	until time.Time,
) error {
	number := m.Segment
	if previous != "" && m.PreviousSHA256 != previous {
		return fmt.Errorf("%w: stream %s: the manifest of segment %d follows one with SHA-256 %s, the archive has %s",
			ErrConflict, stream, number, m.PreviousSHA256, previous)
	}
	if err := w.putIdentity(ctx, until); err != nil { // reading its manifest, the store has seen who has signed it
		return err
	}
	segment, digest, err := w.putRecords(ctx, stream, m, until)
	if err != nil {
		return err
	}
	w.wrote(stream, segment)
	metadata := map[string]string{
		metaSegmentVersion: segment.ID, metaSegmentSHA256: digest, metaRetainUntil: until.Format(time.RFC3339),
	}
	index, err := w.putIndex(ctx, stream, number, until)
	if err != nil {
		return err
	}
	if index.ID != "" {
		w.wrote(stream, index)
		metadata[metaIndexVersion] = index.ID
	}
	_, raw, err := w.store.ReadManifest(stream, number)
	if err != nil {
		return err
	}
	o, err := newObject(w.bucket.key(store.ManifestFile(stream, number)), bytes.NewReader(raw), int64(len(raw)), nil)
	if err != nil {
		return err
	}
	o.metadata = metadata
	manifest, err := w.bucket.commit(ctx, o, until)
	if err == nil {
		w.wrote(stream, manifest)
	}
	return err
}

// putRecords puts the segment itself, when its bytes are those that the manifest is of.
func (w *Writer) putRecords(ctx context.Context, stream string, m store.Manifest, until time.Time) (Version, string,
	error,
) {
	name := store.SegmentFile(stream, m.Segment)
	file, err := w.store.OpenFile(name)
	if err != nil {
		return Version{}, "", err
	}
	defer file.Close()
	sum := store.NewSegmentHash()
	o, err := newObject(w.bucket.key(name), file, m.UsedBytes, sum)
	if err != nil {
		return Version{}, "", err
	}
	if sum.Sum() != m.SHA256 {
		return Version{}, "", &store.CorruptError{Path: name, LSN: m.FirstLSN, Err: fmt.Errorf(
			"SHA-256 of the segment is %s, the manifest says %s: it is not archived; farlog verify says where it is "+
				"damaged", sum.Sum(), m.SHA256)}
	}
	v, err := w.bucket.put(ctx, o, until)
	return v, hex.EncodeToString(o.sha256[:]), err
}

// putIndex puts the index where the store has one; it can be made again from the records.
func (w *Writer) putIndex(ctx context.Context, stream string, number uint64, until time.Time) (Version, error) {
	name := store.IndexFile(stream, number)
	file, err := w.store.OpenFile(name)
	if isNotExist(err) {
		return Version{}, nil
	}
	if err != nil {
		return Version{}, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return Version{}, fmt.Errorf("read size of %s: %w", name, err)
	}
	o, err := newObject(w.bucket.key(name), file, size, nil)
	if err != nil {
		return Version{}, err
	}
	o.isDerived = true
	return w.bucket.put(ctx, o, until)
}

// commit puts a manifest. One that an attempt before has put says another time until which it is kept: the time of that
// attempt counts then, since the objects that it names are kept as long.
func (b *Bucket) commit(ctx context.Context, o object, until time.Time) (Version, error) {
	there, err := b.versions(ctx, o.key)
	if err != nil {
		return Version{}, err
	}
	for _, v := range there {
		if v.IsMarker {
			continue
		}
		if v, err = b.head(ctx, o.key, v.ID); err != nil {
			return v, err
		}
		if was := v.Metadata[metaRetainUntil]; was != "" {
			o.metadata[metaRetainUntil] = was
		}
		break
	}
	return b.put(ctx, o, until)
}
