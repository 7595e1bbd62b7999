package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/farlog/farlog/pkg/retry"
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
// identity, the keys, the journal, the base manifests first, a segment's manifest last. What an interrupted Extend
// leaves is extended by the next one. What cannot be read or extended holds up nothing else: it is in the error.
// Errors: those of NewView, ReadJournal and of calls, ErrNotFound, ErrNotKept, store.ErrCorrupt.
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
		e.failed(err)
	}
	e.plan()
	e.extendShared()
	for _, name := range slices.Sorted(maps.Keys(e.late)) {
		if e.segment(name, e.late[name]) {
			done.Extended++
		}
	}
	return done, e.err()
}

const (
	failuresMax = 20 // that an error of Extend names
	silentMax   = 3  // calls in a row without a usable answer, after which Extend ends
)

type extender struct {
	ctx     context.Context
	bucket  *Bucket
	journal Journal
	view    *View
	store   *store.Store // nil: it cannot be opened, so no manifest can be read
	done    *Extended
	now     time.Time
	late    map[string]time.Time // manifests whose locks end too early, and when they are to end
	bases   map[string]time.Time // when the latest lock of a stream with orders is to end

	failures []error // the first ones
	failing  int     // how many there were
	silent   int     // in a row
}

// failed keeps what went wrong with one object.
func (e *extender) failed(err error) {
	e.failing++
	if e.silent++; !isUncertain(err) {
		e.silent = 0
	}
	if len(e.failures) < failuresMax {
		e.failures = append(e.failures, err)
	}
}

// isOver reports whether the storage answers nothing any more, or ctx is done.
func (e *extender) isOver() bool { return e.silent >= silentMax || e.ctx.Err() != nil }

func (e *extender) err() error {
	list := e.failures
	if more := e.failing - len(list); more > 0 {
		list = append(list, fmt.Errorf("%d further failures", more))
	}
	return errors.Join(append(list, e.ctx.Err())...)
}

// plan finds the segments whose locks end too early. A manifest is extended last, so its lock speaks for them all.
func (e *extender) plan() {
	for name, manifest := range e.view.files {
		stream, number, suffix, isOurs := store.FileName(name)
		if !isOurs || suffix != ".json" {
			continue
		}
		e.done.Segments++
		least, until := e.journal.required(e.covered(stream, number, manifest), e.now, holdRenew)
		if least.IsZero() {
			continue
		}
		e.done.Ordered++
		if err := e.view.gone[store.SegmentFile(stream, number)]; err != nil {
			e.failed(err)
		}
		if !manifest.RetainUntil.Before(least) {
			until = manifest.RetainUntil
		} else {
			e.late[name] = until
		}
		e.done.Until, e.bases[stream] = maxTime(e.done.Until, until), maxTime(e.bases[stream], until)
	}
}

// covered is what orders have to know of a segment. One whose manifest cannot be read may have records of any time.
func (e *extender) covered(stream string, number uint64, manifest Version) covered {
	anyTime := covered{stream: stream, putAt: manifest.ModifiedAt, last: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}
	if e.store == nil || e.isOver() {
		return anyTime
	}
	m, _, err := e.store.ReadManifest(stream, number)
	if err != nil {
		e.failed(err)
		return anyTime
	}
	e.silent = 0
	return coveredBy(m, manifest.ModifiedAt)
}

// extendShared extends what segments are read by, and the orders themselves.
func (e *extender) extendShared() {
	var until time.Time // of the locks of what all segments are read by
	if shared := e.shared(); !e.done.Until.IsZero() {
		e.done.shared = shared.Add(identityAhead)
		names := []string{store.IdentityFile, store.PublicKeyFile}
		for name := range e.view.files {
			if store.IsKeyFile(name) {
				names = append(names, name)
			}
		}
		for _, name := range names {
			e.extendNamed(name, shared, e.done.shared)
		}
		until = shared
	}
	e.extendJournal(until)
	for name, v := range e.view.files {
		stream, _, suffix, isOurs := store.FileName(name)
		if until := e.bases[stream]; isOurs && suffix == ".base" && !until.IsZero() {
			e.extend(v, until, until)
		}
	}
}

// extendJournal keeps the orders as long as the identity, and as far ahead as a hold: also those that no segment is of
// yet, and those that have ended. One that is deleted from the end of the journal would not be missed.
func (e *extender) extendJournal(until time.Time) {
	if v := e.view.oldest(store.IdentityFile); v != nil && !e.isOver() {
		full, err := e.bucket.head(e.ctx, v.Key, v.ID)
		if err != nil {
			e.failed(err)
		}
		until = maxTime(until, full.RetainUntil)
	}
	for _, entry := range e.journal.Entries {
		e.extendNamed(journalName(entry.Number), maxTime(until, e.now.Add(holdRenew)),
			maxTime(until, e.now.Add(holdAhead)))
	}
}

// extendNamed extends the version of a file that counts.
func (e *extender) extendNamed(name string, least, until time.Time) {
	v := e.view.oldest(name)
	if v == nil {
		e.failed(fmt.Errorf("%w: %s", ErrNotFound, e.bucket.key(name)))
		return
	}
	e.extend(*v, least, until)
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

// segment extends what there is of a segment; its manifest, which speaks for them, when that succeeded.
func (e *extender) segment(manifest string, until time.Time) bool {
	stream, number, _, _ := store.FileName(manifest)
	for _, name := range []string{store.SegmentFile(stream, number), store.IndexFile(stream, number), manifest} {
		v, isThere := e.view.files[name]
		if isThere && !e.extend(v, until, until) {
			return false
		}
	}
	return true
}

// extend extends the lock of a version, and keeps what went wrong.
func (e *extender) extend(v Version, least, until time.Time) bool {
	if e.isOver() {
		return false
	}
	if err := e.bucket.extend(e.ctx, v, least, until); err != nil {
		e.failed(err)
		return false
	}
	e.silent = 0
	return true
}

// extend extends the lock of a version that ends before least, and reads it back.
func (b *Bucket) extend(ctx context.Context, v Version, least, until time.Time) error {
	for isExtended := false; ; isExtended = true {
		full, err := b.head(ctx, v.Key, v.ID)
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
		err = b.retain(ctx, v.Key, v.ID, string(minio.Compliance), maxTime(until, full.RetainUntil), false)
		if err != nil {
			return err
		}
	}
}

// keepExtended extends locks until ctx is done. It holds up no stream, and no stream holds it up.
func (u *Uploader) keepExtended(ctx context.Context) {
	delays := retry.New(pauseShortest, 15*time.Minute)
	for ctx.Err() == nil {
		pause := u.config.PollInterval
		if u.extend(ctx) == nil {
			delays.Reset()
		} else {
			pause = max(pause, delays.NextBackOff())
		}
		_ = retry.Sleep(ctx, pause)
	}
}

// extend makes locks as the journal orders, once in extendedEvery, after an error, and when somebody asked for it.
func (u *Uploader) extend(ctx context.Context) error {
	now := u.writer.now()
	u.mutex.Lock()
	age := now.Sub(u.extendedAt)
	isDue := u.isExtendDue || age < 0 || age >= extendedEvery
	u.isExtendDue = u.isExtendDue && !isDue // who asks while it works gets another run
	u.mutex.Unlock()
	if !isDue || ctx.Err() != nil {
		return nil
	}
	done, err := Extend(ctx, u.config.Bucket)
	u.mutex.Lock()
	u.extendedAt, u.sharedUntil, u.notExtended = now, done.shared, ""
	if err != nil {
		err = fmt.Errorf("extend locks as the journal orders: %w", err)
		u.extendedAt, u.notExtended = time.Time{}, err.Error()
	}
	u.mutex.Unlock()
	if err != nil && ctx.Err() == nil {
		u.config.Logger.Error("archive is not locked as ordered, retrying", "error", err)
	}
	if done.Extended > 0 {
		u.config.Logger.Info("locks were extended as the journal orders", "segments", done.Extended, "until",
			done.Until)
	}
	return err
}

// lockedUntil takes in that an order has locked a segment so long, and how long its put took: an order's period begins
// when the manifest is there, which may be later than was reckoned with.
func (u *Uploader) lockedUntil(ordered time.Time, took time.Duration) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	isLate := took < 0 || took >= putAhead
	u.isExtendDue = u.isExtendDue || isLate || ordered.After(u.sharedUntil)
}

// followJournal reads the journal again when it has another entry: an order that was given while a segment was put may
// have missed it, so locks are extended once more.
func (u *Uploader) followJournal(ctx context.Context, journal Journal) (Journal, error) {
	list, err := u.config.Bucket.listJournal(ctx)
	if err == nil && len(list) == len(journal.Entries) {
		return journal, nil
	}
	u.mutex.Lock()
	u.isExtendDue = true
	u.mutex.Unlock()
	if err != nil {
		return journal, err
	}
	return u.config.Bucket.ReadJournal(ctx)
}
