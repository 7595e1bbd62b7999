package archive

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/store"
)

// Extended is what Extend did.
type Extended struct {
	Segments int       `json:"segments"` // committed
	Ordered  int       `json:"ordered"`  // of those that an order is of
	Extended int       `json:"extended"` // of those whose lock ended too early
	Until    time.Time `json:"until"`    // the latest lock that an order asks for

	shared time.Time // until when segments can be locked by orders before the next Extend
}

// Extend makes the locks of an archive end as late as its journal orders, each with those of what it is read by: the
// identity, the keys, the journal, the base manifests first, a segment's manifest last. So what an interrupted Extend
// leaves is extended by the next one, and nothing is locked longer than what it is read by. Errors: those of NewView,
// ReadJournal and of calls, ErrNotKept.
func Extend(ctx context.Context, b *Bucket) (Extended, error) {
	var done Extended
	j, err := b.ReadJournal(ctx)
	if err != nil {
		return done, err
	}
	if len(j.Entries) == 0 {
		return done, nil
	}
	e := &extender{
		ctx: ctx, bucket: b, journal: j, done: &done,
		bases: map[string]time.Time{}, late: map[string]time.Time{},
	}
	e.now = time.Now().UTC().Truncate(time.Second)
	if e.view, err = NewView(ctx, b); err != nil {
		return done, err
	}
	if e.store, err = e.view.Store(); err != nil {
		return done, err
	}
	if err := e.plan(); err != nil {
		return done, err
	}
	if err := e.extendShared(); err != nil {
		return done, err
	}
	for _, name := range slices.Sorted(maps.Keys(e.late)) {
		if err := e.segment(name, e.late[name]); err != nil {
			return done, err
		}
		done.Extended++
	}
	return done, nil
}

type extender struct {
	ctx     context.Context
	bucket  *Bucket
	journal Journal
	view    *View
	store   *store.Store
	done    *Extended
	now     time.Time
	late    map[string]time.Time // manifests whose locks end too early, and when they are to end
	bases   map[string]time.Time // when the latest lock of a stream with orders is to end
}

// plan finds the segments whose locks end too early. A manifest is extended last, so its lock speaks for them all.
func (e *extender) plan() error {
	for name, manifest := range e.view.files {
		stream, number, suffix, isOurs := store.FileName(name)
		if !isOurs || suffix != ".json" {
			continue
		}
		e.done.Segments++
		m, _, err := e.store.ReadManifest(stream, number)
		if err != nil {
			return err
		}
		least, until := e.journal.required(coveredBy(m, manifest.ModifiedAt), e.now, holdRenew)
		if least.IsZero() {
			continue
		}
		e.done.Ordered++
		if !manifest.RetainUntil.Before(least) {
			until = manifest.RetainUntil
		} else {
			e.late[name] = until
		}
		e.done.Until, e.bases[stream] = maxTime(e.done.Until, until), maxTime(e.bases[stream], until)
	}
	return nil
}

// extendShared extends what segments are read by, and the orders themselves.
func (e *extender) extendShared() error {
	if e.done.Until.IsZero() {
		return nil
	}
	shared := e.shared()
	e.done.shared = shared.Add(identityAhead)
	names := append([]string{store.IdentityFile, store.PublicKeyFile}, e.store.KeyFiles()...)
	for _, entry := range e.journal.Entries {
		names = append(names, journalName(entry.Number))
	}
	for _, name := range names {
		v := e.view.oldest(name)
		if v == nil {
			return fmt.Errorf("%w: %s", ErrNotFound, e.bucket.key(name))
		}
		if err := e.extend(*v, shared, shared.Add(identityAhead)); err != nil {
			return err
		}
	}
	for name, v := range e.view.files {
		stream, _, suffix, isOurs := store.FileName(name)
		if until := e.bases[stream]; isOurs && suffix == ".base" && !until.IsZero() {
			if err := e.extend(v, until, until); err != nil {
				return err
			}
		}
	}
	return nil
}

// shared is when the locks of what all segments are read by are to end: not before one that is put now.
func (e *extender) shared() time.Time {
	until := e.done.Until
	for stream := range e.bases {
		_, ofNew := e.journal.required(covered{stream, e.now, e.now, e.now}, e.now, holdRenew)
		until = maxTime(until, ofNew)
	}
	return until
}

func (e *extender) segment(manifest string, until time.Time) error {
	stream, number, _, _ := store.FileName(manifest)
	if err := e.view.gone[store.SegmentFile(stream, number)]; err != nil {
		return err
	}
	for _, name := range []string{store.SegmentFile(stream, number), store.IndexFile(stream, number), manifest} {
		v, isThere := e.view.files[name]
		if !isThere && name != manifest {
			continue // without an index
		}
		if err := e.extend(v, until, until); err != nil {
			return err
		}
	}
	return nil
}

// extend extends the lock of a version that ends before least, and reads it back.
func (e *extender) extend(v Version, least, until time.Time) error {
	for isExtended := false; ; isExtended = true {
		full, err := e.bucket.head(e.ctx, v.Key, v.ID)
		if err != nil {
			return err
		}
		if full.Mode == string(minio.Compliance) && !full.RetainUntil.Before(least) {
			return nil
		}
		if isExtended {
			return fmt.Errorf("%w: object %s version %s is locked with %q until %s, expected COMPLIANCE until %s",
				ErrNotKept, v.Key, v.ID, full.Mode, full.RetainUntil.UTC().Format(time.RFC3339),
				until.Format(time.RFC3339))
		}
		err = e.bucket.retain(e.ctx, v.Key, v.ID, string(minio.Compliance), maxTime(until, full.RetainUntil), false)
		if err != nil {
			return err
		}
	}
}

// extend makes locks as the journal orders, once in extendedEvery, after an error, and when a segment was put that is
// locked longer than what it is read by. It holds up no stream.
func (u *Uploader) extend(ctx context.Context) error {
	now := u.writer.now()
	if age := now.Sub(u.extendedAt); age >= 0 && age < extendedEvery || ctx.Err() != nil {
		return nil
	}
	done, err := Extend(ctx, u.config.Bucket)
	if err != nil {
		err = fmt.Errorf("extend locks as the journal orders: %w", err)
		u.mutex.Lock()
		u.failure = err.Error()
		u.mutex.Unlock()
		u.config.Logger.Error("archive is not locked as ordered, retrying", "error", err)
		return err
	}
	u.mutex.Lock()
	u.extendedAt, u.sharedUntil = now, done.shared
	u.mutex.Unlock()
	if done.Extended > 0 {
		u.config.Logger.Info("locks were extended as the journal orders", "segments", done.Extended, "until",
			done.Until)
	}
	return nil
}

// lockedUntil takes in that an order has locked a segment so long.
func (u *Uploader) lockedUntil(ordered time.Time) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	if ordered.After(u.sharedUntil) {
		u.extendedAt = time.Time{}
	}
}
