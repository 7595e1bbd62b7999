package archive

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/store"
)

// VerifyOptions choose what Verify expects.
type VerifyOptions struct {
	Store store.VerifyOptions
	Keep  *Period // each object is to be locked so long from its segment's sealing; nil = as its manifest says
}

// Report is what Verify found.
type Report struct {
	Archive  string       `json:"archive"`
	Store    store.Report `json:"store"`
	Segments int          `json:"segments"` // committed
	Objects  int          `json:"objects"`  // that count
	Orders   int          `json:"orders"`   // in the journal, and kept
	Bytes    int64        `json:"bytes"`    // of those
	// Duplicates are further versions with the same bytes: an answer was lost. They are not counted.
	Duplicates int `json:"duplicates"`
	// Uncommitted are objects of segments that are being put, or whose uploader died. They are not counted.
	Uncommitted int      `json:"uncommitted"`
	Failures    []string `json:"failures,omitempty"`
}

// OK reports whether all is as it was put and locked, and every stream is whole.
func (r Report) OK() bool { return len(r.Failures) == 0 && r.Store.OK() }

// Verify proves an archive from the bucket alone: every object that counts is there in one version, locked, and every
// stream is whole by store.Verify, which reads every byte of the segments. Damage is in the report; the error is for
// what could not be asked. Errors: ErrNotAnArchive, those of calls, those of store.Open and store.Verify.
func Verify(ctx context.Context, b *Bucket, options VerifyOptions) (Report, error) {
	report := Report{Archive: b.Location.String()}
	view, err := NewView(ctx, b)
	if err != nil {
		return report, err
	}
	opened, err := view.Store()
	if err != nil {
		return report, err
	}
	v := &verifier{ctx: ctx, view: view, store: opened, keep: options.Keep, report: &report}
	if v.journal, err = b.ReadJournal(ctx); errors.Is(err, ErrNotAnArchive) {
		v.fail("%s", err)
	} else if err != nil {
		return report, err
	}
	if err := v.objects(); err != nil {
		return report, err
	}
	report.Store, err = opened.Verify(ctx, options.Store)
	return report, err
}

type verifier struct {
	ctx    context.Context
	view   *View
	store  *store.Store
	keep   *Period
	report *Report
	last   map[string]uint64 // committed segment of a stream
	until  time.Time         // when the last lock ends that a manifest or the journal speaks of

	journal Journal
}

func (v *verifier) fail(format string, args ...any) {
	v.report.Failures = append(v.report.Failures, fmt.Sprintf(format, args...))
}

// objects looks at every version under the prefix.
func (v *verifier) objects() error {
	v.last = map[string]uint64{}
	for name, version := range v.view.files {
		if until, err := time.Parse(time.RFC3339, version.Metadata[metaRetainUntil]); err == nil {
			v.until = maxTime(v.until, until)
		}
		if stream, number, suffix, isOurs := store.FileName(name); isOurs && suffix == ".json" {
			v.last[stream] = max(v.last[stream], number)
			v.report.Segments++
			if err := v.view.unread[name]; err != nil {
				v.fail("%s", err)
				continue
			}
			least, err := v.ordered(stream, number, version)
			if err != nil {
				return err
			}
			v.until = maxTime(v.until, least)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.view.lists)) {
		if err := v.object(name); err != nil {
			return err
		}
	}
	return nil
}

// verifyMargin is how much of a held segment's lock has to be left: it is extended each day.
const verifyMargin = holdRenew - 7*24*time.Hour

// ordered is until when a segment is to be locked by the journal.
func (v *verifier) ordered(stream string, number uint64, manifest Version) (time.Time, error) {
	if len(v.journal.Entries) == 0 {
		return time.Time{}, nil
	}
	m, _, err := v.store.ReadManifest(stream, number)
	if errors.Is(err, store.ErrCorrupt) {
		return time.Time{}, nil // store.Verify says it
	}
	least, _ := v.journal.required(coveredBy(m, manifest.ModifiedAt), time.Now(), verifyMargin)
	return least, err
}

func (v *verifier) object(name string) error {
	if isJournal(name) {
		return v.order(name)
	}
	stream, number, suffix, isOurs := store.FileName(name)
	counts, isThere := v.view.files[name]
	switch {
	case !isOurs && name != store.IdentityFile && name != store.PublicKeyFile && !store.IsKeyFile(name):
		v.fail("%s: an object that no store has", name)
		return nil
	case !isThere && v.view.unread[store.ManifestFile(stream, number)] != nil:
		return v.markers(name) // which is said of the manifest
	case !isThere && number > v.last[stream]:
		v.report.Uncommitted++
		return v.markers(name)
	case !isThere:
		v.fail("%s: no manifest names it, and segments behind it are committed", name)
		return v.markers(name)
	}
	v.report.Objects++
	v.report.Bytes += counts.Size
	if err := v.versions(name, counts, suffix == ".idx"); err != nil {
		return err
	}
	if suffix == ".json" && v.view.unread[name] == nil {
		return v.commit(name, stream, number)
	}
	if suffix == ".json" || suffix == ".seg" || suffix == ".idx" {
		return nil // with its manifest
	}
	full, err := v.view.bucket.head(v.ctx, counts.Key, counts.ID)
	if err == nil && full.Mode != string(minio.Compliance) {
		v.fail("%s: version %s is locked with %q, expected COMPLIANCE", name, counts.ID, full.Mode)
	}
	if err == nil && !isOurs && full.RetainUntil.Before(v.until) {
		v.fail("%s: locked until %s, and a segment until %s: expected to be locked as long as all of them", name,
			full.RetainUntil.UTC().Format(time.RFC3339), v.until.UTC().Format(time.RFC3339))
	}
	return err
}

// order checks an entry of the journal: ReadJournal has read it.
func (v *verifier) order(name string) error {
	counts := v.view.oldest(name)
	if counts == nil {
		return v.markers(name)
	}
	v.report.Orders++
	if err := v.versions(name, *counts, false); err != nil {
		return err
	}
	full, err := v.view.bucket.head(v.ctx, counts.Key, counts.ID)
	if err == nil && (full.Mode != string(minio.Compliance) || full.RetainUntil.Before(v.until)) {
		v.fail("%s: locked with %q until %s, expected COMPLIANCE as long as the segments, until %s", name, full.Mode,
			full.RetainUntil.UTC().Format(time.RFC3339), v.until.UTC().Format(time.RFC3339))
	}
	return err
}

func (v *verifier) markers(name string) error {
	for _, one := range v.view.lists[name] {
		if one.IsMarker {
			v.fail("%s: somebody deleted it at %s: a delete marker hides it; its versions are there", name,
				one.ModifiedAt.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// versions looks for others than that which counts.
func (v *verifier) versions(name string, counts Version, isDerived bool) error {
	if err := v.markers(name); err != nil {
		return err
	}
	list := slices.DeleteFunc(slices.Clone(v.view.lists[name]), func(one Version) bool {
		return one.IsMarker || one.ID == counts.ID
	})
	if len(list) == 0 {
		return nil
	}
	want, err := v.view.bucket.hash(v.ctx, counts)
	if err != nil {
		return err
	}
	for _, one := range list {
		digest, err := v.view.bucket.hash(v.ctx, one)
		if err != nil {
			return err
		}
		if digest != want && !isDerived {
			v.fail("%s: version %s of %s has SHA-256 %x, the one that counts, %s, has %x: somebody overwrote it", name,
				one.ID, one.ModifiedAt.UTC().Format(time.RFC3339), digest, counts.ID, want)
			continue
		}
		v.report.Duplicates++
	}
	return nil
}

// commit checks what a manifest's object says: which versions, and until when they are locked.
func (v *verifier) commit(name, stream string, number uint64) error {
	manifest := v.view.files[name]
	m, _, err := v.store.ReadManifest(stream, number)
	if errors.Is(err, store.ErrCorrupt) {
		return nil // store.Verify says it
	}
	if err != nil {
		return err
	}
	ordered, err := v.ordered(stream, number, manifest)
	if err != nil {
		return err
	}
	if err := v.locked(name, m, manifest.Metadata, ordered); err != nil {
		return err
	}
	segment, isThere := v.view.files[store.SegmentFile(stream, number)]
	if !isThere {
		v.fail(
			"%s: it names version %q of its segment, which is not there",
			name,
			manifest.Metadata[metaSegmentVersion],
		)
		return nil
	}
	if segment.Size != m.UsedBytes {
		v.fail("%s: the segment has %d bytes, expected %d", name, segment.Size, m.UsedBytes)
	}
	if err := v.locked(store.SegmentFile(stream, number), m, manifest.Metadata, ordered); err != nil {
		return err
	}
	if manifest.Metadata[metaIndexVersion] == "" {
		return nil
	}
	if _, isThere := v.view.files[store.IndexFile(stream, number)]; !isThere {
		v.fail("%s: it names version %q of its index, which is not there", name, manifest.Metadata[metaIndexVersion])
		return nil
	}
	return v.locked(store.IndexFile(stream, number), m, manifest.Metadata, ordered)
}

// locked checks the lock of one object of a segment, and the hash that the storage has of it.
func (v *verifier) locked(name string, m store.Manifest, commit map[string]string, ordered time.Time) error {
	version := v.view.files[name]
	full, err := v.view.bucket.head(v.ctx, version.Key, version.ID)
	if err != nil {
		return err
	}
	if err := full.checkKept(commit); err != nil {
		v.fail("%s", err)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(full.sha256Base64)
	if _, _, suffix, _ := store.FileName(name); suffix == ".seg" && err == nil && len(raw) > 0 &&
		hex.EncodeToString(raw) != commit[metaSegmentSHA256] {
		v.fail("%s: the storage has SHA-256 %x of it, the manifest's object says %s", name, raw,
			commit[metaSegmentSHA256])
	}
	if full.RetainUntil.Before(ordered) {
		v.fail("%s: locked until %s, the journal orders until %s: farlog archive retention apply extends it", name,
			full.RetainUntil.UTC().Format(time.RFC3339), ordered.UTC().Format(time.RFC3339))
	}
	if v.keep == nil {
		return nil
	}
	sealed, err := time.Parse(time.RFC3339Nano, m.SealedAt)
	if err != nil {
		v.fail("%s: sealed_at %q", name, m.SealedAt)
		return nil
	}
	if until := v.keep.After(sealed); full.RetainUntil.Before(until) {
		v.fail("%s: locked until %s, expected %s from its sealing on, until %s", name,
			full.RetainUntil.UTC().Format(time.RFC3339), v.keep.String(), until.Format(time.RFC3339))
	}
	return nil
}
